"""Turn files of recorded answers into sheets, and report what became of each row.

Apart from reading the files, these functions are pure; `ResponseSetService` stores the results.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from app.errors import FileFormatError, InvalidInputError
from app.exchange.files import shortened
from app.exchange.response_files import ResponseFormat, detect, read_answers, sources_of
from app.exchange.results.build import items_of
from app.exchange.results.found import Found
from app.exchange.results.questions import Methods, Questions
from app.exchange.results.recorded import (
    ABOVE_RANGE,
    LOWER_IS_BETTER,
    OTHER_FILTER,
    Choices,
    LeftOut,
    Recorded,
    Seen,
    SourceFile,
    TrialTable,
    choice_error,
)
from app.items import Outcome
from app.records.response_sets import ImportedFile, StoredSheet, in_common
from app.services.responses.sheets import NOT_RUN, Merged, Sheet, code_of

#: Largest number of places that a report names for each reason.
MAX_PLACES = 10
MAX_NAME_LENGTH = 512
#: Size limit of an import's sheets: one byte per answer, nine on sheets with fractional scores.
MAX_BYTES = 256 * 2**20
#: Memory that a name takes besides the sheets, bytes.
_NAME_BYTES = 512
#: Formats that contain the questions.
_TOLD = (ResponseFormat.LM_EVAL, ResponseFormat.INSPECT, ResponseFormat.OPENAI_EVALS)
_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerImport:
    """Files to import into a response set, and how to read them."""

    files: Sequence[SourceFile]
    file_format: ResponseFormat | None = None
    choices: Choices = field(default_factory=Choices)


@dataclass(frozen=True, slots=True)
class SkippedRows:
    """Rows left out for one reason; `places` are the first of them, as `file:row: detail`."""

    reason: str
    count: int
    places: tuple[str, ...]


@dataclass(slots=True)
class _Skips:
    counts: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, place: str, count: int = 1) -> None:
        if count:
            self.counts[reason] += count
            named = self.places.setdefault(reason, [])
            if len(named) < MAX_PLACES:
                named.append(shortened(place))


@dataclass(slots=True)
class Draft:
    """Answers of an import, before they are compared with the set.

    Attributes:
        rows_read: Number of answers in the files: rows of records, filled cells of tables.
        accepted: Number of answers on the sheets.
        passed_over: Files of folders that contain no answers.
        other_filters: Filters whose rows were not used.
    """

    choices: Choices
    columns: dict[str, int] = field(default_factory=dict)
    sheets: dict[tuple[str, int], Sheet] = field(default_factory=dict)
    files: list[ImportedFile] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    rows_read: int = 0
    accepted: int = 0
    skips: _Skips = field(default_factory=_Skips)
    n_bytes: int = 0
    other_filters: list[str] = field(default_factory=list)

    @property
    def examinees(self) -> list[str]:
        """Names of all examinees in the files, in order of appearance."""
        return list(dict.fromkeys(examinee for examinee, _ in self.sheets))

    def note_file(self, name: str, file_format: str, rows_read: int) -> None:
        """Note a file that was read."""
        self.files.append({"name": name, "format": file_format, "rows_read": rows_read})

    def add(self, record: Recorded, file: str) -> None:
        """Write one answer to its sheet."""
        examinee, item, trial, score, outcome, row = record
        key = (examinee, trial)
        sheet = self.sheets.get(key)
        if sheet is None:
            _check_name("examinee", examinee, f"{file}:{row}")
            sheet = self.sheets[key] = Sheet()
            self._count(_NAME_BYTES)
        column = self._column(item, f"{file}:{row}")
        if column >= len(sheet.codes):
            self._count((column + 1 - len(sheet.codes)) * sheet.width)
            sheet.grow(column + 1)
        if sheet.codes[column] == NOT_RUN:
            self._count(sheet.put(column, code_of(outcome, score), score or 0.0))
            self.accepted += 1
            return
        place = f"{file}:{row}: {examinee!r}, {item!r}"
        held = sheet.score(column)
        if held is None and score is not None:
            self._count(sheet.put(column, code_of(outcome, score), score))
            self.skips.add("superseded", place)
        elif held is None or score is None or held == score:
            self.skips.add("duplicate", place)
        else:
            self.skips.add("conflict", f"{place}: {held:g}, then {score:g}")

    def add_table(self, part: TrialTable, file: str) -> None:
        """Write the rows of a table to their sheets."""
        table = part.table
        place = file if part.row is None else f"{file}:{part.row}"
        into = np.array([self._column(item, place) for item in table.items], np.intp)
        for examinee, scores in zip(table.examinees, table.scores, strict=True):
            _check_name("examinee", examinee, place)
            new = Sheet.of_scores(scores).moved(into)
            key = (examinee, part.trial)
            held = self.sheets.get(key)
            if held is None:
                self.sheets[key] = new
                self._count(new.n_bytes + _NAME_BYTES)
                self.accepted += int(np.count_nonzero(~np.isnan(scores)))
                continue
            before = held.n_bytes
            merged = held.merge(new)
            self._count(held.n_bytes - before)
            self.accepted += merged.taken - merged.replaced
            self.skips.add("superseded", f"{place}: {examinee!r}", merged.replaced)
            self.note(merged, f"{place}: {examinee!r}")

    def note(self, merged: Merged, place: str) -> None:
        """Count the answers that a merge skipped."""
        self.skips.add("duplicate", place, merged.duplicates)
        self.skips.add("conflict", place, merged.conflicts)

    def keep(self, items: Collection[str]) -> None:
        """Drop the answers to all items other than `items`.

        Raises:
            FileFormatError: No answer is left.
        """
        kept = [key for key in self.columns if key in items]
        places = np.array([self.columns[key] for key in kept], np.intp)
        self.sheets = {name: sheet.picked(places) for name, sheet in self.sheets.items()}
        self.columns = {key: column for column, key in enumerate(kept)}
        self.n_bytes = sum(sheet.n_bytes for sheet in self.sheets.values())
        self.accepted = sum(sum(sheet.counts().values()) for sheet in self.sheets.values())
        if not self.accepted:
            raise FileFormatError("Expected at least one answer to a question that can be asked.")

    def skipped(self) -> tuple[SkippedRows, ...]:
        """Skipped rows by reason, the most frequent reason first."""
        return tuple(
            SkippedRows(reason, count, tuple(self.skips.places[reason]))
            for reason, count in self.skips.counts.most_common()
        )

    def _column(self, item: str, place: str) -> int:
        column = self.columns.get(item)
        if column is None:
            _check_name("item", item, place)
            self._count(_NAME_BYTES)
            column = self.columns[item] = len(self.columns)
        return column

    def _count(self, more: int) -> None:
        self.n_bytes += more
        if self.n_bytes > MAX_BYTES:
            raise _too_large(len(self.sheets), len(self.columns))


def read_draft(request: AnswerImport, saw: Callable[[Seen], None] | None = None) -> Draft:
    """Read the files of an import; `saw` is called with each row that contains a question.

    Raises:
        FileFormatError: A file cannot be read or needs a choice, or no file has an answer.
    """
    draft, ways, filters = Draft(request.choices), Methods(), set[str]()

    def look(seen: Seen) -> None:
        ways.saw(seen)
        filters.add(seen.filter or "none")
        if saw is not None:
            saw(seen)

    off_scale: dict[str, str] = {}
    sources, draft.passed_over = sources_of(request.files, request.file_format)
    for file in request.files:
        with file.open() as stream:
            if not stream.read(1):
                draft.skips.add("empty_file", file.name)
    for file_format, source in sources:
        before = draft.rows_read
        for part in read_answers(file_format, source, request.choices, look):
            if isinstance(part, Recorded):
                draft.rows_read += 1
                draft.add(part, source.name)
            elif isinstance(part, LeftOut):
                draft.rows_read += 1
                if part.reason == OTHER_FILTER and part.detail not in draft.other_filters:
                    draft.other_filters.append(part.detail)
                detail = f": {part.detail}" if part.detail else ""
                place = f"{source.name}:{part.row}{detail}"
                draft.skips.add(part.reason, place)
                if part.reason in (ABOVE_RANGE, LOWER_IS_BETTER):
                    off_scale.setdefault(source.name, shortened(place))
            else:
                draft.rows_read += part.table.n_answers
                draft.add_table(part, source.name)
        draft.note_file(source.name, file_format, draft.rows_read - before)
    if off_scale:
        first = "; ".join([*off_scale.values()][:_NAMED])
        more = "; ..." if len(off_scale) > _NAMED else ""
        raise FileFormatError(
            f"Another scale in {len(off_scale)} of {len(sources)} files, where all scores would "
            f"count wrongly: {first}{more}. Leave them out, choose another metric, or import them "
            "alone into a response set, with their worst and best score (`sextant response-sets "
            "import --score-range 0 100`; 1 0 where the lowest is the best)."
        )
    if not draft.accepted:
        reasons = "; ".join(
            f"{skipped.count} {skipped.reason}, first {skipped.places[0]}"
            for skipped in draft.skipped()
        )
        wanted = ", ".join(draft.choices.tasks)[:200]
        none = f"no rows of the task {wanted}" if wanted else "no rows"
        raise FileFormatError(f"Expected at least one answer, got none ({reasons or none}).")
    filters.update(draft.other_filters)
    unknown = set(request.choices.filters) - filters
    if unknown and saw is None:  # a bank's files may come in parts: another part may have it
        raise choice_error("filter", list(filters), sorted(unknown), "The files")
    if draft.choices.asked is None:
        draft.choices = replace(draft.choices, asked=in_common(ways.all) or None)
    return draft


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsImport(AnswerImport):
    """Recorded results from which a bank is made.

    Attributes:
        target_after: Mark in the recorded target; the right answer follows its last occurrence.
        prompts_of: Examinee whose prompts are used; None: for each item, the most frequent prompt.
        numbered: Name items by their number in the data set, not by the hash of their text, by
            which guesses of a question could be confirmed.
    """

    target_after: str | None = None
    prompts_of: str | None = None
    numbered: bool = False


def read_results(request: ResultsImport) -> tuple[Draft, Found]:
    """The answers in some files, and the answered items; items that cannot be asked are skipped.

    Raises:
        FileFormatError: A file cannot be read, or contains no question that can be asked again.
        InvalidInputError: `prompts_of` names no examinee of the files.
    """
    _require_questions(request)
    questions = Questions(prompts_of=request.prompts_of)
    draft = read_draft(request, questions.saw)
    if request.prompts_of is not None and request.prompts_of not in draft.examinees:
        named = ", ".join(draft.examinees[:5])
        expected = f"expected one of the {len(draft.examinees)} models ({named}, ...)"
        raise InvalidInputError.of_field("prompts_of", f"{expected}, got {request.prompts_of!r}")
    _require_marked(questions, draft)
    found = items_of(questions, draft.other_filters, target_after=request.target_after)
    draft.keep({item["key"] for item in found.items})
    if not request.numbered:
        return draft, found
    names = questions.numbers()
    draft.columns = {names[key]: column for key, column in draft.columns.items()}
    return draft, found.renamed(names)


def _require_questions(answers: AnswerImport) -> None:
    """Require that one of the files contains questions, before others are read as tables."""
    if not any((answers.file_format or detect(file)) in _TOLD for file in answers.files):
        sources_of(answers.files, answers.file_format)  # a file of no known format is told first
        names = ", ".join(file.name for file in answers.files[:_NAMED] if file.asked_for)
        raise FileFormatError(
            f"{names or 'The files'}: expected results that say what was asked (samples of "
            "lm-eval, logs of inspect, output items of OpenAI Evals), found none: a bank needs its "
            "questions. Import the answers by `sextant response-sets import`, and the questions by "
            "`sextant banks import`."
        )


def _require_marked(questions: Questions, draft: Draft) -> None:
    """Require that the files with questions contain a scored answer."""
    n_rows = sum(file["rows_read"] for file in draft.files if file["format"] in _TOLD)
    if questions.items or questions.unusable or not n_rows:
        return
    errors = sum(sheet.counts()[Outcome.ERROR.value] for sheet in draft.sheets.values())
    reasons = [f"{errors} ended in an error"] if errors else []
    reasons += [f"{s.count} {s.reason}, first {s.places[0]}" for s in draft.skipped()]
    raise FileFormatError(
        f"None of the {n_rows} recorded answers was scored ({'; '.join(reasons)}): questions are "
        "made of runs that got as far as scores. Have the tool finish the run (`inspect "
        "eval-retry LOG`), or leave its files out."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Changes that an import makes to a set.

    Attributes:
        new_sheets: Sheets of examinees and trials that the set does not have yet.
        changed_sheets: Sheets with more answers than before.
        accepted: Number of answers of the import that are in the set afterwards.
        outcomes: Increase in the number of answers, by outcome.
        without_scores: Examinees without a scored answer in the import.
    """

    new_items: tuple[str, ...]
    new_sheets: tuple[StoredSheet, ...]
    changed_sheets: tuple[StoredSheet, ...]
    accepted: int
    outcomes: Mapping[str, int]
    skipped: tuple[SkippedRows, ...]
    without_scores: tuple[str, ...]


def change_of(
    draft: Draft, items: Sequence[str], held: Mapping[tuple[str, int], StoredSheet]
) -> Change:
    """Merge a draft with the contents of a set; the draft cannot be used afterwards.

    `items` are the keys of the set's items in order of position, `held` its sheets of the
    draft's examinees.
    """
    position_of = {key: position for position, key in enumerate(items)}
    new_items = tuple(key for key in draft.columns if key not in position_of)
    position_of |= {key: position for position, key in enumerate(new_items, start=len(items))}
    into = np.array([position_of[key] for key in draft.columns], np.intp)
    moves = not np.array_equal(into, np.arange(len(into)))
    new: list[StoredSheet] = []
    changed: list[StoredSheet] = []
    outcomes: Counter[str] = Counter()
    accepted = draft.accepted
    n_bytes = 0
    n_sheets = len(draft.sheets)
    is_scored = dict.fromkeys(draft.examinees, False)
    for examinee, trial in list(draft.sheets):
        drafted = draft.sheets.pop((examinee, trial))
        sheet = drafted.moved(into) if moves else drafted
        n_bytes += sheet.n_bytes
        if n_bytes > MAX_BYTES:
            raise _too_large(n_sheets, len(position_of))
        counts = sheet.counts()
        is_scored[examinee] |= counts[Outcome.SCORED.value] > 0
        stored = held.get((examinee, trial))
        if stored is None:
            ready = sheet.stored(examinee, trial)
            if ready.codes:  # an examinee without any answer appears only in the report
                new.append(ready)
                outcomes.update(counts)
            continue
        old = Sheet.of_stored(stored)
        outcomes.subtract(old.counts())
        merged = old.merge(sheet)
        outcomes.update(old.counts())
        accepted -= merged.duplicates + merged.conflicts
        draft.note(merged, f"{examinee!r}; the set has answers of that examinee")
        if merged.taken:
            changed.append(old.stored(examinee, trial))
    return Change(
        new_items=new_items,
        new_sheets=tuple(new),
        changed_sheets=tuple(changed),
        accepted=accepted,
        outcomes=outcomes,
        skipped=draft.skipped(),
        without_scores=tuple(name for name, scored in is_scored.items() if not scored),
    )


def _too_large(n_sheets: int, n_items: int) -> InvalidInputError:
    return InvalidInputError(
        f"Expected answers that take at most {MAX_BYTES / 2**20:.0f} MB as examinees x items, got "
        f"more with {n_sheets:,} examinees x {n_items:,} items: import in parts, or benchmarks "
        "that share no examinees into sets of their own."
    )


def _check_name(what: str, name: str, place: str) -> None:
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidInputError(
            f"{shortened(place)}: expected {what} names of at most {MAX_NAME_LENGTH} characters, "
            f"got {name[:40]!r}... of {len(name)}."
        )
    if not name.strip() or "\x00" in name or any("\ud800" <= char <= "\udfff" for char in name):
        raise InvalidInputError(f"{shortened(place)}: expected a name of the {what}, got {name!r}.")
