"""Banks: made, filled, versioned, and loaded for tests."""

import asyncio
import contextlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from app.demo.bank import demo_bank
from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray
from app.engine.design import Design
from app.engine.lint import OF_ANSWERS, Finding
from app.errors import AlreadyExistsError, InvalidInputError, InvalidStateError, NotFoundError
from app.exchange.item_record import ItemRecord, parse_item
from app.exchange.items import ItemRow
from app.items import ItemContent
from app.services.bank_import import (
    BankImport,
    BatchLine,
    Renamed,
    Tally,
    bare_items,
    batch_line,
    check_scorers,
    demo_import,
    item_fields,
    match_parameters,
    new_item,
    new_items,
    outline,
    own_scorers,
    parameters_of,
    refuse_parameters,
)
from app.services.bank_spec import BankSpec, bank_of, check_spec
from app.services.loaded_version import BankItem, InformationCurve, LoadedVersion, bank_item
from app.services.lru import Lru
from app.services.scorer_endpoints import scorer_endpoints
from app.services.version_draft import (
    VersionDraft,
    content_findings,
    draft_version,
    parameters_hash,
    quarantined,
)
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.paging import Page, PageRequest
from app.storage.repositories.bank_values import Bank, BankVersion, Item, VersionItem
from app.storage.repositories.endpoints import Price
from app.storage.unit_of_work import UnitOfWork

__all__ = ["BankImport", "BankItem", "BankService", "BankSpec", "LoadedVersion"]

MAX_BATCH = 1000

_CACHED_VERSIONS = 8
#: Banks of up to so many items are fetched at once: one query instead of hundreds.
_FETCHED_WHOLE = 1024
_CACHED_ITEMS = 20_000


@dataclass(frozen=True, slots=True)
class BankOverview:
    """A bank with what is in it."""

    bank: Bank
    n_items: int
    latest: BankVersion | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an import did, or would do.

    Attributes:
        version: The version it made; `None` without parameters.
        findings: All of them, of items and of parameters.
    """

    dry_run: bool
    bank: Bank
    version: BankVersion | None
    items: Tally
    parameters: Tally
    renamed: tuple[Renamed, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Validation:
    """Findings of a version, and the keys of the items that the overrides leave quarantined."""

    version: BankVersion
    findings: Sequence[Finding]
    quarantined: frozenset[str]


class BankService:
    """Use cases of banks.

    Args:
        database: Where they are stored.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._versions: Lru[str, LoadedVersion] = Lru(_CACHED_VERSIONS)
        self._items: Lru[tuple[str, int, int], BankItem] = Lru(_CACHED_ITEMS)
        self._loading = asyncio.Lock()
        self._fetching = asyncio.Lock()

    async def create_bank(self, spec: BankSpec) -> BankOverview:
        """Make an empty bank.

        Raises:
            AlreadyExistsError: Its name is taken.
            InvalidInputError: A scorer, prompt or policy that cannot be used.
        """
        bank = bank_of(spec)
        async with self._database.unit_of_work() as uow:
            await scorer_endpoints(uow, [bank.default_scorer])
            await uow.banks.add(bank)
            return await _overview(uow, await uow.banks.find(bank.id))

    async def get_bank(self, bank: str) -> BankOverview:
        """A bank by id or name.

        Raises:
            NotFoundError: No such bank.
        """
        async with self._database.unit_of_work() as uow:
            return await _overview(uow, await uow.banks.find(bank))

    async def list_banks(self, request: PageRequest) -> Page[BankOverview]:
        """One page of banks."""
        async with self._database.unit_of_work() as uow:
            page = await uow.banks.list_page(request)
            return Page(await _overviews(uow, page.items), page.has_more)

    async def update_bank(
        self, bank: str, revision: int, changes: Mapping[str, Any]
    ) -> BankOverview:
        """Change fields of `BankSpec`.

        Raises:
            NotFoundError: No such bank.
            PreconditionFailedError: It is not at `revision` any more.
            AlreadyExistsError: The new name is taken.
            InvalidInputError: As for `create_bank`.
        """
        async with self._database.unit_of_work() as uow:
            old = await uow.banks.find(bank, for_update=True)
            spec = BankSpec(**{f.name: getattr(old, f.name) for f in fields(BankSpec)})
            changed = replace(spec, **changes)
            check_spec(changed)
            await scorer_endpoints(uow, [changed.default_scorer])
            updated = await uow.banks.update(old.id, revision, changes)
            return await _overview(uow, updated)

    async def delete_bank(self, bank: str, revision: int) -> None:
        """Take a bank out of use. Sessions on its versions stay and can go on.

        Raises:
            NotFoundError: No such bank.
            PreconditionFailedError: It is not at `revision` any more.
        """
        async with self._database.unit_of_work() as uow:
            await uow.banks.archive(bank, revision)

    async def import_bank(
        self, spec: BankSpec, request: BankImport, *, dry_run: bool = False
    ) -> ImportReport:
        """Import into the bank named `spec.name`, which is made if there is none.

        A bank that is there keeps its own settings. Either everything is written or nothing.

        Raises:
            InvalidInputError: As for `import_into`.
            ConflictError: As for `import_into`.
        """
        try:
            return await self.import_into(spec.name, request, dry_run=dry_run)
        except NotFoundError:
            pass
        try:
            return await self._import_new(spec, request, dry_run=dry_run)
        except AlreadyExistsError:  # somebody made the bank meanwhile
            return await self.import_into(spec.name, request, dry_run=dry_run)

    async def ensure_demo_bank(self) -> BankVersion:
        """The latest version of the bundled bank, which is installed if it is not there.

        Raises:
            NotFoundError: Somebody made a bank of that name, and it has no version.
        """
        demo = demo_bank()
        try:
            return await self.get_version(demo.name)
        except NotFoundError:
            pass
        spec = BankSpec(
            name=demo.name,
            description=demo.description,
            licence=demo.licence,
            source=demo.source,
            default_scorer=demo.default_scorer,
        )
        with contextlib.suppress(AlreadyExistsError):  # another process was first
            await self._import_new(spec, demo_import(demo), dry_run=False)
        return await self.get_version(demo.name)

    async def _import_new(
        self, spec: BankSpec, request: BankImport, *, dry_run: bool
    ) -> ImportReport:
        bank = bank_of(spec)
        async with self._database.unit_of_work() as uow:
            await scorer_endpoints(uow, [bank.default_scorer])
            if not dry_run:
                await uow.banks.add(bank)
            return await self._import(uow, bank, request, dry_run=dry_run)

    async def publish(self, uow: UnitOfWork, spec: BankSpec, request: BankImport) -> BankVersion:
        """Make a version within the caller's transaction, and its bank if there is none.

        Args:
            uow: Open; commits what belongs together with the version.
            spec: Of the bank, by its id or name; one that is there keeps its own settings.
            request: The parameters.

        Raises:
            InvalidInputError: As for `create_version`.
        """
        try:
            bank = await uow.banks.find(spec.name, for_update=True)
        except NotFoundError:
            bank = bank_of(spec)
            await uow.banks.add(bank)
        return _made(await self._import(uow, bank, request, dry_run=False))

    async def import_into(
        self, bank: str, request: BankImport, *, dry_run: bool = False
    ) -> ImportReport:
        """Import items, parameters or both; parameters make a new version.

        Raises:
            NotFoundError: No such bank.
            InvalidInputError: Nothing to import, an unknown scorer, parameters that fit no item or
                not the response model, or no item left to be asked.
            ConflictError: An item of the bank has the key of an imported one but differs from it.
        """
        async with self._database.unit_of_work() as uow:
            found = await uow.banks.find(bank, for_update=True)
            return await self._import(uow, found, request, dry_run=dry_run)

    async def _import(
        self, uow: UnitOfWork, bank: Bank, request: BankImport, *, dry_run: bool
    ) -> ImportReport:
        if request.from_version is not None:
            request = await _from_version(uow, bank, request)
        table = parameters_of(request)
        if not request.items and table is None:
            raise InvalidInputError("Expected items or parameters to import, got neither.")
        outlines = await uow.items.outlines(bank.id)
        existing = {item.key: item for item in outlines}
        added, items = await asyncio.to_thread(new_items, existing, request.items)
        await scorer_endpoints(uow, await asyncio.to_thread(own_scorers, added))
        if table is not None and not outlines and not added:
            added = bare_items(table)
        outlines += [outline(item) for item in added]
        draft: VersionDraft | None = None
        parameters = Tally()
        renamed: tuple[Renamed, ...] = ()
        findings = tuple(content_findings(outlines))
        if table is not None:
            matched = match_parameters(outlines, table)
            parameters, renamed = matched.tally, matched.renamed
            draft = await asyncio.to_thread(draft_version, outlines, matched, table, request)
            findings = draft.findings
        version = None
        if draft is not None:
            number = await uow.versions.next_number(bank.id)
            version = _version_of(bank, number, draft, request)
        if not dry_run:
            await uow.items.add(bank.id, added)
            if version is not None and draft is not None:
                await uow.versions.add(version, draft.items)
        return ImportReport(
            dry_run=dry_run,
            bank=bank,
            version=version,
            items=items,
            parameters=parameters,
            renamed=renamed,
            findings=findings,
        )

    async def add_item(self, bank: str, record: ItemRecord) -> Item:
        """Add one item.

        Raises:
            NotFoundError: No such bank.
            AlreadyExistsError: Its key is taken.
            InvalidInputError: Its scorer cannot be built, or it brings parameters: those come with
                an import or a new version.
        """
        refuse_parameters(record)
        check_scorers([record])
        item = new_item(record, new_id("itm"))
        async with self._database.unit_of_work() as uow:
            found = await uow.banks.find(bank)
            await scorer_endpoints(uow, own_scorers([item]))
            await uow.items.add(found.id, [item])
            return await uow.items.find(found.id, item.id)

    async def add_batch(self, bank: str, rows: Iterable[ItemRow]) -> list[BatchLine]:
        """Add many items; each line succeeds or fails by itself.

        Raises:
            NotFoundError: No such bank.
            InvalidInputError: More than `MAX_BATCH` lines.
        """
        given = list(rows)
        if len(given) > MAX_BATCH:
            raise InvalidInputError(
                f"Expected at most {MAX_BATCH} lines, got {len(given)}: use an import."
            )
        async with self._database.unit_of_work() as uow:
            found = await uow.banks.find(bank, for_update=True)
            keys = [row.record.key for row in given if row.record is not None]
            existing = await uow.items.by_key(found.id, keys)
            lines = [batch_line(row, existing) for row in given]
            made = [line.new for line in lines if line.new is not None]
            await scorer_endpoints(uow, own_scorers(made))
            await uow.items.add(found.id, made)
            return lines

    async def get_item(self, bank: str, item: str, *, reveal: bool = True) -> Item:
        """An item of a bank by id or key.

        Args:
            bank: Id or name.
            item: Id or key.
            reveal: Whether the content of a withheld bank may be shown.

        Raises:
            NotFoundError: No such bank or item.
        """
        async with self._database.unit_of_work() as uow:
            found = await uow.banks.find(bank)
            return _shown(await uow.items.find(found.id, item), found, reveal)

    async def list_items(
        self, bank: str, request: PageRequest, *, reveal: bool = True
    ) -> Page[Item]:
        """One page of a bank's items; `reveal` as in `get_item`.

        Raises:
            NotFoundError: No such bank.
        """
        async with self._database.unit_of_work() as uow:
            found = await uow.banks.find(bank)
            page = await uow.items.list_page(found.id, request)
        return Page(tuple(_shown(item, found, reveal) for item in page.items), page.has_more)

    async def update_item(
        self, bank: str, item: str, revision: int, changes: Mapping[str, Any]
    ) -> Item:
        """Change fields of an item that no version holds.

        Args:
            bank: Id or name.
            item: Id or key.
            revision: What the change is based on.
            changes: Field to value as in an item file; `None` takes the field away.

        Raises:
            NotFoundError: No such bank or item.
            InvalidStateError: A version holds it.
            PreconditionFailedError: It is not at `revision` any more.
            AlreadyExistsError: The new key is taken.
            InvalidInputError: The changed item would have faults.
        """
        async with self._database.unit_of_work() as uow:
            found = await uow.banks.find(bank)
            old = await uow.items.find(found.id, item)
            record = parse_item({**item_fields(old), **changes})
            check_scorers([record])
            new = new_item(record, old.id)
            await scorer_endpoints(uow, own_scorers([new]))
            return await uow.items.replace(found.id, revision, new)

    async def delete_item(self, bank: str, item: str, revision: int) -> None:
        """Remove an item that no version holds.

        Raises:
            NotFoundError: No such bank or item.
            InvalidStateError: A version holds it.
            PreconditionFailedError: It is not at `revision` any more.
        """
        async with self._database.unit_of_work() as uow:
            found = await uow.banks.find(bank)
            old = await uow.items.find(found.id, item)
            await uow.items.delete(found.id, old.id, revision)

    async def create_version(self, bank: str, request: BankImport) -> BankVersion:
        """Make a version from the parameters of `request`.

        Raises:
            NotFoundError: No such bank.
            InvalidInputError: As for `import_into`, or there are no parameters.
        """
        return _made(await self.import_into(bank, request))

    async def list_versions(self, bank: str, request: PageRequest) -> Page[BankVersion]:
        """One page of a bank's versions.

        Raises:
            NotFoundError: No such bank.
        """
        async with self._database.unit_of_work() as uow:
            return await uow.versions.list_page((await uow.banks.find(bank)).id, request)

    async def get_version(self, bank: str, version: str | int | None = None) -> BankVersion:
        """A version by its number or id; the latest by default.

        Raises:
            NotFoundError: No such bank or version.
        """
        async with self._database.unit_of_work() as uow:
            return await uow.versions.find(await uow.banks.find(bank), version)

    async def resolve_version(self, bank: str, number: int | None = None) -> str:
        """Id of a bank's version, the latest by default.

        Args:
            bank: Id or name.
            number: Of the version.

        Raises:
            NotFoundError: No such bank or version.
            InvalidStateError: The bank has no version yet.
        """
        async with self._database.unit_of_work() as uow:
            found = await uow.banks.find(bank)
            if number is None and not await uow.versions.latest([found.id]):
                raise InvalidStateError(
                    f"Bank {found.name!r} has no version yet: import item parameters first."
                )
            return (await uow.versions.find(found, number)).id

    async def version_items(
        self,
        bank: str,
        version: str,
        request: PageRequest,
        *,
        status: str | None = None,
        flagged: bool = False,
    ) -> Page[VersionItem]:
        """One page of a version's items by position.

        Args:
            bank: Id or name.
            version: Number, id or `latest`.
            request: Which page.
            status: Only items in that state.
            flagged: Only items with lint findings.

        Raises:
            NotFoundError: No such bank, version or item to follow.
        """
        async with self._database.unit_of_work() as uow:
            found = await uow.versions.find(await uow.banks.find(bank), version)
            return await uow.versions.items(found.id, request, status=status, flagged=flagged)

    async def validate_version(
        self, bank: str, version: str, *, allow: Collection[str] = (), keep: Collection[str] = ()
    ) -> Validation:
        """What lint says under other overrides; the version itself stays as it is.

        Raises:
            NotFoundError: No such bank or version.
            InvalidInputError: An override names nothing.
        """
        found = await self.get_version(bank, version)
        async with self._database.unit_of_work() as uow:
            flags = await uow.versions.flags(found.id)
        loaded = await self.load_version(found.id)
        findings = [Finding(item_id=key, **flag) for key, flag in flags]
        keys = {*loaded.keys, *(key for key, _ in flags)}
        left_out = quarantined(findings, keys, allow, keep)
        return Validation(found, findings, left_out)

    async def information(self, bank: str, version: str, theta: FloatArray) -> InformationCurve:
        """Information of the active items over theta.

        Raises:
            NotFoundError: No such bank or version.
        """
        loaded = await self.load_version((await self.get_version(bank, version)).id)
        return await asyncio.to_thread(loaded.information_curve, theta)

    async def difficulty_errors(self, version: LoadedVersion) -> FloatArray:
        """Standard errors of the items' difficulties, from the calibrations behind a version.

        Items that a calibration left as they were have those of the version it was linked to.

        Returns:
            By position, shape (n_items,), logits; NaN where no calibration here tells.
        """
        found: dict[str, float] = {}
        async with self._database.unit_of_work() as uow:
            version_id: str | None = version.id
            while version_id is not None:
                calibration = (await uow.versions.get(version_id)).calibration or {}
                fitted = None
                if calibration:
                    fitted = await uow.calibrations.fitted(calibration["id"])
                if fitted is not None and "se_b" in fitted.columns:
                    for key, error in zip(fitted.keys, fitted.columns["se_b"], strict=True):
                        if math.isfinite(error):
                            found.setdefault(key, float(error))
                version_id = (calibration.get("link") or {}).get("bank_version_id")
        return np.array([found.get(key, math.nan) for key in version.keys])

    async def load_version(self, version_id: str) -> LoadedVersion:
        """A version in memory, under its bank's present settings.

        Versions never change, so the last few are kept.

        Raises:
            NotFoundError: No such version.
        """
        async with self._database.unit_of_work() as uow:
            bank = await uow.banks.of_version(version_id)
        kept = self._versions.get(version_id)
        if kept is not None and kept.bank_revision == bank.revision:
            return kept
        # A hundred sessions that start at once load it once.
        async with self._loading:
            kept = self._versions.get(version_id)
            if kept is None:
                async with self._database.unit_of_work() as uow:
                    version = await uow.versions.get(version_id)
                    columns = await uow.versions.columns(version_id)
                    pretest = await uow.versions.pretest_items(version_id)
                    flags = await uow.versions.flags(version_id)
                    scorers = await uow.versions.own_scorers(version_id)
                kept = await asyncio.to_thread(
                    LoadedVersion.of, bank, version, columns, pretest, flags, scorers
                )
            elif kept.bank_revision != bank.revision:
                kept = kept.under(bank)
            self._versions.put(version_id, kept)
            return kept

    async def adaptive_test(
        self, version: LoadedVersion, design: Design, price: Price | None = None
    ) -> AdaptiveTest:
        """The test of a design on a version, built where it does not hold up the event loop.

        Args:
            version: What is asked.
            design: How.
            price: Of the endpoint, where items are chosen by value for money.

        Raises:
            InvalidInputError: The design cannot be built on this version.
        """
        if design.selection.max_exposure is None:
            return version.adaptive_test(design, price)
        async with self._loading:
            return await asyncio.to_thread(version.adaptive_test, design, price)

    async def items_at(
        self, version: LoadedVersion, positions: Sequence[int]
    ) -> dict[int, BankItem]:
        """The items at some positions of a version, with their text.

        Raises:
            NotFoundError: The version has no item at one of them.
        """
        found = self._kept_items(version, positions)
        if len(found) < len(positions):
            # Sessions that start together miss the same items: the first one fetches for all.
            async with self._fetching:
                found = self._kept_items(version, positions)
                missing = [position for position in positions if position not in found]
                if missing and version.bank.n_items <= _FETCHED_WHOLE:
                    missing = sorted({*range(version.bank.n_items), *missing})
                if missing:
                    async with self._database.unit_of_work() as uow:
                        stored = await uow.versions.items_at(version.id, missing)
                    for position, row in zip(missing, stored, strict=True):
                        found[position] = bank_item(row, position, version.default_scorer)
                        self._items.put(
                            (version.id, version.bank_revision, position), found[position]
                        )
        return found

    def _kept_items(self, version: LoadedVersion, positions: Sequence[int]) -> dict[int, BankItem]:
        return {
            position: item
            for position in positions
            if (item := self._items.get((version.id, version.bank_revision, position)))
        }


async def _from_version(uow: UnitOfWork, bank: Bank, request: BankImport) -> BankImport:
    """The import with all that a version of the bank has instead of new parameters."""
    version = await uow.versions.find(bank, request.from_version)
    if parameters_of(request) is not None or request.scale or request.response_model:
        raise InvalidInputError(
            f"Version {version.number} brings its parameters, scale and response model along: give "
            "from_version, or others, not both."
        )
    columns = await uow.versions.columns(version.id)
    flags = await uow.versions.flags(version.id)
    return replace(
        request,
        parameters=LoadedVersion.of(bank, version, columns).bank,
        scale=version.scale,
        response_model=version.response_model,
        provisional=request.provisional or version.provisional,
        allow={*request.allow, *version.lint["allow"]},
        keep={*request.keep, *version.lint["keep"]},
        # What parameters and texts show is found again; what answers have shown is carried on.
        findings=[
            Finding(item_id=key, **flag) for key, flag in flags if flag["code"] in OF_ANSWERS
        ],
        calibration=version.calibration,
        knowledge=version.knowledge,
    )


def _shown(item: Item, bank: Bank, reveal: bool) -> Item:
    """The item, without what would give it away if its bank is withheld."""
    if reveal or bank.visibility == "open":
        return item
    return replace(item, content=ItemContent(), scorer=None)


async def _overview(uow: UnitOfWork, bank: Bank) -> BankOverview:
    return (await _overviews(uow, [bank]))[0]


async def _overviews(uow: UnitOfWork, banks: Sequence[Bank]) -> tuple[BankOverview, ...]:
    ids = [bank.id for bank in banks]
    counts = await uow.items.counts(ids)
    latest = await uow.versions.latest(ids)
    return tuple(BankOverview(bank, counts[bank.id], latest.get(bank.id)) for bank in banks)


def _made(report: ImportReport) -> BankVersion:
    if report.version is None:
        raise InvalidInputError("Expected parameters of the items, got none.")
    return report.version


def _version_of(bank: Bank, number: int, draft: VersionDraft, request: BankImport) -> BankVersion:
    # Part of the hash in the name: a bank deleted and made again has a scale of another name,
    # unless its parameters are the same, and then so is the scale.
    scale = request.scale or f"{bank.name}-v{number}-{draft.digest[:8]}"
    return BankVersion(
        id=new_id("bkv"),
        bank_id=bank.id,
        number=number,
        response_model=draft.response_model,
        scale=scale,
        parameters_hash=parameters_hash(draft.bank, draft.response_model, scale),
        provisional=request.provisional,
        notes=request.notes,
        lint=draft.summary,
        n_items=len(draft.items),
        n_calibrated=draft.n_calibrated,
        has_content=draft.has_content,
        calibration=request.calibration,
        knowledge=request.knowledge,
        created_at=datetime.now(UTC),
    )
