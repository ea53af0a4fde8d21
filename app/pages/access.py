"""Who looks at a page, and whether a form is one of our own.

A browser sends its cookies with every request to us, whichever page caused it. So a cookie alone
only reads: a change also needs the token that our own pages hold, and the header by which the
browser says that one of our pages sent it. REST takes no cookie at all.
"""

import asyncio
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field, replace
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
from app.errors import (
    InvalidInputError,
    MissingScopeError,
    NotFoundError,
    UnauthenticatedError,
)
from app.records.api_keys import Scope
from app.services.api_keys import LASTS
from app.services.visibility import View

#: Stands for the API key that somebody logged in with.
LOGIN_COOKIE: Final = "sextant_login"
#: Tells browsers apart, logged in or not: forms belong to one of them.
VISIT_COOKIE: Final = "sextant_visit"
#: Project that a key of all projects works in; it opens nothing to other keys.
PROJECT_COOKIE: Final = "sextant_project"
#: Field of a form that says it is of this browser.
CSRF_FIELD: Final = "csrf"
_MAX_FORM_BYTES: Final = 1_000_000
_MAX_FIELDS: Final = 200


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who looks at a page.

    Attributes:
        caller: None where nobody is logged in.
        visit: Value of the visit cookie, new where the browser sent none.
        csrf: What forms of this browser carry.
        can_leave: Logged in by a cookie, so that there is something to log out of.
        works_in: Name of the project that a key of all projects works in; None for other keys.
    """

    caller: Caller | None
    visit: str = field(repr=False)
    csrf: str = field(repr=False)
    can_leave: bool
    works_in: str | None = None

    @property
    def key_id(self) -> str:
        """Id of the key; requests of one key take turns."""
        return self.caller.key_id if self.caller else "nobody"

    @property
    def project(self) -> str:
        """Whose tests and banks they find; what is kept for one project is not shown to another."""
        return self.caller.project_id if self.caller else ""

    @property
    def administered(self) -> str | None:
        """The project whose keys an admin looks after; None: those of all."""
        return self.caller.administered if self.caller else ""

    @property
    def view(self) -> View:
        """What they see of withheld banks."""
        return View(is_whole=self.may("banks:write"))

    def may(self, scope: ScopeName) -> bool:
        """Whether their key covers `scope`."""
        return self.caller is not None and self.caller.may(Scope(scope))

    def require(self, *scopes: ScopeName) -> None:
        """Refuse what their key does not cover.

        Raises:
            UnauthenticatedError: Nobody is logged in.
            MissingScopeError: The key lacks one of `scopes`.
        """
        if self.caller is None:
            raise UnauthenticatedError("Log in to see this page.")
        for scope in scopes:
            if not self.caller.may(Scope(scope)):
                raise MissingScopeError(
                    f"This needs a key with the scope {scope!r}; yours has: "
                    f"{', '.join(sorted(self.caller.scopes)) or 'none'}."
                )


async def identify(request: Request) -> Caller | None:
    """Whose login the browser sent, looked up anew; None where it sent none that holds."""
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
    """Refuse whoever has logged out since, or whose key has ended: for streams.

    Raises:
        UnauthenticatedError: They may not read any more.
    """
    if await identify(request) is None:
        raise UnauthenticatedError("Log in to see this page.")


async def visitor(request: Request) -> Visitor:
    """Who looks at a page; looked up once a request.

    Raises:
        DatabaseUnavailableError: Nobody can say.
    """
    known: Visitor | None = getattr(request.state, "visitor", None)
    if known is None:
        caller, works_in = await _in_project(request, await identify(request))
        known = _take_for(request, caller, works_in)
        if known.caller is not None:
            enter_as(known.caller)
    return known


def take_for_nobody(request: Request) -> None:
    """Show who cannot be looked up what is shown to whoever is not logged in."""
    _take_for(request, None, None)


def _take_for(request: Request, caller: Caller | None, works_in: str | None) -> Visitor:
    visit = request.cookies.get(VISIT_COOKIE) or secrets.token_urlsafe(32)
    login = request.cookies.get(LOGIN_COOKIE, "")
    request.state.visitor = known = Visitor(
        caller=caller,
        works_in=works_in,
        visit=visit,
        # Of the project too: a form that was loaded for one is not carried out in another.
        csrf=hashlib.sha256(
            f"{visit} {login} {works_in or ''}".encode(errors="replace")
        ).hexdigest(),
        can_leave=request.app.state.services.settings.auth != "off",
    )
    return known


async def _in_project(request: Request, caller: Caller | None) -> tuple[Caller | None, str | None]:
    """Whoever may work in any project, in the one that this browser has chosen; and its name."""
    if caller is None or not caller.is_over_all:
        return caller, None
    projects = (await services(request)).projects
    try:
        chosen = await projects.recent(request.cookies.get(PROJECT_COOKIE) or caller.project_id)
    except NotFoundError:  # it was deleted since
        chosen = await projects.recent(caller.project_id)
    return replace(caller, project_id=chosen.id), chosen.name


Visit = Annotated[Visitor, Depends(visitor)]


async def own_form(request: Request) -> dict[str, str]:
    """The fields of a form that one of our pages sent; an empty field is left out.

    Raises:
        MissingScopeError: Another site sent it, or it is of another login or project.
        InvalidInputError: It is too long.
    """
    known: dict[str, str] | None = getattr(request.state, "form", None)
    if known is not None:
        return known
    _require_own_origin(request)
    content = bytearray()
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for chunk in request.stream():
                content += chunk
                if len(content) > _MAX_FORM_BYTES:
                    raise InvalidInputError(f"The form is larger than {_MAX_FORM_BYTES} bytes.")
    except TimeoutError as error:
        raise InvalidInputError("The form comes too slowly.") from error
    try:
        pairs = parse_qsl(content.decode(), keep_blank_values=False, max_num_fields=_MAX_FIELDS)
    except ValueError as error:
        raise InvalidInputError("The form cannot be read.") from error
    fields = dict(pairs)
    who = await visitor(request)
    if not hmac.compare_digest(fields.pop(CSRF_FIELD, "").encode(), who.csrf.encode()):
        raise MissingScopeError(
            "This form is not one of this browser's present login and project. Go back, load the "
            "page again, and send it once more."
        )
    request.state.form = fields
    return fields


Form = Annotated[dict[str, str], Depends(own_form)]


def _require_own_origin(request: Request) -> None:
    origin, host = request.headers.get("origin", ""), request.headers.get("host", "")
    if not is_of_host(origin, host):
        raise MissingScopeError("This form came from another site, or does not say from where.")


def set_cookies(request: Request, response: Response, visit: str, login: str | None) -> None:
    """Have the browser keep its cookies; `login` is new, or None for what it has."""
    secure = request.url.scheme == "https"
    if request.cookies.get(VISIT_COOKIE) != visit:
        response.set_cookie(
            VISIT_COOKIE, visit, max_age=365 * 86400, httponly=True, samesite="lax", secure=secure
        )
    if login is not None:
        response.set_cookie(
            LOGIN_COOKIE,
            login,
            max_age=int(LASTS.total_seconds()),
            httponly=True,
            samesite="lax",
            secure=secure,
        )


def set_project(request: Request, response: Response, project_id: str) -> None:
    """Have the browser say in which project it works."""
    secure = request.url.scheme == "https"
    response.set_cookie(
        PROJECT_COOKIE,
        project_id,
        max_age=365 * 86400,
        httponly=True,
        samesite="lax",
        secure=secure,
    )


def own_path(target: str | None) -> str:
    """Where to go after the login: a path of ours, else the first page."""
    if not target or not target.startswith("/") or target.startswith(("//", "/\\")):
        return "/"
    if any(character <= " " or character in "\\\x7f" for character in target):
        return "/"
    return target
