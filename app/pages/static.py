"""Scripts and styles, read once and named by a hash, so that browsers cache them for good."""

import gzip
import hashlib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from app.reports.rendering import STYLE

_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
_HASH_LENGTH = 12

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes = field(repr=False)
    packed: bytes = field(repr=False)
    media_type: str
    tag: str


@cache
def _served() -> dict[str, _File]:
    found = {}
    for entry in files("app.pages").joinpath("static").iterdir():
        media_type = _TYPES.get(entry.name.rpartition(".")[2])
        if media_type is None:
            continue
        content = entry.read_bytes()
        if entry.name == "pages.css":  # extends the style of the reports, which pages show
            content = STYLE.encode() + content
        tag = hashlib.sha256(content).hexdigest()[:_HASH_LENGTH]
        found[entry.name] = _File(content, gzip.compress(content, mtime=0), media_type, tag)
    return found


def address(name: str) -> str:
    """Address of a file, which changes with the file's content."""
    return f"/static/{name}?v={_served()[name].tag}"


@router.get("/static/{name}")
async def static_file(name: str, request: Request) -> Response:
    """Serve a script or a style."""
    found = _served().get(name)
    if found is None:
        raise HTTPException(404)
    packs = "gzip" in request.headers.get("accept-encoding", "")
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable",
        "X-Content-Type-Options": "nosniff",
        "Vary": "Accept-Encoding",
    }
    if packs:
        headers["Content-Encoding"] = "gzip"
    return Response(
        found.packed if packs else found.content, media_type=found.media_type, headers=headers
    )
