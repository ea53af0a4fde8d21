"""Conditional requests (RFC 9110): refuse lost updates, do not resend unchanged replies.

The entity tag of a mutable resource is its revision; that of an immutable one is a hash or its id.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response
from pydantic import BeforeValidator

from app.errors import PreconditionFailedError, PreconditionRequiredError, SextantError

#: OpenAPI entry of the reply to If-None-Match.
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "Your copy is current: the body is empty."}
}


def etag(revision: int | str) -> str:
    """Make the strong entity tag of a revision."""
    return f'"{revision}"'


#: A tag after a proxy that compresses replies: weak, as of nginx, or with an addition, as of
#: Apache and Caddy. The revision is still the one that was read.
_COMPRESSED = re.compile(r'\A(?:W/)?("[0-9]{1,9})(?:-[a-z]{1,9})?"\Z')


async def _expected_revision(
    if_match: Annotated[
        str,
        BeforeValidator(lambda tag: _COMPRESSED.sub(r'\1"', tag)),
        Header(
            pattern=r'^"[0-9]{1,9}"$',
            description="The `ETag` of the state that you read; the change is refused if it is no "
            "longer current.",
            examples=['"3"'],
        ),
    ],
) -> int:
    return int(if_match.strip('"'))


def precondition_problem(faults: Sequence[Mapping[str, Any]]) -> SextantError | None:
    """The error for If-Match, if the request has no other fault."""
    if any(fault["loc"] != ("header", "if-match") for fault in faults):
        return None
    if any(fault["type"] == "missing" for fault in faults):
        return PreconditionRequiredError(
            "Send If-Match with the ETag of the state that you read, so that no change of someone "
            "else is lost."
        )
    return PreconditionFailedError('If-Match must be one strong ETag of this API, such as "3".')


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
