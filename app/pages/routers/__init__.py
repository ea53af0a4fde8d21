"""Routers of all pages, in the order in which paths are matched."""

from app.pages import static
from app.pages.routers import (
    administration,
    banks,
    calibrations,
    endpoints,
    home,
    new_session,
    rankings,
    results,
    sessions,
)

_MODULES = (
    home,
    new_session,  # before the route with any session's id
    sessions,
    banks,
    rankings,
    results,
    calibrations,
    endpoints,
    administration,
    static,
)
ROUTERS = tuple(module.router for module in _MODULES)
