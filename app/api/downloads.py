"""Replies that are files or pages: their names, and their OpenAPI responses."""

import re
from collections.abc import Iterable
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from app.api.errors import RouteResponses
from app.reports.rendering import CONTENT_SECURITY_POLICY

_TYPES = {"json": "application/json", "html": "text/html", "csv": "text/csv"}
#: OpenAPI `responses` of a route that answers with a report.
REPORT: RouteResponses = {
    200: {
        "description": "The report, as JSON or as an HTML page.",
        "content": {_TYPES["html"]: {"schema": {"type": "string"}}},
    }
}
ReportFormat = Annotated[
    Literal["json", "html"] | None,
    Query(
        alias="format",
        description="Format of the report. Default: what `Accept` prefers, else JSON.",
    ),
]
_READABLE = (_TYPES["json"], "application/octet-stream", "text/")


def attachment(name: str) -> str:
    """`Content-Disposition` of a file with this name, whatever characters it has (RFC 6266)."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    encoded = quote(name, safe="")
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}"


def preferred(request: Request, *kinds: str) -> str:
    """The text type that the client's `Accept` prefers; the first type if several are equal."""
    wishes: dict[str, float] = {}
    for part in request.headers.get("accept", "").split(","):
        media_type, *parameters = (word.strip().lower() for word in part.split(";"))
        weight = next((word[2:] for word in parameters if word.startswith("q=")), "1")
        wishes[media_type] = float(weight) if re.fullmatch(r"[01](\.[0-9]{0,3})?", weight) else 0.0

    def wish(kind: str) -> float:
        exact, group = _TYPES[kind], _TYPES[kind].partition("/")[0] + "/*"
        return wishes.get(exact, wishes.get(group, wishes.get("*/*", 0.0)))

    return max(kinds, key=wish)


def html_page(page: str) -> HTMLResponse:
    """Reply with a page of `app.reports`, which may load nothing, in place of JSON."""
    headers = {
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "X-Content-Type-Options": "nosniff",
        "Vary": "Accept",
    }
    return HTMLResponse(page, headers=headers)


def file_responses(media_types: Iterable[str]) -> RouteResponses:
    """OpenAPI `responses` of a route that answers with a file of one of these types.

    Client generators read JSON, text and octets; they leave out a route without any of these.
    """
    types = list(dict.fromkeys(media_types))
    if not any(one.startswith(_READABLE) for one in types):
        types.insert(0, "application/octet-stream")
    return {
        200: {
            "description": "The file.",
            "headers": {
                "Content-Disposition": {
                    "description": "`attachment` with a name for the file.",
                    "schema": {"type": "string"},
                }
            },
            "content": {
                media_type: {
                    "schema": {"type": "object"}
                    if media_type == _TYPES["json"]
                    else {"type": "string", "format": "binary"}
                }
                for media_type in types
            },
        }
    }
