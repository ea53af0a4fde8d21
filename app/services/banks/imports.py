"""Decide what an import changes: which items are new, and to which items parameters belong.

Pure functions: `BankService` reads the bank, calls them, and writes their results.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.demo.bank import REFERENCE_SOURCE, DemoBank, learned
from app.engine.bank import ItemBank
from app.engine.lint import Finding
from app.errors import (
    AlreadyExistsError,
    ConflictError,
    FieldProblem,
    InvalidInputError,
    SextantError,
)
from app.exchange.files import MAX_PROBLEMS
from app.exchange.item_record import ItemRecord
from app.exchange.items import ItemRow
from app.exchange.names import match_names
from app.exchange.parameters import bank_of_written, require_slopes
from app.items import ItemContent, ScorerSpec
from app.records.banks import Item, ItemOutline, NewItem
from app.records.fields import convert
from app.records.sessions import AskedJson
from app.services.banks.spec import Faults, calls_out, name_of, require_markable
from app.storage.identifiers import new_id
from app.storage.repositories.banks import scorer_json

MAX_EXAMPLES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class BankImport:
    """Items and parameters to be imported into a bank.

    Attributes:
        parameters: Contents of the parameter file; its item ids are item keys. Not together with
            parameters written beside the items.
        response_model: `1pl` to `4pl` or `continuous`; by default the smallest that holds the
            parameters.
        scale: Name of the theta scale; by default a new name for each version, because
            parameters from another calibration are on another scale.
        allow: Lint codes that do not quarantine.
        keep: Keys of items that are never quarantined.
        provisional: Whether the parameters are a guess, not a calibration. Without parameters,
            they are guessed from what is known about the items.
        difficulty: Source of guesses of difficulty, one of `provisional.Difficulty`; by default
            whichever is available.
        knowledge: What was learned about the version beyond its item parameters, by part.
        unparsed_policy: How unparsed answers counted when the parameters were made, `wrong` or
            `missing`; None where unknown, or where `knowledge` contains it.
        asked: How the answers behind the parameters were obtained, as in `Asked`; empty where
            unknown, or where `knowledge` contains it.
        as_they_are: Accept items whose scorer can accept no answer, where nobody can repair them.
        counted_tokens: Expected tokens are means of recorded answers. An item of the bank with
            other expected tokens still counts as the same item, and keeps its own.
        from_version: Number, id or `latest` of a version of the bank whose parameters, scale and
            knowledge the new version takes over; instead of `parameters`.
    """

    items: Sequence[ItemRecord] = ()
    parameters: ItemBank | None = None
    response_model: str | None = None
    scale: str | None = None
    allow: Collection[str] = ()
    keep: Collection[str] = ()
    provisional: bool = False
    difficulty: str | None = None
    notes: str = ""
    findings: Sequence[Finding] = ()
    calibration: Mapping[str, Any] | None = None
    knowledge: Mapping[str, Any] = field(default_factory=dict)
    unparsed_policy: str | None = None
    asked: AskedJson = field(default_factory=dict)
    as_they_are: bool = False
    counted_tokens: bool = False
    from_version: str | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """Rows that were left out for one reason.

    Attributes:
        keys: Keys of the first such rows.
    """

    reason: str
    count: int
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Result for the rows of one file."""

    rows_read: int = 0
    accepted: int = 0
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchLine:
    """What became of one line of a batch.

    Attributes:
        status: `created`, `unchanged` (the bank has this item) or `failed`.
    """

    row: int
    status: str
    key: str | None = None
    item_id: str | None = None
    new: NewItem | None = None
    error: SextantError | None = None


@dataclass(frozen=True, slots=True)
class Renamed:
    """A parameter row whose name is the item's key as R rewrites names."""

    parameter: str
    item: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedParameters:
    """Parameters joined to a bank's items, in the order of the parameter file."""

    items: tuple[ItemOutline, ...]
    rows: tuple[int, ...]
    tally: Tally
    renamed: tuple[Renamed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """Changes that the records of an import make to a bank's items.

    Attributes:
        added: Items that the bank does not have yet.
        filled: Items that the bank knows by their parameters only, with their new texts.
    """

    added: list[NewItem]
    filled: list[NewItem]
    tally: Tally


def new_items(
    existing: Mapping[str, ItemOutline],
    records: Sequence[ItemRecord],
    faults: Faults,
    *,
    counted_tokens: bool = False,
) -> Incoming:
    """Compare the records with the bank's items; `faults` are those of the records' scorers.

    `counted_tokens` is described in `BankImport`.

    Raises:
        ConflictError: A record's key is taken by an item that differs.
        InvalidInputError: A record names a scorer that does not exist, or gives it wrong params.
    """
    check_scorers(records, faults)
    added: list[NewItem] = []
    filled: list[NewItem] = []
    unchanged: list[str] = []
    problems: list[FieldProblem] = []
    for record in records:
        old = existing.get(record.key)
        if old is None:
            added.append(new_item(record, new_id("itm")))
        elif _same(old, record, tokens=not counted_tokens):
            unchanged.append(record.key)
        elif not old.has_content:
            filled.append(new_item(record, old.id))
        else:
            detail = f"expected a new key or the item as it is, got another item {record.key!r}"
            problems.append(FieldProblem(f"items:{record.row}:key", detail))
    if problems:
        raise ConflictError(
            f"{len(problems)} items have the key of an item of the bank but ask something else. Use"
            " other keys, or another bank: what was measured with an item holds for its text."
            f" First: {problems[0].detail}.",
            problems=problems[:MAX_PROBLEMS],
        )
    skipped = _skipped("unchanged", unchanged)
    n_taken = len(added) + len(filled)
    tally = Tally(rows_read=len(records), accepted=n_taken, skipped=skipped)
    return Incoming(added=added, filled=filled, tally=tally)


def new_item(record: ItemRecord, item_id: str) -> NewItem:
    """The record as an item to store."""
    return convert(NewItem, record, id=item_id)


def batch_line(
    row: ItemRow, existing: Mapping[str, Item], faults: Faults, default: ScorerSpec
) -> BatchLine:
    """What becomes of one line of a batch.

    `existing` are the bank's items with the same keys, `faults` those of the scorers of all lines.
    """
    try:
        if row.record is None:
            raise InvalidInputError(f"{row.problems[0].detail}.", problems=row.problems)
        refuse_parameters(row.record)
        check_scorers([row.record], faults)
        require_markable([row.record], default)
        old = existing.get(row.record.key)
        if old is None:
            new = new_item(row.record, new_id("itm"))
            return BatchLine(row.row, "created", key=new.key, item_id=new.id, new=new)
        if not _same(outline(old), row.record):
            raise AlreadyExistsError(
                f"The bank has another item with the key {old.key!r}."
                if old.content != ItemContent()
                else f"The bank has {old.key!r} without text, by its parameters alone: import "
                "items to add the text."
            )
        return BatchLine(row.row, "unchanged", key=old.key, item_id=old.id)
    except SextantError as error:
        key = None if row.record is None else row.record.key
        return BatchLine(row.row, "failed", key=key, error=error)


def refuse_parameters(record: ItemRecord) -> None:
    """Refuse parameters in an item record: they, and guesses of them, belong to a bank version.

    Raises:
        InvalidInputError: The record contains parameters or guesses.
    """
    if record.difficulty is not None:
        raise InvalidInputError(
            "Expected an item without a guess of its difficulty: that comes with a provisional "
            "import.",
            problems=[FieldProblem("/difficulty", "expected no guess, got one")],
        )
    if record.parameters is not None:
        raise InvalidInputError(
            "Expected an item without parameters: they come with an import or a new version.",
            problems=[FieldProblem("/b", "expected no parameters, got some")],
        )


def item_fields(item: NewItem) -> dict[str, object]:
    """The fields of a stored item, as an item file would have them."""
    content, scorer = item.content, item.scorer
    messages = [{"role": turn.role, "content": turn.content} for turn in content.messages]
    tokens = {"in": item.expected_tokens_in, "out": item.expected_tokens_out}
    return {
        "key": item.key,
        "prompt": content.prompt,
        "messages": messages or None,
        "choices": list(content.choices),
        "target": list(content.target),
        "tags": list(item.tags),
        "group": item.group,
        "scorer": None if scorer is None else scorer_json(scorer),
        "expected_tokens": {way: n for way, n in tokens.items() if n is not None},
    }


def demo_import(demo: DemoBank) -> BankImport:
    """The bundled bank as an import."""
    lacking = dict.fromkeys(("group", "parameters", "difficulty"))
    records = [convert(ItemRecord, item, row=0, **lacking) for item in demo.items]
    return BankImport(
        items=records,
        parameters=demo.item_bank(),
        scale=demo.scale,
        provisional=demo.provisional,
        notes=demo.description,
        knowledge=learned(),
        asked={"source": REFERENCE_SOURCE},
    )


def bare_items(parameters: ItemBank) -> list[NewItem]:
    """Items without content, known by their parameters: for simulation and manual sessions."""
    return [
        NewItem(id=new_id("itm"), key=key, content=ItemContent()) for key in parameters.item_ids
    ]


def outline(item: NewItem) -> ItemOutline:
    """The facts about a new item that the rest of an import needs."""
    return convert(
        ItemOutline,
        item,
        content_hash=item.content.content_hash,
        has_content=item.content != ItemContent(),
        has_target=bool(item.content.target),
        n_choices=len(item.content.choices),
        targets=item.content.target,
    )


def own_scorers(items: Iterable[NewItem]) -> list[ScorerSpec]:
    """The different scorers that items name themselves and that call endpoints."""
    found: dict[str, ScorerSpec] = {}
    for item in items:
        if item.scorer is not None:
            found.setdefault(name_of(item.scorer), item.scorer)
    return [spec for spec in found.values() if calls_out(spec)]


def check_scorers(records: Iterable[ItemRecord], faults: Faults) -> None:
    """Refuse scorers that cannot be used, as listed in `faults`.

    Raises:
        InvalidInputError: Lists the first row of each faulty scorer.
    """
    if not faults:
        return
    seen: set[str] = set()
    problems: list[FieldProblem] = []
    for record in records:
        if record.scorer is None or (spec := name_of(record.scorer)) in seen:
            continue
        seen.add(spec)
        if spec in faults:
            place = f"items:{record.row}:scorer" if record.row else "/scorer"
            problems.append(FieldProblem(place, faults[spec].detail))
    if problems:
        first = problems[0]
        raise InvalidInputError(
            f"{first.pointer}: {first.detail}", problems=problems[:MAX_PROBLEMS]
        )


def parameters_of(request: BankImport) -> ItemBank | None:
    """The parameters of an import, from the parameter file or from the item file.

    Raises:
        InvalidInputError: Both files contain parameters, or as for `bank_of_written`.
        ItemBankError: A slope so near 0 that no difficulty follows from it.
    """
    beside = [(record.key, record.parameters) for record in request.items if record.parameters]
    bank = request.parameters
    if beside and bank is not None:
        raise InvalidInputError(
            "Expected parameters from one place, got a parameter file and parameters beside the"
            f" items (the first at item {beside[0][0]!r})."
        )
    if beside:
        bank = bank_of_written(beside)
    return None if bank is None else require_slopes(bank, "Item parameters")


def match_parameters(items: Sequence[ItemOutline], parameters: ItemBank) -> MatchedParameters:
    """Join parameters to items by key, also where R changed the keys of one side (`1` to `X1`).

    Raises:
        InvalidInputError: No row belongs to any item.
    """
    by_key = {item.key: item for item in items}
    match = match_names(parameters.item_ids, list(by_key))
    if not match.found:
        raise InvalidInputError(
            f"Expected parameters of the bank's items, got {parameters.n_items} rows of which none"
            f" names one: rows are named like {parameters.item_ids[0]!r}, items like"
            f" {items[0].key!r}."
        )
    return MatchedParameters(
        items=tuple(by_key[key] for key in match.found.values()),
        rows=tuple(parameters.index_of(name) for name in match.found),
        tally=Tally(
            rows_read=parameters.n_items,
            accepted=len(match.found),
            skipped=_skipped("no_matching_item", match.unknown),
        ),
        renamed=tuple(Renamed(name, key) for name, key in match.renamed.items()),
    )


def repeated(tally: Tally, keys: Sequence[str]) -> Tally:
    """The result for rows that say what the bank's latest version has."""
    return replace(tally, accepted=0, skipped=(*_skipped("unchanged", keys), *tally.skipped))


def _same(old: ItemOutline, record: ItemRecord, *, tokens: bool = True) -> bool:
    expected = (record.expected_tokens_in, record.expected_tokens_out)
    return (
        old.content_hash == record.content.content_hash
        and old.scorer == record.scorer
        and old.tags == record.tags
        and old.group == record.group
        and (not tokens or (old.expected_tokens_in, old.expected_tokens_out) == expected)
    )


def _skipped(reason: str, keys: Sequence[str]) -> tuple[Skipped, ...]:
    return (Skipped(reason, len(keys), tuple(keys[:MAX_EXAMPLES])),) if keys else ()
