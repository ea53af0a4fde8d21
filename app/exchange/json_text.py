"""Read large JSON piece by piece: lines of a file, members of an object, entries of a list."""

import codecs
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import BinaryIO, NoReturn, cast

from app.errors import FileFormatError
from app.exchange.results.recorded import LeftOut, SourceFile, open_text
from app.items import JsonValue

MAX_LINE_BYTES = 16 * 2**20
#: Largest file that is one JSON value, which must be in memory as a whole.
MAX_DOCUMENT_BYTES = 256 * 2**20
#: Largest companion file, which only names the model of other files.
_MAX_COMPANION_BYTES = 32 * 2**20
#: Most levels of a row; deeper rows cannot be serialised again for their hashes.
_MAX_LEVELS = 100
_CHUNK_BYTES = 1 << 20
#: Most bytes behind the list of a page, which hold ids and whether there are more pages.
_REST_BYTES = 1 << 20

_SPACE = re.compile(r"[ \t\n\r]*")
_COMMA = re.compile(r"[ \t\n\r]*,[ \t\n\r]*")
#: Beginning of a file that is one list, or a page of a list as APIs return it.
_LIST = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*(?:\{\s*(?:"(?:object|first_id|last_id|has_more)"\s*:[^\[{]*)?'
    rb'"data"\s*:\s*)?\['
)
#: Bytes that are no UTF-8, as `surrogateescape` decodes them.
_ESCAPED = re.compile("[\udc80-\udcff]")
#: What makes an object of its members.
ObjectOf = Callable[[list[tuple[str, JsonValue]]], dict[str, JsonValue]]
_DECODER = json.JSONDecoder()  # accepts the constant NaN, which these tools write


def no_repeats(members: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    """An object of its members, as `object_pairs_hook`.

    Raises:
        ValueError: Two members have one name: the last would win in silence.
    """
    made = dict(members)
    if len(made) < len(members):
        names = Counter(name for name, _ in members)
        raise ValueError(f"the name {names.most_common(1)[0][0][:60]!r} stands twice in an object")
    return made


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


#: Decodes JSON as the standard has it: without NaN and infinities, and without names given twice.
STRICT_JSON = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=no_repeats)


def json_lines(
    file: SourceFile, object_of: ObjectOf = no_repeats
) -> Iterator[tuple[int, dict[str, JsonValue] | LeftOut]]:
    """Number (from 1) and object of each non-blank line, or the reason why it is no object.

    A file that is a list of objects, or an object with such a list as `data`, is read likewise.

    Raises:
        FileFormatError: A line or an entry above `MAX_LINE_BYTES`, or a broken list.
    """
    decoder = json.JSONDecoder(object_pairs_hook=object_of)
    with open_text(file) as stream:
        head = stream.peek(1)  # type: ignore[attr-defined]  # buffered
        if found := _LIST.match(head):
            stream.read(found.end())
            for row, value in _entries(stream, file.name, decoder):
                yield row, value if isinstance(value, LeftOut) else _row_of(value, row)
            return
        row = 0
        while line := stream.readline(MAX_LINE_BYTES + 1):
            row += 1
            if len(line) > MAX_LINE_BYTES:
                raise FileFormatError(
                    f"{file.name}:{row}: expected a line of at most {MAX_LINE_BYTES} bytes."
                )
            if not line.strip():
                continue
            try:
                # As json.loads, which with a hook would make a decoder for each line.
                value = decoder.decode(line.decode(json.detect_encoding(line), "surrogatepass"))
            except (ValueError, RecursionError) as exc:
                detail = f"expected a JSON object: {json_fault(exc)}"
                yield row, LeftOut(row, "unreadable", detail[:200])
                continue
            yield row, _row_of(value, row)


def json_fault(error: ValueError | RecursionError) -> str:
    """What is wrong with a line of JSON, whose number is told beside it."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, character {error.colno}"
    return str(error)


def _row_of(value: JsonValue, row: int) -> dict[str, JsonValue] | LeftOut:
    if not isinstance(value, dict):
        return LeftOut(row, "unreadable", "expected a JSON object")
    levels, inner = 1, [part for part in value.values() if isinstance(part, dict | list)]
    while inner and levels <= _MAX_LEVELS:
        levels += 1
        inner = [
            part
            for each in inner
            for part in (each.values() if isinstance(each, dict) else each)
            if isinstance(part, dict | list)
        ]
    if inner:
        return LeftOut(row, "unreadable", f"expected at most {_MAX_LEVELS} levels, got more")
    return value


def _entries(
    stream: BinaryIO, name: str, decoder: json.JSONDecoder
) -> Iterator[tuple[int, JsonValue | LeftOut]]:
    """The entries of a list by their numbers, after its opening bracket was read."""
    text, at, row = "", 0, 1
    utf8 = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    while True:
        space = cast(re.Match[str], _SPACE.match(text, at))
        if text.startswith("]", space.end()):
            rest = text[space.end() + 1 :] + utf8.decode(stream.read(_REST_BYTES))
            _require_end(stream, rest, name)
            return
        before = space if row == 1 else _COMMA.match(text, at)
        begin = before.end() if before else len(text)
        try:
            value, at = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError) as exc:
            kept = text[at:]
            chunk = stream.read(max(_CHUNK_BYTES, len(kept)))  # doubling keeps the time linear
            if not chunk or len(kept) > MAX_LINE_BYTES or isinstance(exc, RecursionError):
                raise FileFormatError(
                    f"{name}:{row}: expected an entry of a JSON list, of at most {MAX_LINE_BYTES} "
                    f"bytes, or the end of the list: {exc}."
                ) from exc
            text, at = kept + utf8.decode(chunk), 0
            continue
        is_utf8 = _ESCAPED.search(text, begin, at) is None
        yield row, value if is_utf8 else LeftOut(row, "unreadable", "expected UTF-8 text")
        row += 1


def _require_end(stream: BinaryIO, rest: str, name: str) -> None:
    """Refuse other content than the end of a page behind its list, as it would be lost."""
    tail = rest.strip()
    try:
        is_end = not tail or isinstance(json.loads(f'{{"data":[]{tail}'), dict)
    except (ValueError, RecursionError):
        is_end = False
    if not is_end or stream.read(1):
        raise FileFormatError(
            f"{name}: expected one JSON list, or one page that holds it, a file: more follows its "
            "end. Put each page into a file of its own."
        )


def small_json(file: SourceFile) -> dict[str, JsonValue] | None:
    """The object in a small file; None if the file is too large.

    Raises:
        FileFormatError: It holds no object, because it was cut off, for instance.
    """
    with open_text(file) as stream:
        content = stream.read(_MAX_COMPANION_BYTES + 1)
    if len(content) > _MAX_COMPANION_BYTES:
        return None
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise FileFormatError(
            f"{file.name}: expected a JSON object, which names the model and the settings of "
            "the files beside it. Give the whole file, or leave it out."
        )
    return value


class JsonText:
    """A JSON object that is decoded piece by piece.

    Args:
        content: UTF-8, with or without a byte order mark.

    Raises:
        FileFormatError: On creation or while reading: not UTF-8, or not JSON.
    """

    def __init__(self, content: bytes, name: str) -> None:
        if len(content) > MAX_DOCUMENT_BYTES:
            raise FileFormatError(
                f"{name}: expected JSON of at most {MAX_DOCUMENT_BYTES} bytes, got more."
            )
        try:
            self._text = content.decode("utf-8-sig")
        except UnicodeDecodeError as exc:
            raise FileFormatError(f"{name}: expected UTF-8 text: {exc.reason}.") from exc
        self._name = name
        self._at = 0

    def members(self, streamed: str) -> Iterator[tuple[str, JsonValue]]:
        """Key and value of each member; the list `streamed` gives one pair per entry."""
        for _ in self._parts("{", "}"):
            key = self._value()
            if not isinstance(key, str):
                self._fail("expected a name")
            self._expect(":")
            if key == streamed and self._peek() == "[":
                for _ in self._parts("[", "]"):
                    yield key, self._value()
            else:
                yield key, self._value()

    def _parts(self, begin: str, end: str) -> Iterator[None]:
        """Stop at each part of an object or a list, for the caller to read it."""
        self._expect(begin)
        if self._take(end):
            return
        while True:
            yield
            if self._take(end):
                return
            self._expect(",")

    def _value(self) -> JsonValue:
        self._skip_space()
        try:
            value, self._at = _DECODER.raw_decode(self._text, self._at)
        except (ValueError, RecursionError) as exc:
            raise FileFormatError(f"{self._name}: expected JSON: {exc}.") from exc
        return cast(JsonValue, value)

    def _skip_space(self) -> None:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _peek(self) -> str:
        self._skip_space()
        return self._text[self._at : self._at + 1]

    def _take(self, mark: str) -> bool:
        found = self._peek() == mark
        self._at += found
        return found

    def _expect(self, mark: str) -> None:
        if not self._take(mark):
            self._fail(f"expected {mark}")

    def _fail(self, expected: str) -> NoReturn:
        got = self._text[self._at : self._at + 20]
        raise FileFormatError(f"{self._name}: {expected} at character {self._at}, got {got!r}.")
