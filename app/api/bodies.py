"""Request bodies: how large each may be, and how a large one is read without holding others up.

A body beyond `SMALL` is parsed and validated in a thread, in slices: one call of a C library on
megabytes would stop every other request for its whole time. Faults are looked for slice by slice,
and those of the first slice that has any are reported.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, ClassVar, NoReturn, Union, get_args, get_origin

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from app.api.presence import while_connected
from app.api.storable import require_storable
from app.errors import BusyError
from app.json_in_slices import InSlices, TooManyValuesError
from app.pacing import Pace

#: Bytes of a body where the route says nothing else.
SMALL = 64 * 1024
#: One item, one answer, a set of overrides by item.
MEDIUM = 8 * 1024 * 1024
#: Files, and rows of item parameters.
LARGE = 16 * 1024 * 1024
#: Of all bodies beyond `SMALL` that are being worked on at a time.
_MAX_HELD = 64 * 1024 * 1024
#: Of these the bodies of one key: it cannot keep all others from sending theirs.
_MAX_HELD_OF_KEY = 48 * 1024 * 1024
#: Seconds that a body may take beside those of the slowest connection, bytes a second.
PATIENCE_S = 30.0
_SLOWEST = 64 * 1024
#: Entries validated in one go, which takes about a millisecond.
_SLICE = 200

_one_thread = ThreadPoolExecutor(1, thread_name_prefix="bodies")

LIMIT_KEY = "x-max-body-bytes"


def up_to(size: int) -> dict[str, Any]:
    """`openapi_extra` of a route that takes bodies of so many bytes."""
    return {LIMIT_KEY: size}


class _Held:
    """Bytes of the large bodies in this process, and by key."""

    total = 0
    by_key: ClassVar[Counter[str]] = Counter()


class Body:
    """The body of one request, kept within its limit; `release` once it has been worked on.

    Args:
        request: What comes in.
        limit: Bytes that it may have.
        key_id: Who sends it.
    """

    def __init__(self, request: Request, limit: int, key_id: str) -> None:
        self._request = request
        self._key_id = key_id
        self._limit = limit
        self._held = 0

    async def read(self) -> bytes:
        """All of it.

        Raises:
            HTTPException: 413, it is larger than its limit; 408, it comes too slowly.
            BusyError: Too many large bodies are being worked on.
        """
        announced = self._request.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > self._limit:
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        latest = asyncio.get_running_loop().time() + PATIENCE_S
        try:
            async with asyncio.timeout_at(latest) as ends:
                async for part in self._request.stream():
                    size += len(part)
                    if size > self._limit:
                        raise self._too_large()
                    self._hold(size)
                    parts.append(part)
                    ends.reschedule(latest + size / _SLOWEST)
        except TimeoutError as exc:
            raise HTTPException(
                408, "The request body comes too slowly.", headers={"Connection": "close"}
            ) from exc
        if size <= SMALL:
            return b"".join(parts)
        return await asyncio.to_thread(b"".join, parts)  # 16 MB are 10 ms

    def _hold(self, size: int) -> None:
        more = size - self._held
        if size > SMALL:
            own = _Held.by_key[self._key_id] + more
            if _Held.total + more > _MAX_HELD or own > _MAX_HELD_OF_KEY:
                raise BusyError("The server reads as many large bodies as it can at present.")
            _Held.total += more
            _Held.by_key[self._key_id] = own
            self._held += more

    def release(self) -> None:
        """Make room for others."""
        if self._held:
            _Held.total -= self._held
            _Held.by_key[self._key_id] -= self._held
            if not _Held.by_key[self._key_id]:
                del _Held.by_key[self._key_id]
        self._held = 0

    def _too_large(self) -> HTTPException:
        # The rest of the body is not read, so the connection cannot be used again.
        return HTTPException(
            413,
            f"The request body is larger than {self._limit} bytes, the limit here.",
            headers={"Connection": "close"},
        )


async def parsed(request: Request, body: bytes, model: object) -> Any:
    """The JSON in `body`; large parts of a large one are validated for `model` already.

    Args:
        request: Whose client waits for it.
        body: All of it.
        model: What it is to be.

    Raises:
        HTTPException: 400, the bytes are not JSON; 413, it holds too many values.
        RequestValidationError: A part does not fit the model.
        InvalidInputError: A text cannot be stored.
        ClientDisconnect: The client hung up while a large one was read.
    """
    if len(body) <= SMALL:
        value = parse_json(body)
        if _may_be_unstorable(body):
            require_storable(value)
        return value
    return await while_connected(request, _parsed_in_thread(body, model))


async def _parsed_in_thread(body: bytes, model: object) -> Any:
    pace = Pace()
    try:
        # One after the other: threads that reckon in Python take turns, and each turn of another
        # one is time that the event loop waits. Of the larger bodies this also holds one text at a
        # time.
        return await asyncio.get_running_loop().run_in_executor(
            _one_thread, _parsed_in_slices, body, model, pace
        )
    finally:
        pace.stop()


def parse_json(
    body: bytes, decoder: type[json.JSONDecoder] = json.JSONDecoder, **options: Any
) -> Any:
    """JSON without NaN and infinities.

    Raises:
        HTTPException: 400, the bytes are not JSON; 413, they hold more values than `decoder` takes.
    """
    try:
        # The decoder itself takes halves of surrogate pairs for UTF-8, which nobody can store.
        text = body.decode(json.detect_encoding(body))
        return json.loads(text, cls=decoder, parse_constant=_refuse_constant, **options)
    except TooManyValuesError as exc:
        raise HTTPException(413, f"The request body holds {exc}.") from exc
    except RecursionError as exc:
        raise HTTPException(400, "The body is nested too deeply.") from exc
    except ValueError as exc:  # JSONDecodeError, UnicodeDecodeError, a number of 5000 digits
        # Of numbers of thousands of digits Python goes on about a setting of its own.
        what = str(exc).partition(";")[0]
        raise HTTPException(400, f"The body is not JSON: {what}.") from exc


def _parsed_in_slices(body: bytes, model: object, pace: Pace) -> Any:
    value = _fitted(parse_json(body, InSlices, pace=pace), model, pace)
    if _may_be_unstorable(body):
        require_storable(value, pace=pace)
    return value


def _fitted(value: Any, model: object, pace: Pace) -> Any:
    """What was parsed, with its long lists and objects as the model has them."""
    if not (isinstance(value, dict) and isinstance(model, type) and issubclass(model, BaseModel)):
        return value
    for name, given in value.items():
        if isinstance(given, list | dict) and len(given) > _SLICE and name in model.model_fields:
            adapter = _container(model, name, type(given))
            if adapter is not None:
                value[name] = _validated(name, given, adapter, pace)
    return value


def _may_be_unstorable(body: bytes) -> bool:
    """In what could be decoded they are written by escapes alone; NUL bytes are those of UTF-16."""
    return b"\\u" in body or b"\x00" in body


@cache
def _container(model: type[BaseModel], name: str, kind: type) -> TypeAdapter[Any] | None:
    """What checks a part of the list or dict that a field takes; None where it takes none."""
    strict = ConfigDict(strict=True, allow_inf_nan=False, hide_input_in_errors=True)
    for option in _options(model.model_fields[name].annotation):
        if get_origin(option) is kind:
            return TypeAdapter(option, config=strict)
    return None


def _options(annotation: Any) -> Iterator[Any]:
    """The types that an annotation allows, without what is said about them."""
    if get_origin(annotation) is Union or type(annotation).__name__ == "UnionType":
        for option in get_args(annotation):
            yield from _options(option)
    elif hasattr(annotation, "__metadata__"):
        yield from _options(annotation.__origin__)
    else:
        yield annotation


def _validated(name: str, given: Any, adapter: TypeAdapter[Any], pace: Pace) -> Any:
    made: Any = type(given)()
    entries = list(given.items()) if isinstance(given, dict) else given
    for start in range(0, len(entries), _SLICE):
        pace.keep()
        part = type(given)(entries[start : start + _SLICE])
        try:
            valid = adapter.validate_python(part)
        except ValidationError as error:
            raise RequestValidationError(_placed(error, name, start)) from error
        if isinstance(given, dict):
            made.update(valid)
        else:
            made.extend(valid)
    return made


def _placed(error: ValidationError, name: str, start: int) -> list[Mapping[str, Any]]:
    """The faults of a slice, by their places in the body."""
    return [
        {
            **fault,
            "loc": (
                *("body", name),
                *(first + start if isinstance(first, int) else first for first in fault["loc"][:1]),
                *fault["loc"][1:],
            ),
        }
        for fault in error.errors(include_url=False, include_input=False)
    ]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
