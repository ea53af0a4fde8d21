"""Request bodies: how large each may be, and what its JSON may hold.

A single thread decodes and validates large bodies, one at a time. The number of values is limited,
so that no step keeps the event loop waiting for long.
"""

import asyncio
import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import Request
from fastapi._compat import ModelField
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from app.errors import BusyError, InvalidInputError
from app.exchange.json_text import STRICT_JSON

#: Most bytes of a body, unless the route sets another limit.
SMALL: Final = 64 * 1024
#: Most bytes for one item, one answer, or a set of overrides by item.
MEDIUM: Final = 8 * 1024 * 1024
#: Most bytes for files, and rows of item parameters.
LARGE: Final = 16 * 1024 * 1024
#: Most values of a body. A value costs far more than a byte; a row of parameters has up to seven.
MAX_VALUES: Final = 700_000
#: Most bytes of the bodies above `SMALL` in work at a time: of all keys, and of one key.
_MAX_HELD, _MAX_HELD_OF_KEY = 64 * 1024 * 1024, 48 * 1024 * 1024
#: A body may take this many seconds, plus its size over the slowest speed (bytes a second).
PATIENCE_S = 30.0
_SLOWEST = 64 * 1024
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)

_one_thread = ThreadPoolExecutor(1, thread_name_prefix="bodies")
#: Bytes of the large bodies in work in this process, by key.
_held: Counter[str] = Counter()

LIMIT_KEY: Final = "x-max-body-bytes"


def up_to(size: int) -> dict[str, Any]:
    """`openapi_extra` of a route that takes bodies of up to `size` bytes."""
    return {LIMIT_KEY: size}


def require_media_type(request: Request, *readable: str) -> None:
    """Refuse a body of another type than these.

    Raises:
        HTTPException: 415.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in readable:
        raise HTTPException(
            415, f"Content-Type {media_type or '(none)'} cannot be read; send {readable[0]}."
        )


@dataclass(eq=False)
class Body:
    """The body of one request, within its limit; call `release` once the work on it is done."""

    request: Request
    limit: int
    key_id: str
    _held: int = field(init=False, default=0)

    async def read(self) -> bytes:
        """Read the whole body.

        Raises:
            HTTPException: 413, the body exceeds its limit; 408, it arrives too slowly.
            BusyError: Too many large bodies are in work.
        """
        announced = self.request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > self.limit:
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(PATIENCE_S + self.limit / _SLOWEST):
                async for part in self.request.stream():
                    size += len(part)
                    if size > self.limit:
                        raise self._too_large()
                    if size > SMALL:
                        self._hold(size - self._held)
                    parts.append(part)
        except TimeoutError as exc:
            raise HTTPException(
                408, "The request body came too slowly.", headers={"Connection": "close"}
            ) from exc
        return b"".join(parts)

    def _hold(self, more: int) -> None:
        if _held.total() + more > _MAX_HELD or _held[self.key_id] + more > _MAX_HELD_OF_KEY:
            raise BusyError(
                "The server is reading as many large request bodies as it can: try again in a "
                "moment."
            )
        _held[self.key_id] += more
        self._held += more

    def release(self) -> None:
        """Free the room that the body took."""
        _held[self.key_id] -= self._held
        if not _held[self.key_id]:
            del _held[self.key_id]
        self._held = 0

    def _too_large(self) -> HTTPException:
        # No close of the connection: the server skips what still comes, and the client reads on.
        return HTTPException(
            413, f"The request body is larger than {self.limit} bytes, the limit here."
        )


async def parsed(body: bytes, shape: ModelField) -> Any:
    """Parse the JSON in `body`; a large body is validated, too.

    Raises:
        HTTPException: 400, the bytes are not JSON; 413, it holds too many values.
        RequestValidationError: A large body does not match its shape.
        InvalidInputError: A text cannot be stored.
    """
    if len(body) <= SMALL:
        return parse_json(body)
    return await asyncio.get_running_loop().run_in_executor(_one_thread, _validated, body, shape)


def _validated(body: bytes, shape: ModelField) -> Any:
    value, faults = shape.validate(parse_json(body), {}, loc=("body",))
    if faults:
        raise RequestValidationError(faults)
    return value


def parse_json(body: bytes) -> Any:
    """Parse JSON without NaN, infinities and names given twice; check that texts can be stored.

    Raises:
        HTTPException: 400, the bytes are not JSON; 413, they hold too many values.
        InvalidInputError: A text cannot be stored.
    """
    try:
        # json.loads(bytes) would accept halves of surrogate pairs as UTF-8, which cannot be stored.
        text = body.decode(json.detect_encoding(body))
        if len(body) > SMALL:
            bare = _STRING.sub("", text)
            if bare.count(",") + bare.count("[") + bare.count("{") > MAX_VALUES:
                raise HTTPException(413, f"The request body holds more than {MAX_VALUES} values.")
        value = STRICT_JSON.decode(text)
    except RecursionError as exc:
        raise HTTPException(400, "The body is nested too deeply.") from exc
    except ValueError as exc:  # JSONDecodeError, UnicodeDecodeError, a number of 5000 digits
        # For numbers of thousands of digits Python's message adds a hint on one of its settings.
        what = str(exc).partition("; use sys.")[0]
        raise HTTPException(400, f"The body is not JSON: {what}.") from exc
    # Decoded text can only hold such characters as escapes; NUL bytes here come from UTF-16.
    if b"\\u" in body or b"\x00" in body:
        _validate_texts(value)
    return value


def _validate_texts(value: Any, pointer: str = "") -> None:
    """Check every text within a JSON value; `pointer` is the value's place in the body."""
    match value:
        case str():
            if "\x00" in value or not _is_encodable(value):
                raise unstorable(pointer)
        case list():
            for position, entry in enumerate(value):
                _validate_texts(entry, f"{pointer}/{position}")
        case dict():
            for key, entry in value.items():
                _validate_texts(key, pointer)
                _validate_texts(entry, f"{pointer}/{key}")
        case _:
            pass


def unstorable(pointer: str) -> InvalidInputError:
    """Make the error for a text that Postgres or UTF-8 cannot hold."""
    return InvalidInputError.at(
        pointer, "Text must not contain the NUL character or half of a surrogate pair."
    )


def _is_encodable(value: str) -> bool:
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False
