"""Map errors to RFC 9457 problems; no other module turns errors into HTTP.

`STATUS_OF` maps each class of `app.errors` to its status; a class that is not listed uses its
nearest listed base. `errors(...)` documents a route's problems in OpenAPI from the same table.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException

from app.api.etags import precondition_problem
from app.api.schemas.designs import plan_problems
from app.errors import (
    BlockedAddressError,
    BudgetSpentError,
    BusyError,
    CalibrationError,
    ConflictError,
    DatabaseUnavailableError,
    DownloadError,
    EstimationError,
    ExamineeError,
    FieldProblem,
    IdempotencyMismatchError,
    InvalidInputError,
    LeaseLostError,
    MissingScopeError,
    NotFoundError,
    PreconditionFailedError,
    PreconditionRequiredError,
    ScaleMismatchError,
    SecretsError,
    SextantError,
    TooManyRequestsError,
    TooManySessionsError,
    TooManyStreamsError,
    UnauthenticatedError,
)
from app.exchange.files import shortened
from app.validation import problems_of

PROBLEM_MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 5

STATUS_OF: Mapping[type[SextantError], HTTPStatus] = {
    InvalidInputError: HTTPStatus.UNPROCESSABLE_ENTITY,
    NotFoundError: HTTPStatus.NOT_FOUND,
    ConflictError: HTTPStatus.CONFLICT,
    IdempotencyMismatchError: HTTPStatus.UNPROCESSABLE_ENTITY,
    PreconditionFailedError: HTTPStatus.PRECONDITION_FAILED,
    PreconditionRequiredError: HTTPStatus.PRECONDITION_REQUIRED,
    UnauthenticatedError: HTTPStatus.UNAUTHORIZED,
    MissingScopeError: HTTPStatus.FORBIDDEN,
    ScaleMismatchError: HTTPStatus.UNPROCESSABLE_ENTITY,
    EstimationError: HTTPStatus.UNPROCESSABLE_ENTITY,
    CalibrationError: HTTPStatus.UNPROCESSABLE_ENTITY,
    ExamineeError: HTTPStatus.FAILED_DEPENDENCY,
    DownloadError: HTTPStatus.FAILED_DEPENDENCY,
    BlockedAddressError: HTTPStatus.UNPROCESSABLE_ENTITY,
    BusyError: HTTPStatus.SERVICE_UNAVAILABLE,
    BudgetSpentError: HTTPStatus.TOO_MANY_REQUESTS,
    TooManyRequestsError: HTTPStatus.TOO_MANY_REQUESTS,
    TooManySessionsError: HTTPStatus.TOO_MANY_REQUESTS,
    TooManyStreamsError: HTTPStatus.TOO_MANY_REQUESTS,
    DatabaseUnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    SecretsError: HTTPStatus.SERVICE_UNAVAILABLE,
    LeaseLostError: HTTPStatus.CONFLICT,
    SextantError: HTTPStatus.INTERNAL_SERVER_ERROR,
}

#: Codes of problems that come from HTTP itself, without an error class.
HTTP_CODES: Mapping[int, str] = {
    400: "malformed_body",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    408: "request_timeout",
    413: "body_too_large",
    415: "unsupported_media_type",
}
OTHER_CODE = "http_error"


def _codes(error: type[SextantError]) -> set[str]:
    return {error.code}.union(*map(_codes, error.__subclasses__()))


#: All codes that a problem may have.
CODES = sorted({*_codes(SextantError), *HTTP_CODES.values(), OTHER_CODE})

_log = structlog.get_logger(__name__)


def status_of(error: type[SextantError]) -> HTTPStatus:
    """Status of `error`, or of its nearest listed base class."""
    return next(STATUS_OF[base] for base in error.__mro__ if base in STATUS_OF)


def problem_response(
    request: Request,
    *,
    status: int,
    code: str,
    detail: str,
    problems: Iterable[FieldProblem] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Make the `application/problem+json` reply to `request`."""
    body: dict[str, Any] = {
        "type": f"urn:sextant:problem:{code}",
        "title": code.replace("_", " ").capitalize(),
        "status": int(status),
        "detail": detail,
        "instance": request.url.path,
        "code": code,
        "request_id": getattr(request.state, "request_id", None),
        "errors": [{"pointer": p.pointer, "detail": p.detail} for p in problems],
    }
    return JSONResponse(
        body, status_code=status, headers=dict(headers or {}), media_type=PROBLEM_MEDIA_TYPE
    )


def internal_error_response(request: Request) -> JSONResponse:
    """Make a 500 that reveals nothing but the id under which the log has the details."""
    return problem_response(
        request,
        status=500,
        code=SextantError.code,
        detail="The server failed on this request. Its log has the cause under this request_id.",
    )


#: OpenAPI `responses` of a route, by status.
RouteResponses = dict[int | str, dict[str, Any]]


def documented(status: int, codes: Iterable[str]) -> RouteResponses:
    """OpenAPI entry of one problem status, with the codes that it may carry."""
    return {int(status): {"x-codes": sorted(set(codes))}}


def errors(*classes: type[SextantError]) -> RouteResponses:
    """OpenAPI `responses` of a route that may raise these errors."""
    return merged(*(documented(status_of(error), [error.code]) for error in classes))


def merged(*responses: RouteResponses) -> RouteResponses:
    """Merge several `responses`; a status in more than one gets the codes of all."""
    union: RouteResponses = {}
    for entry in responses:
        for status, response in entry.items():
            codes = [*union.get(status, {}).get("x-codes", ()), *response.get("x-codes", ())]
            union |= documented(int(status), codes) if codes else {status: response}
    return union


#: For routes that change a mutable resource: If-Match is missing, or names an older state.
CONDITIONAL = (PreconditionFailedError, PreconditionRequiredError)


def install(app: FastAPI) -> None:
    """Register the handlers that turn every error into a problem."""
    app.add_exception_handler(SextantError, _on_sextant_error)  # type: ignore[arg-type]  # narrower
    app.add_exception_handler(RequestValidationError, _on_invalid)  # type: ignore[arg-type]  # narrower
    app.add_exception_handler(HTTPException, _on_http_error)  # type: ignore[arg-type]  # narrower


def headers_of(error: SextantError) -> dict[str, str]:
    """Headers of a reply with this error: how to authenticate, and when to try again."""
    match status_of(type(error)):
        case HTTPStatus.UNAUTHORIZED:
            return {"WWW-Authenticate": 'Bearer realm="sextant"'}
        case HTTPStatus.SERVICE_UNAVAILABLE | HTTPStatus.TOO_MANY_REQUESTS:
            seconds = RETRY_AFTER_S
            if isinstance(error, TooManyRequestsError | BudgetSpentError):
                seconds = math.ceil(error.retry_after_s)
            return {"Retry-After": str(seconds)}
        case _:
            return {}


async def _on_sextant_error(request: Request, exc: SextantError) -> JSONResponse:
    status = status_of(type(exc))
    if status is HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("request_failed", code=exc.code, exc_info=exc)
        return internal_error_response(request)
    return problem_response(
        request,
        status=status,
        code=exc.code,
        detail=exc.detail,
        problems=exc.problems,
        headers=headers_of(exc),
    )


async def _on_invalid(request: Request, exc: RequestValidationError) -> JSONResponse:
    found = exc.errors()
    undecodable = next((e for e in found if e["type"] == "json_invalid"), None)
    if undecodable is not None:
        where, why = undecodable["loc"][-1], undecodable.get("ctx", {}).get("error", "")
        return problem_response(
            request,
            status=400,
            code=HTTP_CODES[400],
            detail=f"The body is not JSON: {why or 'it cannot be parsed'} (character {where}).",
        )
    if precondition := precondition_problem(found):
        return await _on_sextant_error(request, precondition)
    body = getattr(request.scope.get("route"), "body_field", None)
    shape = body and body.field_info.annotation
    problems = [
        replace(problem, pointer=shortened(problem.pointer.removeprefix("/body")))
        for problem in problems_of(found, shape)
    ]
    faulty = {one.pointer.removeprefix("/").partition("/")[0] for one in problems}
    more = plan_problems(shape, exc.body, faulty)
    problems, n_found = [*problems, *more], len(found) + len(more)
    detail = (
        f"{problems[0].pointer or 'The body'}: {problems[0].detail}"
        if n_found == 1
        else f"{n_found} fields of the request cannot be used; see errors."
    )
    return problem_response(
        request, status=422, code=InvalidInputError.code, detail=detail, problems=problems
    )


async def _on_http_error(request: Request, exc: HTTPException) -> JSONResponse:
    headers = dict(exc.headers or {})
    detail = str(exc.detail)
    if exc.status_code == HTTPStatus.NOT_FOUND and detail == HTTPStatus.NOT_FOUND.phrase:
        detail = "There is nothing at this path."
    if exc.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # Starlette names the methods of the path's first route only.
        methods: set[str] = set()
        for context in iter_route_contexts(request.app.routes):
            if context.path_regex.match(request.url.path):
                methods |= context.methods or set()
        allowed = ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))
        headers = {"Allow": allowed}
        detail = f"{request.method} is not possible here; allowed: {allowed}."
    return problem_response(
        request,
        status=exc.status_code,
        code=HTTP_CODES.get(exc.status_code, OTHER_CODE),
        detail=detail,
        headers=headers,
    )
