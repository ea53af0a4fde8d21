"""Finds the visitor of a page, and checks that a form was sent by one of our own pages.

A browser sends its cookies with every request to us, whichever page caused it. So a cookie alone
only reads: a change also needs the token in our own pages, and the header in which the browser
says that one of our pages sent the form. REST accepts no cookies.
"""

import asyncio
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Annotated, Final
from urllib.parse import parse_qsl

from fastapi import Depends, Request, Response

from app.api.bodies import PATIENCE_S
from app.deps import (
    LOCAL,
    Caller,
    ScopeName,
    caller_of,
    enter_as,
    is_called_by_own_name,
    is_of_host,
    services,
)
from app.errors import InvalidInputError, MissingScopeError, NotFoundError, UnauthenticatedError
from app.records.api_keys import Scope
from app.reports.formats import short
from app.services.api_keys import LASTS
from app.services.visibility import View

#: Cookie that stands for the API key of a login.
LOGIN_COOKIE: Final = "sextant_login"
#: Cookie that identifies a browser, logged in or not: each form belongs to one browser.
VISIT_COOKIE: Final = "sextant_visit"
#: Cookie with the project that a key of all projects works in; it gives other keys no access.
PROJECT_COOKIE: Final = "sextant_project"
#: Field with the token that proves that a form belongs to this browser.
CSRF_FIELD: Final = "csrf"
_MAX_FORM_BYTES: Final = 1_000_000
_MAX_FIELDS: Final = 200


@dataclass(frozen=True, slots=True)
class Visitor:
    """Visitor of a page.

    Attributes:
        caller: Caller of the login; None where nobody is logged in.
        visit: Value of the visit cookie, new where the browser sent none.
        csrf: Token that the forms of this browser carry.
        can_leave: Whether there is a login by cookie to log out of.
        works_in: Name of the project that a key of all projects works in; None for other keys.
    """

    caller: Caller | None
    visit: str = field(repr=False)
    csrf: str = field(repr=False)
    can_leave: bool
    works_in: str | None = None

    @property
    def key_id(self) -> str:
        """Id of the key, or `nobody`; requests of one key take turns."""
        return self.caller.key_id if self.caller else "nobody"

    @property
    def project(self) -> str:
        """Id of the project whose data are shown; caches of one project serve no other."""
        return self.caller.project_id if self.caller else ""

    @property
    def administered(self) -> str | None:
        """Id of the project whose keys an admin administers; None: all projects."""
        return self.caller.administered if self.caller else ""

    @property
    def view(self) -> View:
        """What the visitor sees of withheld banks."""
        return View(is_whole=self.may("banks:write"))

    def may(self, scope: ScopeName) -> bool:
        """Whether the visitor's key covers `scope`."""
        return self.caller is not None and self.caller.may(Scope(scope))

    def require(self, *scopes: ScopeName) -> None:
        """Refuse a visitor whose key does not cover `scopes`.

        Raises:
            UnauthenticatedError: Nobody is logged in.
            MissingScopeError: The key lacks one of `scopes`.
        """
        if self.caller is None:
            raise UnauthenticatedError("Log in to see this page.")
        self.caller.require(scopes)


async def identify(request: Request) -> Caller | None:
    """Find the caller of the browser's login again; None where it has no valid login."""
    opened = await services(request)
    if opened.settings.auth == "off":
        return LOCAL if is_called_by_own_name(request) else None
    token = request.cookies.get(LOGIN_COOKIE)
    if not token:
        return None
    try:
        return caller_of(await opened.logins.key_of(token))
    except UnauthenticatedError:
        return None


async def still_there(request: Request) -> None:
    """Refuse a visitor who has logged out, or whose key has ended, while a stream was open.

    Raises:
        UnauthenticatedError: The visitor may no longer read.
    """
    if await identify(request) is None:
        raise UnauthenticatedError("Log in to see this page.")


async def visitor(request: Request) -> Visitor:
    """The visitor of a page, looked up once per request.

    Raises:
        DatabaseUnavailableError: The visitor cannot be looked up.
    """
    known: Visitor | None = getattr(request.state, "visitor", None)
    if known is None:
        caller, works_in = await _in_project(request, await identify(request))
        known = _take_for(request, caller, works_in)
        if known.caller is not None:
            enter_as(request, known.caller)
    return known


def take_for_nobody(request: Request) -> None:
    """Treat a visitor who cannot be looked up as not logged in."""
    _take_for(request, None, None)


def _take_for(request: Request, caller: Caller | None, works_in: str | None) -> Visitor:
    visit = request.cookies.get(VISIT_COOKIE) or secrets.token_urlsafe(32)
    login = request.cookies.get(LOGIN_COOKIE, "")
    request.state.visitor = known = Visitor(
        caller=caller,
        works_in=works_in,
        visit=visit,
        # With the project: a form that was loaded in one project has no effect in another.
        csrf=hashlib.sha256(
            f"{visit} {login} {works_in or ''}".encode(errors="replace")
        ).hexdigest(),
        can_leave=request.app.state.services.settings.auth != "off",
    )
    return known


async def _in_project(request: Request, caller: Caller | None) -> tuple[Caller | None, str | None]:
    """The caller in the project that the browser chose, and its name, for keys of all projects."""
    if caller is None or not caller.is_over_all:
        return caller, None
    projects = (await services(request)).projects
    try:
        chosen = await projects.recent.get(request.cookies.get(PROJECT_COOKIE) or caller.project_id)
    except NotFoundError:  # the project was deleted
        chosen = await projects.recent.get(caller.project_id)
    return replace(caller, project_id=chosen.id), chosen.name


Visit = Annotated[Visitor, Depends(visitor)]


async def own_form(request: Request) -> dict[str, str]:
    """The fields of a form that one of our pages sent; empty fields are left out.

    Raises:
        MissingScopeError: Another site or an unnamed one sent the form, or it belongs to another
            login or project.
        InvalidInputError: The form is too long, too slow or unreadable.
    """
    known: dict[str, str] | None = getattr(request.state, "form", None)
    if known is not None:
        return known
    origin = request.headers.get("origin", "")
    if not origin:
        raise MissingScopeError(
            "The browser does not say which site sent this form: the header Origin is missing. An "
            "extension or a proxy may have removed it."
        )
    if not is_of_host(origin, request):
        sent_to = f"{request.scope['scheme']}://{request.headers.get('host', '')}"
        raise MissingScopeError(
            f"This form came from another site: its Origin is {short(origin, 60)!r}, but it was "
            f"sent to {short(sent_to, 60)!r}."
        )
    content = bytearray()
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for chunk in request.stream():
                content += chunk
                if len(content) > _MAX_FORM_BYTES:
                    raise InvalidInputError(f"The form is larger than {_MAX_FORM_BYTES} bytes.")
    except TimeoutError as error:
        raise InvalidInputError("The form came too slowly.") from error
    try:
        pairs = parse_qsl(content.decode(), keep_blank_values=False, max_num_fields=_MAX_FIELDS)
    except ValueError as error:
        raise InvalidInputError("The form cannot be read.") from error
    fields = dict(pairs)
    who = await visitor(request)
    if not hmac.compare_digest(fields.pop(CSRF_FIELD, "").encode(), who.csrf.encode()):
        raise MissingScopeError(
            "This form belongs to another login or project than this browser's present one. Go "
            "back, load the page again, and send it once more."
        )
    request.state.form = fields
    return fields


Form = Annotated[dict[str, str], Depends(own_form)]


def set_cookie(request: Request, response: Response, name: str, value: str) -> None:
    """Set a cookie that scripts cannot read; a login's ends with the login, others last a year."""
    lasts = LASTS if name == LOGIN_COOKIE else timedelta(days=365)
    response.set_cookie(
        name,
        value,
        max_age=int(lasts.total_seconds()),
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )


def own_path(target: str | None) -> str:
    """Path to go to after the login: `target` if it is a path of ours, else the first page."""
    if not target or not target.startswith("/") or target.startswith(("//", "/\\")):
        return "/"
    if any(character <= " " or character in "\\\x7f" for character in target):
        return "/"
    return target
