"""Routes of `/v1`: their scopes and errors, and the steps that each takes before its function.

The order makes sure that a client without a key causes no work. Refuse characters that cannot be
stored, authenticate, refuse unknown query parameters, check the media type, parse the body
strictly, look up the Idempotency-Key.
"""

import re
from collections.abc import Callable, Collection, Coroutine
from typing import Annotated, Any, Final
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Depends, Header, Request, Response, params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from starlette.convertors import PathConvertor, StringConvertor
from typing_extensions import override

from app.api.bodies import LIMIT_KEY, SMALL, Body, parsed, require_media_type, unstorable
from app.api.errors import HTTP_CODES, RouteResponses, documented, errors, merged
from app.api.idempotency import KEY_PATTERN, once
from app.api.rates import let_in, reading_turn
from app.deps import ScopeName, caller, enter_as, identify, services
from app.errors import (
    BusyError,
    DatabaseUnavailableError,
    FieldProblem,
    IdempotencyAnswerLostError,
    IdempotencyInFlightError,
    IdempotencyMismatchError,
    InvalidInputError,
    MissingScopeError,
    NotFoundError,
    SecretsError,
    SextantError,
    TooManyRequestsError,
    UnauthenticatedError,
)
from app.exchange.files import MAX_PROBLEMS
from app.validation import pointer_of

#: What a parameter of a path takes: a `:verb` is never part of an id or a key.
_TAKEN = {StringConvertor: "[^/:]+", PathConvertor: r"[^:\n]*"}
_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def make_router(prefix: str, *, tag: str) -> "APIRouter":
    """Make a router whose routes authenticate, parse strictly and honour Idempotency-Key.

    The operation ids are the function names, so these must be unique across the API.
    """
    return APIRouter(
        prefix=f"/v1{prefix}",
        tags=[tag],
        route_class=ApiRoute,
        generate_unique_id_function=lambda route: route.name,
    )


def allow(
    scope: ScopeName, *raised: type[SextantError], also: RouteResponses | None = None
) -> dict[str, Any]:
    """Options of a route: `@router.get("", **allow("read", NotFoundError))`.

    Args:
        scope: Scope that a key needs.
        raised: Errors that the route may raise, beside those of every route.
        also: Further responses, for OpenAPI.
    """
    return {"dependencies": [caller(scope)], "responses": merged(also or {}, errors(*raised))}


async def _idempotency_key(
    _: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            pattern=KEY_PATTERN,
            description="Any text of up to 255 printable ASCII characters, new for each operation. "
            "A repeated request with the same key is carried out only once.",
        ),
    ] = None,
) -> None:
    """Mark a route as one that honours Idempotency-Key; `ApiRoute` does the work."""


#: Dependency of creating routes, which `allow_once` adds.
IDEMPOTENT: Final[params.Depends] = Depends(_idempotency_key)


def allow_once(
    scope: ScopeName, *raised: type[SextantError], also: RouteResponses | None = None
) -> dict[str, Any]:
    """The same for a route that honours Idempotency-Key."""
    options = allow(scope, *raised, also=also)
    return {**options, "dependencies": [*options["dependencies"], IDEMPOTENT]}


class ApiRoute(APIRoute):
    """A route of `/v1`; documents the problems that any such route may return."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        pattern = re.escape(self.path_format)
        for name, convertor in self.param_convertors.items():
            pattern = pattern.replace(rf"\{{{name}\}}", f"(?P<{name}>{_TAKEN[type(convertor)]})")
        self.path_regex = re.compile(f"^{pattern}$")
        extra = dict(self.openapi_extra or {})
        self._max_body_bytes: int = extra.get(LIMIT_KEY, SMALL)
        self._idempotent = any(d.dependency is _idempotency_key for d in self.dependencies)
        if self.body_field is not None:
            self.openapi_extra = {**extra, LIMIT_KEY: self._max_body_bytes}
        self.responses = merged(self._common_problems(), self.responses)

    @override
    def get_route_handler(self) -> _Handler:
        """Wrap FastAPI's handler in the checks of this module."""
        run = super().get_route_handler()
        known = {
            parameter.alias
            for parameter in get_flat_params(self.dependant)
            if isinstance(parameter.field_info, params.Query)
        }

        async def handle(request: Request) -> Response:
            refuse_nul_in_url(request)
            caller = await identify(request)
            enter_as(request, caller)
            opened = await services(request)
            project = await opened.projects.recent.get(caller.project_id)
            let_in(project, caller.key_id, caller.requests_per_s)
            _refuse_unknown(request, known)
            limit = min(self._max_body_bytes, opened.settings.max_body_bytes)
            body = Body(request, limit, caller.key_id)
            try:
                prepared = await self._prepared(request, body)
                if request.method == "GET":
                    async with reading_turn(prepared, caller.key_id):
                        return await run(prepared)
                key = prepared.headers.get("idempotency-key") if self._idempotent else None
                if key is None:
                    return await run(prepared)
                principal = f"{caller.key_id}@{caller.project_id}"
                return await once(prepared, run, principal=principal, key=key)
            finally:
                body.release()

        return handle

    async def _prepared(self, request: Request, body: Body) -> Request:
        """The request with its JSON body parsed; another body is only read."""
        if self.body_field is None:
            return _ParsedRequest(request, await body.read())
        has_body = request.headers.get("content-length", "0") != "0" or (
            "transfer-encoding" in request.headers
        )
        if not has_body:
            return request
        require_media_type(request, "application/json")
        content = await body.read()
        return _ParsedRequest(request, content, await parsed(content, self.body_field))

    def _common_problems(self) -> RouteResponses:
        expected: list[type[SextantError]] = [
            UnauthenticatedError,
            MissingScopeError,
            TooManyRequestsError,
            InvalidInputError,
            BusyError,
            DatabaseUnavailableError,
        ]
        if self.param_convertors:
            expected.append(NotFoundError)
        if self._idempotent:
            expected += [
                IdempotencyAnswerLostError,
                IdempotencyInFlightError,
                IdempotencyMismatchError,
                SecretsError,
            ]
        statuses = [400, 408, 413, 415] if self.body_field is not None else []
        return merged(
            errors(*expected),
            *(documented(status, [HTTP_CODES[status]]) for status in statuses),
            documented(500, [SextantError.code]),
        )


class _ParsedRequest(Request):
    """A request whose JSON this module has parsed before FastAPI asks for it."""

    def __init__(self, request: Request, content: bytes, parsed: Any = None) -> None:
        super().__init__(request.scope, request.receive)
        self._body, self._json = content, parsed  # where Starlette keeps what it has read


def refuse_nul_in_url(request: Request) -> None:
    """Refuse NUL, which Postgres cannot store and HTML cannot hold."""
    if "\x00" in request.url.path or "\x00" in request.scope["path"]:
        raise unstorable("/path")
    if b"\x00" in unquote_to_bytes(request.scope["query_string"]):
        raise unstorable("/query")


def _refuse_unknown(request: Request, known: Collection[str]) -> None:
    """Refuse unknown parameters: a misspelt filter would return everything. Allow `metadata.*`."""
    unknown = [
        name
        for name in request.query_params
        if name not in known and f"{name.partition('.')[0]}.*" not in known
    ]
    if unknown:
        expected = f"one of {', '.join(sorted(known))}" if known else "no query parameters"
        problems = [
            FieldProblem(pointer_of(("query", name)), f"expected {expected}") for name in unknown
        ]
        raise InvalidInputError(
            f"There is no query parameter {unknown[0]!r:.80} here: expected {expected}.",
            problems=problems[:MAX_PROBLEMS],
        )
