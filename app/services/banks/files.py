"""Bank versions as files: exports, and bundles, which move a bank to another database."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, BinaryIO

import numpy as np
from cachetools import LRUCache
from pydantic import ValidationError

from app.adapters.prompting import PromptStyle
from app.calibration.logistic.beliefs import ItemBeliefs
from app.engine.bank import ItemBank, ItemIndex
from app.engine.design.design import Design
from app.engine.knowledge import curves_of, with_abilities
from app.engine.lint import OF_ANSWERS, Finding
from app.engine.state import Response
from app.errors import FieldProblem, FileFormatError, InvalidInputError, InvalidStateError
from app.exchange.bank_files import (
    BankFormat,
    item_line,
    shortest_difficulties,
    slopes_by_name,
    write_bank,
)
from app.exchange.bundles import SUFFIX, item_of, line, read_bundle, sealed
from app.exchange.item_record import MAX_PARAMETER
from app.fair_semaphore import FairSemaphore
from app.items import ScorerSpec
from app.records.banks import (
    ACTIVE,
    OPEN,
    PROVISIONAL,
    QUARANTINED,
    Bank,
    BankSpec,
    BankVersion,
    Item,
    Provisional,
    VersionItem,
)
from app.sandbox.pool import Limits, sandbox
from app.services.banks.confined_tests import Materials
from app.services.banks.draft import parameters_hash
from app.services.banks.imports import BankImport, item_fields, parameters_of
from app.services.banks.loaded import LoadedVersion
from app.services.banks.origins import RecentAgents
from app.services.banks.report import ORIGIN, card_of, made_elsewhere
from app.services.banks.service import BankService, ImportReport
from app.services.banks.versions import VersionService, calibration_of
from app.services.responses.confined_reading import DEFAULT_MEMORY, SentFile
from app.services.visibility import View
from app.services.waiting import InProgress
from app.storage.database import Database
from app.storage.repositories.banks import scorer_json

#: Items in one read: it makes one block of the file in memory, in a short transaction.
_PAGE = 100
_BLOCK_BYTES = 1 << 18
#: Callers that ask for files take turns, one block each.
_MAKING = FairSemaphore(1, waiting=10_000, spare=1)
#: Number of finished files kept for the next request; each takes some megabytes at most.
_KEPT = 2

Page = Sequence[tuple[VersionItem, Item]]


@dataclass(frozen=True, slots=True)
class BankFile:
    """A bank version as a file to send."""

    version: BankVersion
    name: str
    media_type: str
    blocks: AsyncIterator[bytes]
    withheld: bool = False


@dataclass(frozen=True, eq=False)
class BankExports:
    """Gives out bank versions."""

    database: Database
    versions: VersionService
    _kept: LRUCache[tuple[str, BankFormat], tuple[ItemBank, bytes]] = field(
        init=False, default_factory=lambda: LRUCache(_KEPT)
    )
    _writing: InProgress[tuple[str, BankFormat], bytes] = field(
        init=False, default_factory=InProgress
    )

    async def export(
        self, bank: str, version: str | None, file_format: BankFormat, *, reveal: bool
    ) -> BankFile:
        """One version as a file of all items with parameters; `jsonl` includes pretest items.

        Raises:
            ItemBankError: The format cannot hold the parameters.
        """
        found = await self.versions.get(bank, version)
        loaded = await self.versions.load(found.id)
        name = f"{loaded.bank_name}-v{found.number}.{file_format.suffix}"
        withheld = False
        if file_format is BankFormat.JSONL:
            withheld = not View(is_whole=reveal).shows(withheld=loaded.visibility != OPEN)
            write = await asyncio.to_thread(_line_writer, loaded.bank, withheld=withheld)
            blocks = written_by_page(self.database, found.id, write)
        else:
            blocks = _cut(await self._written(loaded, file_format))
        return BankFile(found, name, file_format.media_type, blocks, withheld)

    async def _written(self, version: LoadedVersion, file_format: BankFormat) -> bytes:
        """The whole file; requests for the same file at the same time write it only once."""
        asked = version.id, file_format
        bank, content = self._kept.get(asked, (None, b""))
        if bank is not version.bank:
            content = await self._writing.once(
                asked, lambda: asyncio.to_thread(_write, version, file_format)
            )
            self._kept[asked] = version.bank, content
        return content


async def written_by_page(
    database: Database, version_id: str, write: Callable[[Page], bytes]
) -> AsyncIterator[bytes]:
    """All items of a version as a file; each block is one page of items.

    Pages are made one at a time over all requests, plus one more for another API key.

    `write` turns a page into a block of the file, in a thread.
    """
    after = -1
    while True:
        async with _MAKING.turn():
            async with database.unit_of_work() as uow:
                page = await uow.versions.contents(version_id, after=after, limit=_PAGE)
            if not page:
                return
            block = await asyncio.to_thread(write, page)
        yield block
        after = page[-1][0].position


def _write(version: LoadedVersion, file_format: BankFormat) -> bytes:
    statuses = [ACTIVE if active else QUARANTINED for active in version.active.tolist()]
    return write_bank(version.bank, file_format, statuses)


async def _cut(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), _BLOCK_BYTES):
        yield content[start : start + _BLOCK_BYTES]


def _line_writer(bank: ItemBank, *, withheld: bool) -> Callable[[Page], bytes]:
    """Make a function that writes items as lines; slopes of several abilities are standardised."""
    bank = bank.standardised()
    difficulties, slopes = shortest_difficulties(bank), slopes_by_name(bank)

    def line(member: VersionItem, item: Item) -> bytes:
        fields = item_fields(item)
        if withheld:
            fields |= dict.fromkeys(("prompt", "messages", "choices", "target", "scorer"))
        if member.a is not None:
            at = member.position
            b = float(difficulties[at])
            fields |= {
                "a": float(bank.a[at]),
                # Where a is about 0, no difficulty exists, or none with a meaning.
                "b": b if abs(b) <= MAX_PARAMETER else None,
                "intercept": float(bank.intercept[at]),
                "slopes": {name: float(values[at]) for name, values in slopes.items()},
                "c": member.c,
                "d": member.d,
                "k": member.k,
            }
        return item_line(fields)

    return lambda page: b"".join(line(*each) for each in page)


_SETTINGS = ("name", "description", "licence", "source", "unparsed_policy", "pretest_items")
#: Settings that need conversion, and `visibility`: withheld texts leave by no export.
_SETTINGS_TOO = ("prompt", "metadata", "default_scorer", "visibility")
_VERSION = ("response_model", "scale", "parameters_hash", "provisional", "notes")
_NOT_TOLD = ("knowledge", "dropped", "score_only", "response_set_revision")


@dataclass(frozen=True, eq=False)
class Bundles:
    """Writes versions into bundles, and makes banks from bundles."""

    database: Database
    banks: BankService
    versions: VersionService
    #: Limit in bytes for reading an uploaded bundle.
    memory: int = DEFAULT_MEMORY

    async def export(self, bank: str, version: str | None = None) -> BankFile:
        """A version with its items, settings and knowledge, as one file.

        Raises:
            InvalidStateError: The bank is withheld.
        """
        found = await self.versions.get(bank, version)
        async with self.database.unit_of_work() as uow:
            owner = await uow.banks.of_version(found.id)
            findings = await uow.versions.findings(found.id)
            origin = dict(found.knowledge.get(ORIGIN, {}))
            if (record := await calibration_of(uow, found)) is not None:
                origin = {
                    "model": record.settings["model"],
                    "result": {
                        name: value
                        for name, value in (record.result or {}).items()
                        if name not in _NOT_TOLD
                    },
                }
        if owner.visibility != OPEN:
            raise InvalidStateError(
                f"Bank {owner.name!r} is withheld: a bundle would give its questions away. Export "
                "its parameters alone with --format csv."
            )
        head = [
            line({"bank": _settings(owner)}),
            line({"version": _known(found, findings, origin)}),
        ]
        return BankFile(
            found,
            f"{owner.name}-v{found.number}.{SUFFIX}",
            "application/x-ndjson",
            sealed(self._lines(found.id, head)),
        )

    async def import_file(self, file: SentFile, name: str | None = None) -> ImportReport:
        """Make a bank from an uploaded bundle, or a version of the bank if it exists.

        By default the bank has the name in the bundle.

        Raises:
            InvalidInputError: The file is no bundle, was changed, or exceeds a limit.
            ConflictError: The bank has other items under the same keys.
        """
        async with sandbox().made(
            read_sent_bundle,
            file.name,
            [file.content],
            limits=Limits(memory=self.memory, seconds=300.0, output=self.memory),
            subject=file.name,
            advice="is it a bundle",
        ) as (value, output):
            spec, request = await asyncio.to_thread(
                _import_of, value["bank"], value["version"], map(json.loads, output), file.name
            )
        if name is not None:
            spec = replace(spec, name=name)
        return await self.banks.import_bank(spec, request)

    async def _lines(self, version_id: str, head: Sequence[bytes]) -> AsyncIterator[bytes]:
        for part in head:
            yield part
        written = written_by_page(
            self.database, version_id, lambda page: b"".join(_line(*each) for each in page)
        )
        async for block in written:
            yield block


def read_sent_bundle(name: str, attachments: Sequence[bytes], output: BinaryIO) -> Any:
    """Read a bundle in the child process: write items as lines, and return the rest."""
    bundle = read_bundle(attachments[0], name)
    _, request = _import_of(bundle.bank, bundle.version, bundle.items, name)
    _require_usable(request, bundle.version, name)
    for fields in bundle.items:
        output.write(line(fields))
    return {"bank": dict(bundle.bank), "version": dict(bundle.version)}


def _import_of(
    bank: Mapping[str, Any],
    version: Mapping[str, Any],
    items: Iterable[Mapping[str, Any]],
    name: str,
) -> tuple[BankSpec, BankImport]:
    try:
        PromptStyle.from_dict(bank["prompt"])
    except InvalidInputError as exc:
        problems = [
            FieldProblem(f"/bank/prompt{fault.pointer}", fault.detail.removesuffix("."))
            for fault in exc.problems
        ]
        raise FileFormatError(
            f"{name} was not written by an export: {problems[0].pointer}: {problems[0].detail}.",
            problems=problems,
        ) from None
    try:
        if unknown := bank.keys() - {*_SETTINGS, *_SETTINGS_TOO}:
            raise FileFormatError(
                f"{name}: the bank has the setting {min(unknown)!r:.100}, which is not known here."
            )
        spec = BankSpec(
            **{field: bank[field] for field in (*_SETTINGS, "prompt", "metadata")},
            visibility=bank.get("visibility", OPEN),
            default_scorer=ScorerSpec(**bank["default_scorer"]),
        )
        knowledge = dict(version["knowledge"])
        if version["origin"]:
            knowledge[ORIGIN] = version["origin"]
        records = [item_of(fields, row, name) for row, fields in enumerate(items, 4)]
        request = BankImport(
            items=records,
            as_they_are=True,
            response_model=version["response_model"],
            scale=version["scale"],
            allow=version["allow"],
            keep=version["keep"],
            provisional=version["provisional"],
            notes=version["notes"],
            findings=[Finding(**finding) for finding in version["findings"]],
            knowledge=knowledge,
        )
    except (KeyError, TypeError, AttributeError) as exc:
        raise FileFormatError(
            f"{name} is no bundle: a field is missing or of another type ({exc!r:.200})."
        ) from None
    return spec, request


def _require_usable(request: BankImport, version: Mapping[str, Any], name: str) -> None:
    """Try what sessions and reports do with a version, before any of it is stored.

    Memory and time depend on the file, so this runs only in a confined process.
    """
    knowledge, table = request.knowledge, parameters_of(request)
    if table is None:
        raise FileFormatError(f"{name} has no parameters.")
    try:
        whole = with_abilities(table, knowledge)
        found = parameters_hash(whole, version["response_model"], version["scale"])
        _try_test(whole, knowledge, [one.tags for one in request.items if one.parameters])
        made_elsewhere(knowledge, whole.item_ids)
        card_of(knowledge)
        if (agents := RecentAgents.of(knowledge)) is not None:
            agents.rank(0.5)
        if Provisional.of(knowledge) is not None:
            ItemBeliefs.from_dict(knowledge[PROVISIONAL]["beliefs"])
    except ValidationError as exc:
        first = exc.errors()[0]
        place = "/".join(map(str, first["loc"]))
        raise FileFormatError(
            f"{name}: its facts about the version: /{place}: {first['msg']}."
        ) from None
    except InvalidInputError as exc:
        raise FileFormatError(f"{name}: its facts about the version: {exc.detail}") from None
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as exc:
        raise FileFormatError(
            f"{name}: its facts about the version cannot be read: {exc!r:.200}."
        ) from None
    if found != version["parameters_hash"]:
        raise FileFormatError(
            f"{name}: expected parameters of the hash {version['parameters_hash']}, as the "
            f"bundle says, got {found}: it was not written by an export."
        )


def _try_test(bank: ItemBank, knowledge: Mapping[str, Any], tags: Sequence[Sequence[str]]) -> None:
    """Try two tests, of a wrong and of a right answer: estimate, predict, place the examinee."""
    everything = np.ones(bank.n_items, dtype=np.bool_)
    materials = Materials(bank=bank, active=everything, tags=tags, knowledge=knowledge)
    test, curves = materials.test(Design.from_dict({})), curves_of(bank, knowledge)
    for score in (0.0, 1.0):
        state = test.replay([Response(ItemIndex(0), score)])
        test.estimate(state)
        test.predict(state)
        if curves is not None:
            curves.place(state.responses)


def _settings(bank: Bank) -> dict[str, Any]:
    return {
        **{field: getattr(bank, field) for field in _SETTINGS},
        "prompt": dict(bank.prompt),
        "metadata": dict(bank.metadata),
        "default_scorer": scorer_json(bank.default_scorer),
    }


def _known(
    version: BankVersion, findings: Sequence[Finding], origin: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        **{field: getattr(version, field) for field in _VERSION},
        "allow": version.lint["allow"],
        "keep": version.lint["keep"],
        # Lint finds faults of parameters and texts again, so only findings of answers are copied.
        "findings": [asdict(finding) for finding in findings if finding.code in OF_ANSWERS],
        "knowledge": {name: part for name, part in version.knowledge.items() if name != ORIGIN},
        "origin": dict(origin),
    }


def _line(member: VersionItem, item: Item) -> bytes:
    fields = item_fields(item)
    if member.a is not None:
        fields |= {name: getattr(member, name) for name in ("a", "intercept", "c", "d", "k")}
    return line({"item": json.loads(item_line(fields))})
