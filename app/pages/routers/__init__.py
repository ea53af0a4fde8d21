"""Routers of all pages, in the order in which paths are matched."""

from app.pages import static
from app.pages.routers import (
    banks,
    calibrations,
    docs,
    endpoints,
    home,
    keys,
    new_session,
    projects,
    rankings,
    results,
    sessions,
    sign_in,
)

_MODULES = (
    home,
    sign_in,
    new_session,  # before the route with any session's id
    sessions,
    banks,
    rankings,
    results,
    calibrations,
    endpoints,
    keys,
    projects,
    docs,
    static,
)
ROUTERS = tuple(module.router for module in _MODULES)
