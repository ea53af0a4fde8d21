"""Conditional requests (RFC 9110): refuse lost updates, do not resend unchanged replies.

The entity tag of a mutable resource is its revision; that of an immutable one is a hash or its id.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response

from app.errors import PreconditionFailedError, PreconditionRequiredError, SextantError

#: OpenAPI entry of the reply to If-None-Match.
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "Your copy is current: the body is empty."}
}


def etag(revision: int | str) -> str:
    """Make the strong entity tag of a revision."""
    return f'"{revision}"'


async def _expected_revision(
    if_match: Annotated[
        str,
        Header(
            # Proxies that compress replies weaken their tags, as nginx does, or add to them, as
            # Apache and Caddy do; the revision is still the one that was read.
            pattern=r'^(W/)?"[0-9]{1,9}(-[a-z]{1,9})?"$',
            description="The `ETag` of the state that you read; the change is refused if it is no "
            "longer current.",
            examples=['"3"'],
        ),
    ],
) -> int:
    return int(if_match.removeprefix("W/").strip('"').partition("-")[0])


def precondition_problem(faults: Sequence[Mapping[str, Any]]) -> SextantError | None:
    """The error for If-Match, if the request has no other fault."""
    if any(fault["loc"] != ("header", "if-match") for fault in faults):
        return None
    if any(fault["type"] == "missing" for fault in faults):
        return PreconditionRequiredError(
            "Send If-Match with the ETag of the state that you read, so that no change of someone "
            "else is lost."
        )
    return PreconditionFailedError('If-Match must be one ETag of this API, such as "3".')


#: Revision that a PATCH or DELETE is based on: 428 without If-Match, 412 if it is malformed.
#: The service compares it with the stored revision and raises `PreconditionFailedError`.
ExpectedRevision = Annotated[int, Depends(_expected_revision)]


def is_current(request: Request, tag: str) -> bool:
    """Whether the client's If-None-Match names `tag`."""
    header = request.headers.get("if-none-match", "")
    held = {part.strip().removeprefix("W/") for part in header.split(",")}
    return tag in held or "*" in held


def not_modified(tag: str) -> Response:
    """Make a 304 for a client that has the present state."""
    return Response(status_code=304, headers={"ETag": tag})
