"""Recorded answers of other tools: the canonical record, its files, and what has to be chosen."""

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple, cast

from typing_extensions import TypedDict

from app.engine.responses import ResponseTable
from app.errors import FileFormatError, InvalidInputError
from app.exchange.files import MAX_TEXT_BYTES, shortened, unpacked
from app.items import JsonValue, Outcome

FIRST_TRIAL = 1
#: Why a row gives no answer: another filter was taken than that of its detail.
OTHER_FILTER = "other_filter"


class Recorded(NamedTuple):
    """One recorded answer. A tuple, because files hold millions.

    Attributes:
        trial: Which of several answers of one examinee to one item, from 1.
        score: In [0, 1]; None unless the outcome is `SCORED`.
        row: Line or entry of the file, from 1.
    """

    examinee: str
    item: str
    trial: int
    score: float | None
    outcome: Outcome
    row: int


class LeftOut(NamedTuple):
    """A row that gives no answer, and why."""

    row: int
    reason: str
    detail: str = ""


class TrialTable(NamedTuple):
    """Answers of one trial, of many examinees or many to items: quicker than one by one.

    Attributes:
        row: Line of the file that holds all of them, if one does.
    """

    trial: int
    table: ResponseTable
    row: int | None = None


Part = Recorded | LeftOut | TrialTable


class Method(TypedDict, total=False):
    """How answers were obtained; what nobody knows is absent."""

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
        path: Names it in reports; files of one folder belong together.
        folder: Name of that folder.
        content: The bytes, or where they are on the disk.
        asked_for: Named by the user, not found in a folder or beside another file.
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
        """The bytes from their beginning.

        Raises:
            FileFormatError: They are on the disk and cannot be read.
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
    """A file with all that came along in its folder."""

    file: SourceFile
    folder: Sequence[SourceFile] = ()

    @property
    def name(self) -> str:
        """How reports name the file."""
        return self.file.name

    def siblings(self, pattern: str) -> list[SourceFile]:
        """Files of the same folder whose name fits a shell pattern."""
        return [file for file in self.folder if fnmatchcase(file.path.name, pattern)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What a file does not settle by itself.

    Attributes:
        filters: lm-eval filters to take; one of them a file.
        metrics: Metrics to take; the first that a row has.
        scorers: inspect scorers to take, `scorer` or `scorer.key`; the first that a sample has.
        examinee: Name of the examinee of every file that holds one examinee.
        refused_no_answer: Count inspect's N (no answer) as refused; inspect itself scores it 0.
        score_range: Worst and best score of the files, the best may be the lower one; they become 0
            and 1. Answers that are marked right or wrong in words are 1 and 0 whatever the range.
        unparsed_policy: How whoever marked them counted answers that could not be read: `wrong` or
            `missing`; None takes what the format is known for. No score is changed by it.
        asked: How the answers were obtained, as a bank version's knowledge has it; None where
            nobody knows.
        tasks: Shell patterns of the tasks to take; empty: all.
        take_first: Of several filters, metrics or scorers of which none is chosen, take the usual
            one, else the first; without it, they are a fault.

    Raises:
        InvalidInputError: The range is none.
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
        """Whether answers of a task are wanted."""
        return not self.tasks or any(fnmatchcase(task, pattern) for pattern in self.tasks)

    def __post_init__(self) -> None:
        lo, hi = self.score_range
        if not (math.isfinite(lo) and math.isfinite(hi - lo) and lo != hi):
            raise InvalidInputError(
                f"Expected a score range from the worst to another best score, got {lo:g} {hi:g}."
            )


def choose(
    what: str,
    offered: Iterable[str],
    wanted: Sequence[str],
    place: str,
    usual: Sequence[str] | None = None,
) -> str:
    """The one of `offered` that counts: the only one, or the first that is wanted.

    Args:
        what: What it is, for faults.
        offered: What there is.
        wanted: What was chosen.
        place: Where, for faults.
        usual: Of several and none chosen, the first of these, else of those offered; None: a fault.

    Raises:
        FileFormatError: Several and none wanted, or a wanted one that is not there; lists them.
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
    """The fault of a file that needs a choice, or lacks what was chosen; lists what is there."""
    # A file can name things by half a surrogate pair, which no answer of the API can hold.
    listed = shortened(", ".join(sorted(names)).encode(errors="replace").decode() or "none")
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
    """A score in [0, 1] from a JSON value; a value that is none, with the reason."""
    lo, hi = choices.score_range
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, int | float):
        return LeftOut(row, "not_a_number", f"expected a score, got {value!r:.80}")
    if value != value:
        return LeftOut(row, "not_scored", "the score is NaN")
    if not min(lo, hi) <= value <= max(lo, hi):
        expected = f"expected a score in [{min(lo, hi):g}, {max(lo, hi):g}]"
        return LeftOut(row, "score_out_of_range", f"{expected}, got {value!r:.40}")
    return (value - lo) / (hi - lo)


def open_text(file: SourceFile) -> BinaryIO:
    """The file's bytes, decompressed if it is a gzip file, within the limits of `unpacked`."""
    return unpacked(file.open(), file.name, MAX_TEXT_BYTES)


def value_at(value: object, *path: str) -> JsonValue:
    """What is at a path of nested objects, None where there is nothing."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return cast(JsonValue, value)


def text_of(value: object, *path: str) -> str | None:
    """A text at a path of nested objects, None where there is none."""
    found = value_at(value, *path)
    return found if isinstance(found, str) and found.strip() else None


def object_at(value: object, *path: str) -> dict[str, JsonValue]:
    """The object at a path of nested objects, an empty one where there is none."""
    found = value_at(value, *path)
    return found if isinstance(found, dict) else {}


def list_at(value: object, *path: str) -> list[JsonValue]:
    """The list at a path of nested objects, an empty one where there is none."""
    found = value_at(value, *path)
    return found if isinstance(found, list) else []


def required_name(name: str | None, what: str, place: str) -> str:
    """A name that must be known before a file can be read.

    Raises:
        InvalidInputError: It is not.
    """
    if name is None:
        raise InvalidInputError(f"{place} does not name its {what}; give one.")
    return name


def answered(
    examinee: str, item: str, trial: int, score: float | LeftOut, row: int
) -> Recorded | LeftOut:
    """The record of a score, or of why there is none."""
    if isinstance(score, LeftOut):
        return score
    return Recorded(examinee, item, trial, score, Outcome.SCORED, row)
