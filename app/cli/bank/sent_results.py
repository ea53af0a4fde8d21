"""Send recorded results to a server in parts, each as large as one request may be."""

import gzip
import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from app.cli.terminal.console import JsonObject, err
from app.errors import FileFormatError
from app.exchange.files import PACKED
from app.exchange.json_text import json_lines
from app.exchange.response_files import COMPANIONS, ResponseFormat, sources_of
from app.exchange.results.recorded import LeftOut, Source, SourceFile, open_text
from sextant_client import AsyncSextant

#: Packed bytes of a part. Base64 adds a third, and a request may have 16 MB.
_PART = 11 * 2**20
#: Bytes of a file of lines that are packed as one piece; packing more than halves text.
_PIECE = 24 * 2**20

Sent = dict[str, str]


async def send(client: AsyncSextant, files: Sequence[SourceFile], body: JsonObject) -> JsonObject:
    """Have the server make a bank of the files; return the summed reply for all parts.

    The server keeps what it read of each part and adds the next; the last part is calibrated.

    Raises:
        FileFormatError: No file holds answers, or a file exceeds a request and cannot be cut.
        sextant_client.SextantError: The server refuses a part.
    """
    replies: list[JsonObject] = []
    settled = dict(body)
    parts = _parts(files)
    part: list[Sent] | None = next(parts)
    told: JsonObject = {}
    while part is not None:
        following = next(parts, None)
        wanted = settled if following is None else {**settled, "publish": False}
        told = await client.request(
            "POST", "/v1/banks:from-results", json={**wanted, "files": part}
        )
        replies.append(told)
        if following is not None:
            err.print(f"sent: part {len(replies)}, {len(part)} files")
        if "default_scorer" not in settled and told["asked"].get("mode") != "loglikelihood":
            # One scorer scores all answers: the one found for the first part holds for the others.
            marking = told["marking"]
            settled["default_scorer"] = {"name": marking["scorer"], "params": marking["params"]}
        part = following
    return told if len(replies) == 1 else {**told, **_whole(replies)}


def _parts(files: Sequence[SourceFile]) -> Iterator[list[Sent]]:
    """Split the files that hold answers, with those that name their models, into fitting parts."""
    taken, _ = sources_of(files)
    part: list[Sent] = []
    size = 0
    named: set[str] = set()
    for file_format, source in taken:
        companions = chain.from_iterable(map(source.siblings, COMPANIONS))
        beside = [_sent(file.name, _content(file)) for file in companions]
        for piece in _pieces(source.file, file_format):
            new = [each for each in beside if each["name"] not in named]
            more = sum(len(each["content_base64"]) for each in (piece, *new))
            if part and (size + more > _PART * 4 // 3 or piece["name"] in named):
                yield part
                part, size, named = [], 0, set()
                new, more = beside, sum(len(each["content_base64"]) for each in (piece, *beside))
            part += [piece, *new]
            size += more
            named.update(each["name"] for each in (piece, *new))
    yield part


def _pieces(file: SourceFile, file_format: ResponseFormat) -> Iterator[Sent]:
    """Yield the file whole; or cut it between documents, or samples of a log, into fitting pieces.

    Rows of a document by several filters stay together: by each piece the server chooses one.
    """
    if file_format is ResponseFormat.LM_EVAL and file.path.suffix != ".parquet":
        lines = [*_lines(file)]
        if sum(map(len, lines)) <= _PIECE:
            yield _sent(file.name, b"".join(lines))
            return
        documents: dict[str, list[bytes]] = {}
        for line in lines:
            documents.setdefault(_document(line), []).append(line.rstrip(b"\n") + b"\n")
        piece = bytearray()
        for rows in documents.values():
            piece += b"".join(rows)
            if len(piece) >= _PIECE:
                yield _sent(file.name, bytes(piece))
                piece.clear()
        if piece:
            yield _sent(file.name, bytes(piece))
        return
    whole = _packed(_content(file))
    if len(whole) > _PART and file_format is ResponseFormat.INSPECT:
        from app.exchange.results.inspect_logs import inspect_pieces

        for log in inspect_pieces(Source(file), _PIECE):
            yield _whole_piece(file, log)
        return
    yield _whole_piece(file, whole)


def _lines(file: SourceFile) -> Iterator[bytes]:
    """Lines of the file; a file that is a single list gives one line a row."""
    with open_text(file) as stream:
        first = stream.read(1)
        if first != b"[":
            yield first + stream.readline()
            yield from stream
            return
    for _, row in json_lines(file):
        yield json.dumps(None if isinstance(row, LeftOut) else row).encode() + b"\n"


def _document(line: bytes) -> str:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return ""  # the server says what is wrong with it
    return str(row.get("doc_id")) if isinstance(row, dict) else ""


def _whole_piece(file: SourceFile, content: bytes) -> Sent:
    packed = _packed(content)
    if len(packed) > _PART:
        raise FileFormatError(
            f"{file.name}: expected at most {_PART:,} bytes when packed, in all or in one "
            f"answer, as a request to a server holds no more; got {len(packed):,}. Run the same "
            "command without --server, with the server's DATABASE_URL."
        )
    return _sent(file.name, packed)


def _content(file: SourceFile) -> bytes:
    with file.open() as stream:
        return stream.read()


def _packed(content: bytes) -> bytes:
    return content if content.startswith(PACKED) else gzip.compress(content, mtime=0)


def _sent(name: str, content: bytes) -> Sent:
    return {"name": name, "content_base64": b64encode(_packed(content)).decode()}


def _whole(replies: Sequence[JsonObject]) -> JsonObject:
    """What was read of all parts."""

    def all_of(what: str) -> list[Any]:
        return [one for reply in replies for one in reply[what]]

    left: dict[str, JsonObject] = {}
    for each in all_of("left_out"):
        known = left.get(each["reason"], each)
        keys = list(dict.fromkeys([*known["keys"], *each["keys"]]))
        count = max(known["count"], each["count"], len(keys))
        left[each["reason"]] = {**known, "keys": keys, "count": count}
    skipped: dict[str, JsonObject] = {}
    for each in all_of("skipped"):
        before = skipped[each["reason"]]["count"] if each["reason"] in skipped else 0
        skipped[each["reason"]] = {**each, "count": before + each["count"]}
    summed = ("questions", "n_files", "incomplete_models")
    # Read by name, so that a missing one is the server's fault.
    of_last = {name: replies[-1][name] for name in ("models", "calibration", "stopped")}
    return {
        **of_last,
        **{name: sum(reply[name] for reply in replies) for name in summed},
        "known_questions": replies[0]["known_questions"],
        "files": all_of("files"),
        "marking": replies[0]["marking"],
        "choices": [*{one["detail"]: one for one in all_of("choices")}.values()],
        "left_out": [*left.values()],
        "skipped": [*skipped.values()],
    }
