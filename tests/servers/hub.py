"""A server with the hub's protocol and plain files, with faults on demand.

Files of datasets are requested by HEAD, whose headers have commit, hash and size, and are
downloaded from another path by redirect, as from the hub's storage. Faults are set per path.
"""

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse

from tests.servers import serving

COMMIT = "0123456789abcdef0123456789abcdef01234567"
DATASET = "someone/questions"


@dataclass(slots=True, kw_only=True)
class Hub:
    """State of the server; `app` is the ASGI application.

    Attributes:
        files: Content by path in the dataset, or by name of a plain file.
        token: Token that the dataset requires.
        cuts: Number of interrupted downloads by path, before one succeeds.
        wrong: Paths whose bytes do not match their hash.
        held: Paths whose second half never arrives.
        asked: Number of requests by method and path.
        ranges: Requested ranges by path.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    token: str | None = None
    cuts: Counter[str] = field(default_factory=Counter)
    wrong: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    asked: Counter[str] = field(default_factory=Counter)
    ranges: list[tuple[str, str]] = field(default_factory=list)

    @property
    def app(self) -> FastAPI:
        app = FastAPI()
        resolve = f"/datasets/{DATASET}/resolve/{{revision}}/{{path:path}}"
        app.add_api_route(resolve, self._resolve, methods=["HEAD", "GET"])
        app.add_api_route("/plain/{path:path}", self._content, methods=["GET"])
        app.add_api_route("/loop", lambda: RedirectResponse("/loop"), methods=["GET"])
        app.add_api_route("/away", lambda: RedirectResponse("file:///etc/hosts"), methods=["GET"])
        app.add_api_route("/moved/{path:path}", self._moved, methods=["GET"])
        return app

    async def _resolve(self, request: Request, revision: str, path: str) -> Response:
        self.asked[f"{request.method} {path}"] += 1
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return _refusal(401, "GatedRepo", "Access to this dataset is restricted.")
        if revision != COMMIT:
            return _refusal(404, "RevisionNotFound", "Invalid rev id.")
        if path not in self.files:
            return _refusal(404, "EntryNotFound", "Entry not found.")
        content = self.files[path]
        headers = {
            "X-Repo-Commit": COMMIT,
            "X-Linked-Etag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Linked-Size": str(len(content)),
            "ETag": f'"{hashlib.sha1(content).hexdigest()}"',
        }
        # On another host, as the hub's: on the same one it is followed before headers are read.
        storage = str(request.base_url.replace(path=f"/plain/{path}", hostname="localhost"))
        return RedirectResponse(storage, status_code=302, headers=headers)

    async def _moved(self, request: Request, path: str) -> Response:
        return RedirectResponse(str(request.base_url.replace(path=f"/plain/{path}")), 302)

    async def _content(self, request: Request, path: str) -> Response:
        self.asked[f"{request.method} /plain/{path}"] += 1
        if path not in self.files:
            return Response(status_code=404)
        content, start, headers = self.files[path], 0, {"Accept-Ranges": "bytes"}
        if wanted := request.headers.get("range"):
            self.ranges.append((path, wanted))
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        if path in self.wrong:
            content = content[::-1]
        left = content[start:]
        headers["Content-Length"] = str(len(left))
        cut = self.cuts[path] > 0
        self.cuts[path] -= cut
        body = _part(left[: (len(left) + 1) // 2]) if cut or path in self.held else _part(left)
        if path in self.held and not cut:
            body = _held(body, request)
        status = 206 if wanted else 200
        return StreamingResponse(body, status, headers)


async def _part(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _held(body: AsyncIterator[bytes], request: Request) -> AsyncIterator[bytes]:
    async for chunk in body:
        yield chunk
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _refusal(status: int, code: str, message: str) -> Response:
    return JSONResponse(
        {"error": message}, status, headers={"X-Error-Code": code, "X-Error-Message": message}
    )


@contextmanager
def served_as_the_hub(hub: Hub, cache: Path) -> Iterator[str]:
    """Return the server's address, configured as the hub, with an empty cache."""
    with serving(hub.app) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", url)
        patch.setenv("HF_HOME", str(cache))
        for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
            patch.delenv(name, raising=False)
        yield url
