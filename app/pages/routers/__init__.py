"""All pages, in the order in which a path is looked for."""

from app.pages import static
from app.pages.routers import endpoints, home, new_session, sessions, sign_in

ROUTERS = (
    home.router,
    sign_in.router,
    new_session.router,
    sessions.router,
    endpoints.router,
    static.router,
)
