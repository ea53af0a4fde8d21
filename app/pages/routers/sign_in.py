"""Log in with an API key, and log out."""

from fastapi import Request, Response

from app.deps import AllServices
from app.errors import UnauthenticatedError
from app.pages.access import LOGIN_COOKIE, Form, Visit, own_path, set_cookies
from app.pages.rendering import page
from app.pages.routing import router as make_router
from app.pages.routing import see

router = make_router()


@router.get("/login")
async def login_page(request: Request) -> Response:
    """Ask for an API key."""
    wanted = own_path(request.query_params.get("next"))
    return await page(request, "login.html", next=wanted, problem=None)


@router.post("/login")
async def log_in(request: Request, form: Form, visit: Visit, opened: AllServices) -> Response:
    """Exchange the key for a login cookie."""
    wanted = own_path(form.get("next"))
    try:
        token = await opened.logins.open(form.get("key", "").strip())
    except UnauthenticatedError as error:
        return await page(request, "login.html", status=401, next=wanted, problem=error.detail)
    if old := request.cookies.get(LOGIN_COOKIE):
        await opened.logins.close(old)
    response = see(request, wanted)
    set_cookies(request, response, visit.visit, token)
    return response


@router.post("/logout")
async def log_out(request: Request, opened: AllServices) -> Response:
    """End the login, here and wherever its cookie was copied to."""
    if token := request.cookies.get(LOGIN_COOKIE):
        await opened.logins.close(token)
    response = see(request, "/login")
    response.delete_cookie(LOGIN_COOKIE, httponly=True, samesite="lax")
    response.headers["Clear-Site-Data"] = '"cache"'
    return response
