"""Recorded answers of other tools, the items as they were asked, source files, and choices."""

import hashlib
import io
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final, Literal, NamedTuple, cast

from typing_extensions import TypedDict

from app.engine.responses import ResponseTable
from app.errors import FileFormatError, InvalidInputError
from app.exchange.files import MAX_TEXT_BYTES, shortened, unpacked
from app.items import JsonValue, Message, Outcome, ScorerSpec

FIRST_TRIAL = 1
#: Reason of a left-out row: its filter, named in the detail, was not the one taken.
OTHER_FILTER = "other_filter"
#: Reason of a left-out row: its score is above the range, so the file is on another scale.
ABOVE_RANGE = "score_above_range"
#: Reason of a left-out row: the lowest score is the best, and the range says the highest.
LOWER_IS_BETTER = "lower_is_better"
#: Share of its range by which a score may lie beyond: cosines and means of single precision do.
_ROUNDING = 1e-6


class Recorded(NamedTuple):
    """One recorded answer. It is a tuple because files hold millions of answers.

    Attributes:
        trial: Number of the answer among those of the same examinee and item, from 1.
        score: Score in [0, 1]; None unless the outcome is `SCORED`.
        row: Line or entry of the file, from 1.
    """

    examinee: str
    item: str
    trial: int
    score: float | None
    outcome: Outcome
    row: int


class LeftOut(NamedTuple):
    """A row without a usable answer, and the reason."""

    row: int
    reason: str
    detail: str = ""


class TrialTable(NamedTuple):
    """Answers of one trial as a table, which is faster than one record per answer.

    Attributes:
        row: Line of the file that holds all these answers, if it is a single line.
    """

    trial: int
    table: ResponseTable
    row: int | None = None


Part = Recorded | LeftOut | TrialTable


class Method(TypedDict, total=False):
    """How answers were obtained; unknown settings are absent."""

    mode: str
    normalise: str
    shots: int
    max_tokens: int
    temperature: float
    source: str


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A named file that can be read from its beginning more than once.

    Attributes:
        path: Path, as the name in reports; files of one folder belong together.
        asked_for: The user named the file; it was not found in a folder or beside another file.
    """

    path: PurePosixPath
    folder: str
    content: bytes | Path = field(repr=False)
    asked_for: bool = True

    @classmethod
    def of_bytes(cls, path: str, content: bytes) -> "SourceFile":
        """A file whose content is in memory."""
        named = PurePosixPath(path)
        return cls(named, named.parent.name, content)

    def open(self) -> BinaryIO:
        """Open the file at its beginning.

        Raises:
            FileFormatError: The file is on the disk and cannot be read.
        """
        if isinstance(self.content, bytes):
            return io.BytesIO(self.content)
        try:
            return self.content.open("rb")
        except OSError as exc:
            raise FileFormatError(f"{self.name}: cannot be read: {exc.strerror}.") from exc

    @property
    def name(self) -> str:
        """The path as text."""
        return str(self.path)


@dataclass(frozen=True, slots=True)
class Source:
    """A file, with the other files of its folder."""

    file: SourceFile
    folder: Sequence[SourceFile] = ()

    @property
    def name(self) -> str:
        """Name of the file in reports."""
        return self.file.name

    def siblings(self, pattern: str) -> list[SourceFile]:
        """Files of the same folder whose names match a shell pattern."""
        return [file for file in self.folder if fnmatchcase(file.path.name, pattern)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Choices of the user where files leave something open.

    Attributes:
        filters: lm-eval filters to take, one per file.
        metrics: Metrics to take; the first of these that a row has counts.
        scorers: inspect scorers to take, `scorer` or `scorer.key`; the first that a sample has.
        examinee: Name of the examinee of every file that holds one examinee.
        refused_no_answer: Count inspect's N (no answer) as refused; inspect itself scores it 0.
        score_range: Worst and best score of the files, which become 0 and 1; the best may be the
            lower one. Answers scored in words are 1 if right and 0 if wrong, whatever the range.
        unparsed_policy: How the file's scorer counted unparsed answers, `wrong` or `missing`; None
            takes the usual policy of the format. It changes no score.
        asked: How the answers were obtained, as in a bank version's knowledge; None if unknown.
        tasks: Shell patterns of the tasks to take; empty for all tasks.
        take_first: Take the usual filter, metric or scorer, else the first, if there are several
            and none is chosen. Without it, that is an error.

    Raises:
        InvalidInputError: An invalid score range.
    """

    filters: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    scorers: tuple[str, ...] = ()
    examinee: str | None = None
    refused_no_answer: bool = False
    score_range: tuple[float, float] = (0.0, 1.0)
    unparsed_policy: str | None = None
    asked: Mapping[str, JsonValue] | None = None
    tasks: tuple[str, ...] = ()
    take_first: bool = False

    def takes(self, task: str) -> bool:
        """Whether answers of a task are to be taken."""
        return not self.tasks or any(fnmatchcase(task, pattern) for pattern in self.tasks)

    def __post_init__(self) -> None:
        lo, hi = self.score_range
        if not (math.isfinite(lo) and math.isfinite(hi - lo) and lo != hi):
            raise InvalidInputError(
                "Expected a score range whose worst and best scores are finite and differ, got "
                f"{lo:g} {hi:g}."
            )


def choose(
    what: str,
    offered: Iterable[str],
    wanted: Sequence[str],
    place: str,
    usual: Sequence[str] | None = None,
) -> str:
    """The name in `offered` that counts: the only name, or the first wanted name.

    `what` (their kind) and `place` are for messages. If the user chose none of several, a name of
    `usual` counts, else the first; None makes that an error.

    Raises:
        FileFormatError: Several names and no wish, or no wanted name is offered; lists the names.
    """
    names = list(dict.fromkeys(offered))
    for name in wanted:
        if name in names:
            return name
    if names and not wanted and (len(names) == 1 or usual is not None):
        return next((name for name in usual or () if name in names), names[0])
    raise choice_error(what, names, wanted, place)


def choice_error(
    what: str, names: Sequence[str], wanted: Sequence[str], place: str
) -> FileFormatError:
    """Error of a file that needs a choice or lacks what was chosen; it lists the names."""
    # Quoted, for a filter may be called none, and half a surrogate pair cannot be sent.
    listed = shortened(", ".join(map(repr, sorted(names))) or "none")
    if wanted or not names:
        return FileFormatError(
            f"{shortened(place)}: expected the {what} {' or '.join(map(repr, wanted)) or '(any)'}, "
            f"found: {listed}."
        )
    return FileFormatError(
        f"{place}: answers come with {len(names)} {what}s, and each would count: {listed}. "
        f"Choose one {what}."
    )


def score_or_reason(value: JsonValue, row: int, choices: Choices) -> float | LeftOut:
    """Score in [0, 1] of a JSON value, or the reason why the value is no score."""
    lo, hi = choices.score_range
    if isinstance(value, bool):
        return float(value)
    if value is None:
        return LeftOut(row, "not_scored", "the score is null")
    if not isinstance(value, int | float):
        return LeftOut(row, "not_a_number", f"expected a score, got {value!r:.80}")
    if value != value:
        return LeftOut(row, "not_scored", "the score is NaN")
    slack = _ROUNDING * abs(hi - lo)
    if not min(lo, hi) - slack <= value <= max(lo, hi) + slack:
        expected = f"expected a score in [{min(lo, hi):g}, {max(lo, hi):g}]"
        # No range has an infinite score.
        is_above = max(lo, hi) < value <= sys.float_info.max
        reason = ABOVE_RANGE if is_above else "score_out_of_range"
        return LeftOut(row, reason, f"{expected}, got {value!r:.40}")
    return min(max((value - lo) / (hi - lo), 0.0), 1.0)


def open_text(file: SourceFile) -> BinaryIO:
    """Open a file, decompressed if it is gzip, within the limits of `unpacked`."""
    return unpacked(file.open(), file.name, MAX_TEXT_BYTES)


def value_at(value: object, *path: str) -> JsonValue:
    """Value at a path of nested objects, or None."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return cast(JsonValue, value)


def text_of(value: object, *path: str) -> str | None:
    """Text at a path of nested objects, or None."""
    found = value_at(value, *path)
    return found if isinstance(found, str) and found.strip() else None


def object_at(value: object, *path: str) -> dict[str, JsonValue]:
    """Object at a path of nested objects, or an empty object."""
    found = value_at(value, *path)
    return found if isinstance(found, dict) else {}


def list_at(value: object, *path: str) -> list[JsonValue]:
    """List at a path of nested objects, or an empty list."""
    found = value_at(value, *path)
    return found if isinstance(found, list) else []


def required_name(name: str | None, what: str, place: str) -> str:
    """Require a name that must be known before a file can be read.

    Raises:
        InvalidInputError: The name is unknown.
    """
    if name is None:
        raise InvalidInputError(f"{place} does not name its {what}; give one.")
    return name


def key_of(task: str, item: JsonValue) -> str:
    """Key of an item of a task; blanks around a name do not belong to it."""
    return f"{task.strip()}/{str(item).strip()}"


def answered(
    examinee: str, item: str, trial: int, mark: float | Outcome | LeftOut, row: int
) -> Recorded | LeftOut:
    """The record of a score or of an outcome without one, or the reason why there is neither."""
    if isinstance(mark, LeftOut):
        return mark
    if isinstance(mark, Outcome):
        return Recorded(examinee, item, trial, None, mark, row)
    return Recorded(examinee, item, trial, mark, Outcome.SCORED, row)


#: Larger values of these settings are errors in the file.
_MAX_TOKENS: Final = 10_000_000
_MAX_TEMPERATURE: Final = 100.0

Tool = Literal["lm-eval", "inspect", "openai-evals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One recorded answer, and what its row says about it.

    Attributes:
        metric: Metric or scorer that gave the score.
        score: Score in [0, 1]; None without a score.
        asked: Returns the item as it was sent; raises `UnusableRowError`.
        sent: Returns what was sent, to tell different wordings of an item apart.
        number: Number of the document in its data set.
        used: Numbers of prompt and answer tokens, if they were counted.
        responses: Responses as lm-eval records them, with likelihoods.
        filter: Filter that processed the answer before it was scored.
        shots: Number of examples before each question; None if unknown.
        scorer: Our scorer that scores as the file's did, if there is one.
        templated: The prompt was written by a model's own chat template.
        method: How all answers of the file were obtained, as its log says.
    """

    tool: Tool
    source: Source
    task: str
    item: str
    examinee: str
    metric: str
    offered: Sequence[str]
    score: float | None
    asked: "Callable[[], AskedItem]"
    sent: Callable[[], JsonValue]
    number: JsonValue
    written: str | None = None
    used: tuple[int, int] | None = None
    responses: JsonValue = None
    filter: str | None = None
    shots: int | None = None
    scorer: ScorerSpec | None = None
    templated: bool = False
    method: Method = field(default_factory=Method)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedItem:
    """The item as it was sent, byte for byte, and its accepted answers.

    Exactly one of `prompt` and `messages` is given.

    Attributes:
        options: Option texts, as sent, whose likelihoods after the prompt were compared; empty if
            the model wrote an answer.
        after: Text behind the blank that the options filled, whose likelihoods were compared.
        gap: Common beginning of the options that does not count for their lengths.
        targets: Accepted answers, as recorded.
        stop: Stop sequences of the answers.
        max_tokens: Largest number of answer tokens; None if the file does not say.
        temperature: Sampling temperature of the answers; None if the file does not say.
    """

    prompt: str | None = None
    messages: tuple[Message, ...] = ()
    options: tuple[str, ...] = ()
    after: str = ""
    gap: str = ""
    targets: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None


class UnusableRowError(Exception):
    """A row that cannot become an item; the message says why."""


def drawn(max_tokens: int | None, temperature: float | None) -> Method:
    """Token limit and temperature as a `Method`, without those that are unknown."""
    found = Method()
    if max_tokens is not None:
        found["max_tokens"] = max_tokens
    if temperature is not None:
        found["temperature"] = temperature
    return found


def token_limit(value: object) -> int | None:
    """A valid token limit of answers, else None."""
    return value if type(value) is int and 0 < value <= _MAX_TOKENS else None


def temperature_of(value: object) -> float | None:
    """A valid temperature, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _MAX_TEMPERATURE else None


def tokens_of(usage: object, read: str, written: str) -> tuple[int, int] | None:
    """Numbers of prompt and answer tokens; None unless the row has both."""
    counts = value_at(usage, read), value_at(usage, written)
    known = [n for n in counts if type(n) is int and 0 <= n <= _MAX_TOKENS]
    return (known[0], known[1]) if len(known) == len(counts) else None


def digest_of(value: object) -> bytes:
    """Hash of what was sent, which differs for different wordings."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


def common_space(texts: Sequence[str]) -> str:
    """The white space at the beginning of all texts."""
    if not texts:
        return ""
    spaces = [text[: len(text) - len(text.lstrip())] for text in texts]
    shortest = min(spaces, key=len)
    while not all(space.startswith(shortest) for space in spaces):
        shortest = shortest[:-1]
    return shortest
