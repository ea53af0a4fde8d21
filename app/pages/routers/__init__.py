"""All pages, in the order in which a path is looked for."""

from app.pages import static
from app.pages.routers import home, sessions, sign_in

ROUTERS = (home.router, sign_in.router, sessions.router, static.router)
