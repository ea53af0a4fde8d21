"""Conditional requests (RFC 9110): lost updates are refused, unchanged answers are not sent again.

A mutable resource has its revision as entity tag, an immutable one a hash or its id.
"""

from typing import Annotated

from fastapi import Depends, Header, Request, Response

from app.errors import PreconditionFailedError, PreconditionRequiredError


def etag(revision: int | str) -> str:
    """Strong entity tag of a revision."""
    return f'"{revision}"'


async def _expected_revision(
    if_match: Annotated[
        str | None,
        Header(description='The `ETag` of the state that you read, for instance `"3"`.'),
    ] = None,
) -> int:
    if if_match is None or if_match.strip() == "*":
        raise PreconditionRequiredError(
            "Send If-Match with the ETag of the state that you read, so that no change of someone "
            "else is lost."
        )
    digits = if_match.strip().removeprefix('"').removesuffix('"')
    if if_match.strip() != f'"{digits}"' or not (digits.isascii() and digits.isdigit()):
        raise PreconditionFailedError(
            f'If-Match must be one strong ETag such as "3", got {if_match!r}.'
        )
    # No revision has ten digits, and Postgres compares integers of 32 bits.
    return int(digits) if len(digits) < 10 else 0


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
