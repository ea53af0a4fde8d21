"""Logs of inspect: `.json`, and `.eval`, a ZIP archive with one JSON file per sample."""

import io
import json
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import BinaryIO, cast

import pyarrow as pa

from app.errors import FileFormatError
from app.exchange.files import ZIP, check_ratio, shortened
from app.exchange.json_text import MAX_DOCUMENT_BYTES, JsonText
from app.exchange.results.inspect_items import (
    ATTACHED,
    asked_by,
    method_of,
    scorers_of,
    sent,
    used,
    with_plan,
)
from app.exchange.results.recorded import (
    FIRST_TRIAL,
    Choices,
    LeftOut,
    Method,
    Recorded,
    Seen,
    Source,
    answered,
    choose,
    key_of,
    list_at,
    object_at,
    open_text,
    required_name,
    score_or_reason,
    text_of,
    value_at,
)
from app.items import JsonValue, Outcome, ScorerSpec

MAX_ENTRY_BYTES = 64 * 2**20
MAX_UNPACKED_BYTES = 2**30
MAX_ENTRIES = 200_000

_ZSTD = 93
_LOCAL_HEADER_BYTES = 30
_NO_ANSWER = "N"
_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, _NO_ANSWER: 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
#: Status of a run that was completed; every other status is a run that was not.
_FINISHED = "success"
_CUT_OFF = frozenset({"max_tokens", "model_length"})


def read_inspect(
    source: Source, choices: Choices, saw: Callable[[Seen], None]
) -> Iterator[Recorded | LeftOut]:
    """Answers of a log; samples are decoded one at a time, and passed to `saw`.

    Raises:
        FileFormatError: Not an inspect log, a broken or too large entry, or several scorers of
            which none is chosen.
    """
    log: _Log | None = None
    status: JsonValue = None
    name, row = source.name, 0
    for key, value in log_members(source):
        if key == "status":
            status = value
        elif key == "eval":
            if not isinstance(value, dict):
                raise FileFormatError(f"{name}: expected an inspect log, its `eval` is no object.")
            model = choices.examinee or text_of(value, "model")
            log = _Log(
                examinee=required_name(model, "model", name),
                task=required_name(text_of(value, "task"), "task", name),
                choices=choices,
                source=source,
                header=value,
                saw=saw,
                status=status if isinstance(status, str) else _FINISHED,
            )
        elif key == "plan" and log is not None:
            log = replace(log, header=with_plan(log.header, value))
        elif key == "samples" and value is not None:
            if log is None:
                raise FileFormatError(f"{name}: expected `eval` before `samples`.")
            row += 1
            if isinstance(value, dict):
                yield from log.answers(value, row)
            else:
                yield LeftOut(row, "unreadable", "expected a sample")
    if log is None:
        raise FileFormatError(f"{name}: expected an inspect log, found no `eval`.")


def log_members(source: Source) -> Iterator[tuple[str, JsonValue]]:
    """Names and values of a log; last, one pair named `samples` for each sample.

    An archive of a crashed run has no `header.json`; its journal is read instead.

    Raises:
        FileFormatError: Not an inspect log, or a broken or too large entry.
    """
    with source.file.open() as stream:
        is_archive = stream.read(len(ZIP)) == ZIP
        if is_archive:
            yield from _members_of_archive(_Archive(stream, source.name), source.name)
    if not is_archive:
        with open_text(source.file) as text:
            document = JsonText(text.read(MAX_DOCUMENT_BYTES + 1), source.name)
        yield from document.members(streamed="samples")


def _members_of_archive(archive: "_Archive", name: str) -> Iterator[tuple[str, JsonValue]]:
    start = next((n for n in ("header.json", "_journal/start.json") if n in archive.names), "")
    if not start:
        raise FileFormatError(
            f"{name}: expected header.json or _journal/start.json, found neither."
        )
    header = archive.json(start)
    known = header if isinstance(header, dict) else {"eval": header}
    yield from ({"status": "started"} | known).items()
    for sample in _samples(archive):
        yield "samples", sample


def _samples(archive: "_Archive") -> Iterator[JsonValue]:
    whole = [n for n in archive.names if n.startswith("samples/") and n.endswith(".json")]
    if whole:
        yield from map(archive.json, whole)
        return
    # A crashed run has only the summaries that were written before the crash.
    for name in archive.names:
        if name == "summaries.json" or name.startswith("_journal/summaries/"):
            summaries = archive.json(name)
            yield from summaries if isinstance(summaries, list) else ()


@dataclass(frozen=True, kw_only=True)
class _Log:
    """Settings that all samples of a log share."""

    examinee: str
    task: str
    choices: Choices
    source: Source
    header: Mapping[str, JsonValue]
    saw: Callable[[Seen], None]
    status: str

    @cached_property
    def method(self) -> Method:
        return method_of(self.header)

    @cached_property
    def declared(self) -> set[str]:
        """Names of the log's scorers."""
        names = (text_of(scorer, "name") or "" for scorer in list_at(self.header, "scorers"))
        return {name.rpartition("/")[2] for name in names}

    @cached_property
    def scorers(self) -> Mapping[str, ScorerSpec]:
        return scorers_of(self.header)

    def answers(self, sample: Mapping[str, JsonValue], row: int) -> Iterator[Recorded | LeftOut]:
        if not self.choices.takes(self.task):
            return
        if "id" not in sample:
            yield LeftOut(row, "unreadable", "expected a sample with an id")
            return
        if sample.get("invalidation"):
            yield LeftOut(row, "invalidated", "somebody declared the sample invalid")
            return
        item = key_of(self.task, sample["id"])
        epoch = sample.get("epoch", FIRST_TRIAL)
        if not isinstance(epoch, int):
            yield LeftOut(row, "unreadable", f"expected a whole epoch, got {epoch!r:.80}")
            return
        outcome, values = _failure(sample), _values(sample)
        scorer = self._scorer(sample, values)
        mark = self._unscored(values, row) if scorer is None else self._score(values[scorer], row)
        if scorer is not None:
            self.saw(
                Seen(
                    tool="inspect",
                    source=self.source,
                    task=self.task,
                    item=item,
                    examinee=self.examinee,
                    metric=scorer,
                    offered=tuple(values),
                    score=mark if outcome is None and isinstance(mark, float) else None,
                    asked=partial(asked_by, sample, self.header),
                    sent=partial(sent, sample),
                    number=sample["id"],
                    written=text_of(sample, "output", "completion"),
                    used=used(sample),
                    filter=text_of(sample, "filter"),
                    scorer=self.scorers.get(scorer.partition(".")[0]),
                    method=self.method,
                )
            )
        is_silent = scorer is not None and values[scorer] == _NO_ANSWER
        if outcome is None and is_silent and self.choices.refused_no_answer:
            outcome = Outcome.REFUSED
        yield answered(self.examinee, item, epoch, mark if outcome is None else outcome, row)

    def _scorer(
        self, sample: Mapping[str, JsonValue], values: Mapping[str, JsonValue]
    ) -> str | None:
        """The scorer whose value counts; None if it gave the sample no score."""
        wanted = self.choices.scorers
        if not values or (
            not values.keys() & set(wanted)
            and _bare(wanted) & self.declared - _bare(values)  # it returned no score
        ):
            return None
        place = f"{self.source.name}: sample {sample['id']!r}"
        usual = () if self.choices.take_first else None
        return choose("scorer", values, wanted, place, usual)

    def _unscored(self, values: Collection[str], row: int) -> LeftOut:
        if values:
            return LeftOut(row, "not_scored", "the chosen scorer gave the sample no score")
        ended = "" if self.status == _FINISHED else f"; the run is not finished ({self.status})"
        return LeftOut(row, "not_scored", f"the sample has no scores{ended}")

    def _score(self, value: JsonValue, row: int) -> float | LeftOut:
        if isinstance(value, str):
            text = value.strip()
            known = _LETTERS.get(text, _WORDS.get(text.lower()))
            if known is not None:
                return known
            try:
                value = float(text)
            except ValueError:
                return LeftOut(
                    row, "not_a_number", f"expected C, I, P, N or a number, got {text!r:.80}"
                )
        return score_or_reason(value, row, self.choices)


def _failure(sample: Mapping[str, JsonValue]) -> Outcome | None:
    """Outcome of a sample without an answer that can be scored; None with such an answer."""
    if sample.get("error"):
        return Outcome.ERROR
    options = list_at(sample, "output", "choices")
    stopped = value_at(options[0], "stop_reason") if options else None
    if stopped == "content_filter":
        return Outcome.REFUSED
    if sample.get("limit") or str(stopped) in _CUT_OFF:
        return Outcome.TRUNCATED
    return None


def _bare(names: Iterable[str]) -> set[str]:
    """Names of scorers, without the keys of their values."""
    return {name.partition(".")[0] for name in names}


def _values(sample: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Scorer, or `scorer.key` for scorers with several values, to the value."""
    found: dict[str, JsonValue] = {}
    for scorer, score in object_at(sample, "scores").items():
        value = score.get("value") if isinstance(score, dict) else score
        if isinstance(value, dict):
            found |= {f"{scorer}.{key}": part for key, part in value.items()}
        elif isinstance(value, list):
            found |= {f"{scorer}.{n}": part for n, part in enumerate(value)}
        else:
            found[scorer] = value
    return found


class _Archive:
    """JSON files of a ZIP archive, including zstd-compressed files, which `zipfile` cannot read."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self._size = stream.seek(0, io.SEEK_END)
        self._unpacked = 0
        try:
            self._archive = zipfile.ZipFile(stream)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as exc:
            raise FileFormatError(
                f"{name}: expected a whole ZIP archive, got one without its end: a run that was "
                f"cut off, or a copy that is not whole ({exc})."
            ) from exc
        entries = self._archive.infolist()
        if len(entries) > MAX_ENTRIES:
            raise FileFormatError(
                f"{name}: expected at most {MAX_ENTRIES} entries, got {len(entries)}."
            )
        if sum(entry.compress_size for entry in entries) > self._size:
            raise FileFormatError(
                f"{name}: expected entries beside each other in the archive, got entries that "
                "overlap."
            )
        self._entries = {entry.filename: entry for entry in entries}
        self.names = list(self._entries)

    def json(self, name: str) -> JsonValue:
        """Decode an entry; the constant NaN is accepted.

        Raises:
            FileFormatError: The entry is too large, broken, or not JSON.
        """
        place = shortened(f"{self._name}:{name}")
        try:
            content = self._content(self._entries[name])
        except NotImplementedError as exc:
            raise FileFormatError(
                f"{place}: packed in a way that cannot be read here ({exc}); write the log again "
                "with `inspect log convert --to json`."
            ) from exc
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError) as exc:
            raise FileFormatError(f"{place}: broken entry: {exc}.") from exc
        if len(content) > MAX_ENTRY_BYTES:
            raise FileFormatError(f"{place}: expected at most {MAX_ENTRY_BYTES} bytes, got more.")
        self._unpacked += len(content)
        check_ratio(self._size, self._unpacked, self._name)
        if self._unpacked > MAX_UNPACKED_BYTES:
            raise FileFormatError(
                f"{self._name}: expected at most {MAX_UNPACKED_BYTES} bytes in all entries, got "
                "more."
            )
        try:
            return cast(JsonValue, json.loads(content))
        except (ValueError, RecursionError) as exc:
            raise FileFormatError(f"{place}: expected JSON: {exc}.") from exc

    def _content(self, entry: zipfile.ZipInfo) -> bytes:
        if entry.compress_type != _ZSTD:
            with self._archive.open(entry) as unpacked:
                return unpacked.read(MAX_ENTRY_BYTES + 1)
        # The archive's sizes are not trusted: the decompressed bytes are counted.
        packed = pa.BufferReader(self._packed(entry))
        with pa.input_stream(packed, compression="zstd") as unpacked:
            content: bytes = unpacked.read(MAX_ENTRY_BYTES + 1)
        if len(content) <= MAX_ENTRY_BYTES and zlib.crc32(content) != entry.CRC:
            raise zipfile.BadZipFile("wrong checksum")
        return content

    def _packed(self, entry: zipfile.ZipInfo) -> bytes:
        self._stream.seek(entry.header_offset)
        head = self._stream.read(_LOCAL_HEADER_BYTES)
        if len(head) < _LOCAL_HEADER_BYTES or not head.startswith(ZIP):
            raise zipfile.BadZipFile("no local header")
        names = int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        self._stream.seek(names, io.SEEK_CUR)
        return self._stream.read(min(entry.compress_size, MAX_ENTRY_BYTES))


_KEPT = (
    "id", "epoch", "input", "choices", "target", "messages", "output", "scores", "error", "limit",
    "invalidation",
)  # fmt: skip
_HEADER = ("version", "status", "eval", "plan")


def inspect_pieces(source: Source, most: int) -> Iterator[bytes]:
    """Split a log into logs as JSON, each of at most `most` bytes or of one sample.

    Raises:
        FileFormatError: Not an inspect log, or a log beyond a limit.
    """
    header: dict[str, JsonValue] = {}
    piece: list[str] = []
    size = 0
    for key, value in log_members(source):
        if key in _HEADER:
            header[key] = value
        if key != "samples" or not isinstance(value, dict):
            continue
        text = json.dumps(_without_events(value))
        if piece and size + len(text) > most:
            yield _piece(header, piece)
            piece, size = [], 0
        piece.append(text)
        size += len(text)
    if piece:
        yield _piece(header, piece)


def _piece(header: Mapping[str, JsonValue], samples: list[str]) -> bytes:
    head = json.dumps(header)
    return f'{head[:-1]}, "samples": [{", ".join(samples)}]}}'.encode()


def _without_events(sample: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    kept = {name: sample[name] for name in _KEPT if name in sample}
    attached, turns = sample.get("attachments"), sample.get("messages")
    if isinstance(attached, dict) and isinstance(turns, list):
        texts = [value_at(turn, "content") for turn in turns]
        named = {text.removeprefix(ATTACHED) for text in texts if isinstance(text, str)}
        kept["attachments"] = {key: attached[key] for key in named & attached.keys()}
    return kept
