"""Create and change banks, and fill them by imports; imported parameters make a version."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from app.demo.bank import demo_bank
from app.engine.knowledge import CURVES
from app.engine.lint import Finding
from app.errors import AlreadyExistsError, InvalidInputError, InvalidStateError, NotFoundError
from app.exchange.items import FieldMap
from app.fair_semaphore import FairSemaphore
from app.records.banks import Bank, BankSpec, BankVersion, VersionItem
from app.services.banks.draft import content_findings, draft_version, repeats
from app.services.banks.imports import (
    BankImport,
    Renamed,
    Tally,
    bare_items,
    demo_import,
    match_parameters,
    new_items,
    outline,
    own_scorers,
    parameters_of,
    repeated,
)
from app.services.banks.overviews import BankOverview, list_banks, overviews
from app.services.banks.provisional import asking_as, from_version, with_guesses
from app.services.banks.spec import (
    Faults,
    check_spec,
    faults_of,
    is_bank_id,
    new_bank,
    require_markable,
    require_usable,
)
from app.services.endpoints.specs import scorer_endpoints
from app.services.responses.confined_reading import Reader, SentFile
from app.storage.database import Database
from app.storage.paging import Page, PageRequest
from app.storage.unit_of_work import UnitOfWork

#: Imports up to these sizes (bytes of text, rows of a body) do not wait behind larger ones.
_SMALL_FILE = 256 * 1024
_SMALL_ROWS = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an import did, or would do.

    Attributes:
        version: The version that the import made, or the bank's latest one where it would say
            nothing else; `None` without parameters.
    """

    dry_run: bool
    bank: Bank
    version: BankVersion | None
    items: Tally
    parameters: Tally
    renamed: tuple[Renamed, ...]
    findings: tuple[Finding, ...]

    @property
    def n_findings(self) -> int:
        """Number of findings."""
        return len(self.findings)


class BankService:
    """Use cases of banks."""

    def __init__(self, database: Database, reader: Reader | None = None) -> None:
        self._database = database
        self._reader = reader or Reader()
        # One large import at a time: 200,000 items take hundreds of megabytes.
        self._small, self._large = FairSemaphore(2), FairSemaphore(1)

    async def create_bank(self, spec: BankSpec) -> BankOverview:
        """Make an empty bank.

        Raises:
            AlreadyExistsError: Its name is taken.
            InvalidInputError: A scorer, prompt or policy that cannot be used.
        """
        bank = new_bank(spec)
        await require_usable(bank.default_scorer)
        async with self._database.unit_of_work() as uow:
            await scorer_endpoints(uow, [bank.default_scorer])
            await uow.banks.add(bank)
            return await _overview(uow, await uow.banks.find(bank.id))

    async def get_bank(self, bank: str) -> BankOverview:
        """A bank by id or name."""
        async with self._database.unit_of_work() as uow:
            return await _overview(uow, await uow.banks.find(bank))

    async def list_banks(self, request: PageRequest) -> Page[BankOverview]:
        """One page of banks."""
        return await list_banks(self._database, request)

    async def update_bank(
        self, bank: str, revision: int, changes: Mapping[str, Any]
    ) -> BankOverview:
        """Change fields of `BankSpec`.

        Raises:
            PreconditionFailedError: It is not at `revision` any more.
            AlreadyExistsError: The new name is taken.
            InvalidInputError: As for `create_bank`.
            InvalidStateError: The change would stop sharing a bank that other projects have used.
        """
        if (scorer := changes.get("default_scorer")) is not None:
            await require_usable(scorer)
        async with self._database.unit_of_work() as uow:
            old = await uow.banks.find(bank, for_update=True)
            changed = replace(old, **changes)
            check_spec(changed)
            if old.shared and not changed.shared and await uow.banks.used_elsewhere(old.id):
                raise InvalidStateError(
                    f"Bank {old.name!r} stays shared: other projects have measured on it. "
                    "Delete it to refuse new sessions; their results stay."
                )
            await scorer_endpoints(uow, [changed.default_scorer])
            updated = await uow.banks.update(old.id, revision, changes)
            return await _overview(uow, updated)

    async def delete_bank(self, bank: str, revision: int, *, erases: bool = False) -> None:
        """Take a bank out of use. Sessions on its versions stay and can go on.

        Its rows are deleted with the last of these sessions, or at once where there is none.

        Raises:
            PreconditionFailedError: It is not at `revision` any more.
            InvalidStateError: `erases` is set, and sessions or rankings still use the bank.
        """
        async with self._database.unit_of_work() as uow:
            found = await uow.banks.archive(bank, revision)
            if erases:
                users = await uow.removals.users_of_bank(found.id, found.project_id)
                if users:
                    raise InvalidStateError(
                        f"Bank {found.name!r} is in use by {users}: delete these first."
                    )
                await uow.removals.published_from(found.id)
            await uow.removals.unused(found.id, endpoints=())

    async def import_bank(
        self, spec: BankSpec, request: BankImport, *, dry_run: bool = False
    ) -> ImportReport:
        """Import into the bank named `spec.name`; a missing bank is created.

        An existing bank keeps its settings. Either everything is written or nothing. Errors are
        those of `import_into`.
        """
        try:
            return await self.import_into(spec.name, request, dry_run=dry_run)
        except NotFoundError:
            if is_bank_id(spec.name):
                raise
        try:
            return await self._import_new(spec, request, dry_run=dry_run)
        except AlreadyExistsError:  # somebody made the bank meanwhile
            return await self.import_into(spec.name, request, dry_run=dry_run)

    async def import_into(
        self, bank: str, request: BankImport, *, dry_run: bool = False
    ) -> ImportReport:
        """Import items, parameters or both; parameters make a new version.

        Raises:
            InvalidInputError: Nothing to import, an unknown scorer, parameters that match no item
                or not the response model, or no item is left that may be asked.
            ConflictError: An item of the bank has the key of an imported one but differs from it.
        """
        faults = await faults_of(record.scorer for record in request.items)
        async with self._database.unit_of_work() as uow:
            found = await uow.banks.find(bank, for_update=True)
            return await self._import(uow, found, request, faults, dry_run=dry_run)

    @asynccontextmanager
    async def files_read(
        self,
        request: BankImport,
        *,
        items: SentFile | None = None,
        mapping: FieldMap | None = None,
        parameters: SentFile | None = None,
    ) -> AsyncIterator[BankImport]:
        """Read uploaded files for `import_into`; the import has its turn until the block ends.

        `mapping` names the fields of `items`, if it is not in the item file format.

        Raises:
            InvalidInputError: Faults in a file, each with file, row and field.
            BusyError: Too many imports are waiting.
        """
        is_large = any(
            file and (file.is_packed or len(file.content) > _SMALL_FILE)
            for file in (items, parameters)
        )
        async with (self._large if is_large else self._small).turn():
            yield replace(
                request,
                items=await self._reader.items(items, mapping) if items else (),
                parameters=await self._reader.parameters(parameters) if parameters else None,
            )

    def turn(self, n_rows: int | None) -> AbstractAsyncContextManager[None]:
        """Turn of an import of `n_rows` rows (None: unknown); it lasts until the block ends.

        Raises:
            BusyError: On entering, too many imports are waiting.
        """
        is_large = n_rows is None or n_rows > _SMALL_ROWS
        return (self._large if is_large else self._small).turn()

    async def create_version(self, bank: str, request: BankImport) -> BankVersion:
        """Make a version from the parameters of `request`, unless the latest says the same.

        Raises:
            InvalidInputError: As for `import_into`, or there are no parameters.
        """
        return _made(await self.import_into(bank, request))

    async def publish(self, uow: UnitOfWork, spec: BankSpec, request: BankImport) -> BankVersion:
        """Make a version within the caller's transaction, and its bank if it is missing.

        An existing bank keeps its settings. No item of `request` has a scorer.

        Raises:
            InvalidInputError: As for `create_version`.
        """
        bank = await uow.banks.known(spec.name, for_update=True)
        if bank is None:
            if is_bank_id(spec.name):
                raise NotFoundError("bank", spec.name)
            bank = new_bank(spec)
            await uow.banks.add(bank)
        return _made(await self._import(uow, bank, request, {}, dry_run=False))

    async def bring_in(self, uow: UnitOfWork, spec: BankSpec, request: BankImport) -> ImportReport:
        """Import items within the caller's transaction; a missing bank is created.

        A bank whose items all lack texts takes its way of asking from `spec`, whose default scorer
        the caller has checked. The items have no scorers of their own.

        Raises:
            InvalidInputError: As for `import_into`.
            ConflictError: As for `import_into`, or the bank of that name asks in another way.
        """
        bank = await uow.banks.known(spec.name, for_update=True)
        if bank is None:
            bank = new_bank(spec)
            await uow.banks.add(bank)
        else:
            bank = await asking_as(uow, bank, spec)
        await scorer_endpoints(uow, [bank.default_scorer])
        return await self._import(uow, bank, request, {}, dry_run=False)

    async def ensure_demo_bank(self) -> BankVersion:
        """The latest version of the bundled demo bank, which is installed if it is missing.

        Raises:
            NotFoundError: A bank of that name exists and has no version.
        """
        demo = demo_bank()
        try:
            return await self._latest(demo.name)
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
        return await self._latest(demo.name)

    async def _latest(self, bank: str) -> BankVersion:
        async with self._database.unit_of_work() as uow:
            return await uow.versions.find(await uow.banks.find(bank))

    async def _import_new(
        self, spec: BankSpec, request: BankImport, *, dry_run: bool
    ) -> ImportReport:
        bank = new_bank(spec)
        await require_usable(bank.default_scorer)
        faults = await faults_of(record.scorer for record in request.items)
        async with self._database.unit_of_work() as uow:
            await scorer_endpoints(uow, [bank.default_scorer])
            if not dry_run:
                await uow.banks.add(bank)
            return await self._import(uow, bank, request, faults, dry_run=dry_run)

    async def _import(
        self, uow: UnitOfWork, bank: Bank, request: BankImport, faults: Faults, *, dry_run: bool
    ) -> ImportReport:
        if request.from_version is not None:
            request = await from_version(uow, bank, request)
        table = await asyncio.to_thread(parameters_of, request)
        guesses = request.provisional and table is None
        guessed = any(record.difficulty is not None for record in request.items)
        if not guesses and (guessed or request.difficulty is not None):
            raise InvalidInputError(
                "Guesses of difficulty are for a provisional import without parameters: say "
                "`provisional`, or leave them out."
            )
        if not request.items and table is None and not guesses:
            raise InvalidInputError("Expected items or parameters to import, got neither.")
        outlines = await uow.items.outlines(bank.id)
        existing = {item.key: item for item in outlines}
        coming = await asyncio.to_thread(
            new_items, existing, request.items, faults, counted_tokens=request.counted_tokens
        )
        if not request.as_they_are:
            await asyncio.to_thread(require_markable, request.items, bank.default_scorer)
        added, items = coming.added, coming.tally
        await scorer_endpoints(uow, await asyncio.to_thread(own_scorers, added + coming.filled))
        latest = (await uow.versions.latest([bank.id])).get(bank.id)
        if coming.filled and table is None and latest is not None:
            # Lint has not checked these texts, so a new version replaces the one without texts.
            request = await from_version(uow, bank, replace(request, from_version="latest"))
            table = request.parameters
        if table is not None and not outlines and not added:
            added = await asyncio.to_thread(bare_items, table)
        texts = {item.key: outline(item) for item in coming.filled}
        outlines = [texts.get(item.key, item) for item in outlines]
        outlines += await asyncio.to_thread(lambda: [outline(item) for item in added])
        if guesses:
            if latest is not None and (not latest.provisional or CURVES in latest.knowledge):
                raise InvalidStateError(
                    f"Bank {bank.name} has version {latest.number} with parameters or curves "
                    "that are not guesses: a provisional import would put guesses in their "
                    "place. Import into another bank."
                )
            before = {} if latest is None else latest.knowledge
            request = await asyncio.to_thread(with_guesses, request, outlines, before)
            table = request.parameters
        version: BankVersion | None = None
        members: Sequence[VersionItem] = ()
        parameters = Tally()
        renamed: tuple[Renamed, ...] = ()
        if table is None:
            findings = await asyncio.to_thread(content_findings, outlines, bank.default_scorer)
        else:
            matched = await asyncio.to_thread(match_parameters, outlines, table)
            draft = await asyncio.to_thread(
                draft_version, bank, latest, outlines, matched, table, request
            )
            parameters, renamed = matched.tally, matched.renamed
            version, members, findings = draft.version, draft.items, [*draft.findings]
            known = None if added or coming.filled else latest
            if known is not None and await asyncio.to_thread(repeats, version, known):
                version = known
                parameters = repeated(parameters, [item.key for item in matched.items])
        if not dry_run:
            await uow.items.add(bank.id, added)
            await uow.items.fill(bank.id, coming.filled)
            if version is not None and version is not latest:
                await uow.versions.add(version, members)
        return ImportReport(
            dry_run=dry_run,
            bank=bank,
            version=version,
            items=items,
            parameters=parameters,
            renamed=renamed,
            findings=tuple(findings),
        )


async def _overview(uow: UnitOfWork, bank: Bank) -> BankOverview:
    return (await overviews(uow, [bank]))[0]


def _made(report: ImportReport) -> BankVersion:
    if report.version is None:
        raise InvalidInputError("Expected parameters of the items, got none.")
    return report.version
