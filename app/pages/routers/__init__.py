"""All pages, in the order in which a path is looked for."""

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
    new_session,  # before what takes any id
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
