"""Conditional requests (RFC 9110): lost updates are refused, unchanged answers are not sent again.

A mutable resource has its revision as entity tag, an immutable one a hash or its id.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response

from app.errors import PreconditionFailedError, PreconditionRequiredError, SextantError

#: Documents the answer to If-None-Match.
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "You have the present state: nothing was sent."}
}


def etag(revision: int | str) -> str:
    """Strong entity tag of a revision."""
    return f'"{revision}"'


async def _expected_revision(
    if_match: Annotated[
        str,
        Header(
            pattern=r'^"[0-9]{1,9}"$',
            description="The `ETag` of the state that you read.",
            examples=['"3"'],
        ),
    ],
) -> int:
    return int(if_match.strip('"'))


def precondition_problem(faults: Sequence[Mapping[str, Any]]) -> SextantError | None:
    """What is wrong with If-Match, if nothing else is wrong with the request."""
    if any(fault["loc"] != ("header", "if-match") for fault in faults):
        return None
    if any(fault["type"] == "missing" for fault in faults):
        return PreconditionRequiredError(
            "Send If-Match with the ETag of the state that you read, so that no change of someone "
            "else is lost."
        )
    return PreconditionFailedError('If-Match must be one strong ETag of this API, such as "3".')


#: The revision that a PATCH or DELETE is based on: 428 without If-Match, 412 when it is malformed.
#: The service compares it with the stored one and raises `PreconditionFailedError`.
ExpectedRevision = Annotated[int, Depends(_expected_revision)]


def is_current(request: Request, tag: str) -> bool:
    """Whether the client's If-None-Match already names `tag`."""
    header = request.headers.get("if-none-match", "")
    held = {part.strip().removeprefix("W/") for part in header.split(",")}
    return tag in held or "*" in held


def not_modified(tag: str) -> Response:
    """304 for a client that holds the present state."""
    return Response(status_code=304, headers={"ETag": tag})
