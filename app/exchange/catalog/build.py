"""Make the items, parameters and examples of a bank from the files of its entry. Pure.

The harness of the Open LLM Leaderboard (version 1) shuffled each split before asking, so items that
its records number are numbered in the shuffled order.
"""

import hashlib
import random  # noqa: TID251  the published order comes from Python's own generator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from app.errors import InvalidInputError
from app.exchange.catalog.entry import Entry, ItemForm, Join, Source
from app.exchange.catalog.rows import field_of, filter_of, read_rows, template
from app.exchange.item_record import ItemFields, parse_item
from app.exchange.parameters import read_parameters
from app.items import ItemContent, JsonValue, choice_letter

TRAINING = "training_file"
WITHOUT_PARAMETERS = "rows_without_parameters"
NO_EXAMPLES = "none"
#: Most rows of a training file that are searched for examples.
_LOOKED_AT = 1000


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file of an entry, whose hash was checked."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A row that has parameters but is not a valid item."""

    name: str
    row: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One worked example.

    Attributes:
        row: Row of the file that the example comes from, from 0.
    """

    row: int
    content: ItemContent
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The contents of a bank, made from an entry.

    Attributes:
        items: Fields of the items with their parameters, as in an item file, in the order of the
            parameters.
        rows: Row of each item in the split, from 0.
        examples_from: `training_file`, `rows_without_parameters` or `none`.
        n_rows: Number of rows of the split.
    """

    items: Sequence[ItemFields]
    rows: Sequence[int]
    examples: Sequence[Example]
    examples_from: str
    n_rows: int
    left_out: Sequence[LeftOut]


def build_bank(
    entry: Entry, questions: GivenFile, parameters: GivenFile, training: GivenFile | None = None
) -> Built:
    """Join questions and parameters, and choose examples that are not items.

    Raises:
        InvalidInputError: The numbers of rows or parameters differ from the entry, fields are
            missing, or names of parameters fit no row.
    """
    rows = read_rows(questions.content, questions.name)
    if len(rows) != entry.questions.rows:
        raise InvalidInputError(
            f"{questions.name} has {len(rows)} rows: expected the {entry.questions.rows} of the "
            f"{entry.questions.split} split, because their order joins them to the parameters."
        )
    table = read_parameters(parameters.content, name=parameters.name)
    if table.n_items != entry.parameters.items:
        raise InvalidInputError(
            f"{parameters.name} has parameters of {table.n_items} items: expected "
            f"{entry.parameters.items}."
        )
    row_of = rows_of_parameters(entry.join, table.item_ids, len(rows))
    items: list[ItemFields] = []
    places: list[int] = []
    contents: set[str] = set()
    left_out: list[LeftOut] = []
    for at, name in enumerate(table.item_ids):
        row = row_of[name]
        fields: ItemFields = {
            **_item(entry.item, rows[row], name, row, questions.name),
            "a": float(table.a[at]),
            "intercept": float(table.intercept[at]),
            "c": float(table.c[at]),
            "d": float(table.d[at]),
        }
        try:
            record = parse_item(fields)
        except InvalidInputError as fault:
            detail = fault.problems[0].detail if fault.problems else fault.detail
            left_out.append(LeftOut(name=name, row=row, reason=detail))
            continue
        items.append(fields)
        places.append(row)
        contents.add(_asked(record.content))
    if not items:
        raise InvalidInputError(
            f"No row of {questions.name} becomes an item; the first fault: {left_out[0].reason}."
        )
    examples, origin = _examples(entry, rows, set(row_of.values()), contents, training)
    return Built(
        items=items,
        rows=places,
        examples=examples,
        examples_from=origin,
        n_rows=len(rows),
        left_out=left_out,
    )


def _examples(
    entry: Entry,
    rows: Sequence[Mapping[str, JsonValue]],
    with_parameters: set[int],
    contents: set[str],
    training: GivenFile | None,
) -> tuple[list[Example], str]:
    """Worked examples whose questions are not items, and where they come from."""
    number = 0 if entry.few_shot is None else entry.few_shot.number
    if not number:
        return [], NO_EXAMPLES
    places: list[tuple[str, Iterator[tuple[int, Mapping[str, JsonValue]]]]] = []
    if training is not None:
        listed = read_rows(training.content, training.name, _LOOKED_AT)
        places.append((TRAINING, iter(enumerate(listed))))
    free = ((row, rows[row]) for row in range(len(rows)) if row not in with_parameters)
    places.append((WITHOUT_PARAMETERS, free))
    for origin, candidates in places:
        found: list[Example] = []
        for row, fields in candidates:
            example = _example(entry.item, fields, row)
            if example is not None and _asked(example.content) not in contents:
                found.append(example)
            if len(found) == number:
                break
        if found:
            return found, origin
    return [], NO_EXAMPLES


def _asked(content: ItemContent) -> str:
    """Text that is equal for items with the same question, whatever the white space."""
    return " ".join((content.prompt or "").split())


def _item(
    form: ItemForm, row: Mapping[str, JsonValue], key: str, place: int, file: str
) -> ItemFields:
    """Fields of the item that a row makes; an error names the row."""
    try:
        return {"key": key, **_content(form, row)}
    except InvalidInputError as fault:
        raise InvalidInputError(f"{file}, row {place}: {fault.detail}") from None


def _example(form: ItemForm, row: Mapping[str, JsonValue], place: int) -> Example | None:
    """The row as a worked example; None if the row is not a valid item."""
    try:
        content = parse_item({"key": "example", **_content(form, row)}).content
        if not content.target:
            return None
        if form.example is not None:
            answer = template(form.example).fill(row)
        elif content.choices:
            answer = choice_letter(content.choices.index(content.target[0]))
        else:
            answer = content.target[0]
    except InvalidInputError:
        return None
    return Example(row=place, content=content, answer=answer)


def _content(form: ItemForm, row: Mapping[str, JsonValue]) -> ItemFields:
    fields: ItemFields = {"prompt": template(form.prompt).fill(row)}
    if form.target is not None:
        fields["target"] = template(form.target).fill(row)
    else:
        fields["choices"], right = _choices(form, row)
        fields["target"] = fields["choices"][right]
    if form.tags:
        tags = [template(tag).fill(row) for tag in form.tags]
        fields["tags"] = [tag for tag in tags if tag.strip()]
    return fields


def _choices(form: ItemForm, row: Mapping[str, JsonValue]) -> tuple[list[str], int]:
    if isinstance(form.choices, str):
        found = field_of(row, form.choices)
        options = found if isinstance(found, list) else [None]
        listed = [text for text in options if isinstance(text, str)]
        if len(listed) < len(options):
            raise InvalidInputError(f"Expected a list of texts in field {form.choices!r}.")
    else:
        listed = [template(text).fill(row) for text in form.choices or ()]
    if form.clean is not None:
        listed = list(map(filter_of(form.clean), listed))
    answer = field_of(row, form.answer or "")
    if form.labels is not None:
        labels = field_of(row, form.labels)
        if not isinstance(labels, list) or answer not in labels:
            raise InvalidInputError(f"Expected one of {labels!r:.80}, got {answer!r:.80}.")
        return listed, labels.index(answer)
    try:
        right = int(cast(str, answer)) - form.first
    except (TypeError, ValueError):
        right = -1
    if not 0 <= right < len(listed):
        last = len(listed) - 1 + form.first
        raise InvalidInputError(
            f"Expected the number of an option, {form.first} to {last}, in field "
            f"{form.answer!r}, got {answer!r:.80}."
        )
    return listed, right


def order_of(join: Join, n_rows: int) -> list[int]:
    """Row of the split at each place, both from 0."""
    rows = list(range(n_rows))
    if join.seed is not None:
        random.Random(join.seed).shuffle(rows)  # noqa: S311  repeats a published order, no secret
    return rows


def rows_of_parameters(join: Join, names: Sequence[str], n_rows: int) -> Mapping[str, int]:
    """Name of each parameter to the row of the split, from 0, that it belongs to.

    Raises:
        InvalidInputError: A name of another form or beyond the split, or two names of one row.
    """
    before, _, after = join.name.partition("{place}")
    form = re.compile(f"{re.escape(before)}([0-9]{{1,9}}){re.escape(after)}")
    order = order_of(join, n_rows)
    found: dict[str, int] = {}
    for name in names:
        match = form.fullmatch(name)
        place = -1 if match is None else int(match[1]) - join.first
        if not 0 <= place < n_rows:
            last = n_rows - 1 + join.first
            raise InvalidInputError(
                f"Expected parameters named {join.name} with {join.first} to {last} for the place, "
                f"got {name!r}."
            )
        found[name] = order[place]
    if len(set(found.values())) < len(found):
        raise InvalidInputError("Two parameters belong to one row of the split.")
    return found


class Checked(NamedTuple):
    """SHA-256 of a file, and the hash that was compared: `git_blob`, `sha256` or `nothing`."""

    sha256: str
    by: str


def git_blob(content: bytes) -> str:
    """Git's id of a file: SHA-1 over its length and its content."""
    digest = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
    digest.update(content)
    return digest.hexdigest()


def check(content: bytes, source: Source, name: str) -> Checked:
    """Refuse a file whose hash differs from the catalogue's.

    Raises:
        InvalidInputError: The hashes differ.
    """
    sha256 = hashlib.sha256(content).hexdigest()
    by = "nothing"
    for kind, expected, got in (
        ("sha256", source.sha256, sha256),
        ("git_blob", source.git_blob, git_blob(content) if source.git_blob else ""),
    ):
        if expected is None:
            continue
        if got != expected:
            raise InvalidInputError(
                f"{name} is not the file that the catalogue's entry names: expected {kind} "
                f"{expected}, got {got} ({len(content)} bytes). Bring {source.origin}."
            )
        by = kind
    return Checked(sha256, by)
