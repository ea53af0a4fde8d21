"""Versions of banks: shown, judged, loaded for tests, and composed to fixed short forms."""

import asyncio
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from cachetools import LRUCache

from app.acting import seeing
from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray
from app.engine.design.design import Design
from app.engine.design.facts import BankFacts
from app.engine.knowledge import ABILITIES, abilities_to_dict
from app.engine.lint import Finding
from app.engine.models.base import BoolArray
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.prediction.score_model import ShortForm, compose
from app.engine.prediction.targets import WHOLE_BANK
from app.errors import FieldProblem, InvalidInputError, InvalidStateError, NotFoundError
from app.records.banks import BankVersion, Item, VersionItem
from app.records.calibrations import CalibrationRecord
from app.records.endpoints import Price
from app.records.sessions import Asking
from app.services.banks.confined_tests import Materials, fitted_acceptance
from app.services.banks.draft import quarantined
from app.services.banks.loaded import BankItem, InformationCurve, LoadedVersion
from app.services.waiting import InProgress
from app.storage.database import Database
from app.storage.paging import Page, PageRequest
from app.storage.unit_of_work import UnitOfWork

_CACHED_VERSIONS = 8
#: Versions up to this number of items are fetched in one query instead of hundreds.
_FETCHED_WHOLE = 1024
_CACHED_ITEMS = 20_000
#: Above this number of items, tests are built in a thread.
_BUILT_AT_ONCE = 2000


@dataclass(frozen=True, slots=True)
class Validation:
    """Lint findings of a version, and the keys of items quarantined under given overrides."""

    version_id: str
    findings: Sequence[Finding]
    n_findings: int
    quarantined: Sequence[str]
    n_quarantined: int


class VersionService:
    """Use cases of bank versions; `BankService` makes them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._versions: LRUCache[str, LoadedVersion] = LRUCache(_CACHED_VERSIONS)
        # By version and position. The cached items do not depend on the session: sessions on one
        # version may use different scorers.
        self._items: LRUCache[tuple[str, int], Item] = LRUCache(_CACHED_ITEMS)
        self._loading = asyncio.Lock()
        self._building: InProgress[tuple[str, str], AdaptiveTest] = InProgress()
        self._fitting: InProgress[tuple[str, str], FloatArray] = InProgress()
        self._fetching = asyncio.Lock()

    async def list_page(self, bank: str, request: PageRequest) -> Page[BankVersion]:
        """One page of a bank's versions."""
        async with self._database.unit_of_work() as uow:
            return await uow.versions.list_page((await uow.banks.find(bank)).id, request)

    async def get(self, bank: str, version: str | int | None = None) -> BankVersion:
        """A version by its number or id; the latest by default."""
        async with self._database.unit_of_work() as uow:
            return await uow.versions.find(await uow.banks.find(bank), version)

    async def by_id(self, version_id: str) -> BankVersion:
        """A version of any bank by its id."""
        async with self._database.reading() as uow:
            return await uow.versions.get(version_id)

    async def items(
        self,
        bank: str,
        version: str,
        request: PageRequest,
        *,
        status: str | None = None,
        flagged: bool = False,
    ) -> Page[VersionItem]:
        """One page of a version's items by position, only of this status, or with lint findings."""
        async with self._database.unit_of_work() as uow:
            found = await uow.versions.find(await uow.banks.find(bank), version)
            return await uow.versions.items(found.id, request, status=status, flagged=flagged)

    async def validate(
        self, bank: str, version: str, *, allow: Collection[str] = (), keep: Collection[str] = ()
    ) -> Validation:
        """Lint a version under other overrides; the version itself stays unchanged.

        Raises:
            InvalidInputError: An override names nothing.
        """
        found = await self.get(bank, version)
        async with self._database.unit_of_work() as uow:
            findings = await uow.versions.findings(found.id)
        loaded = await self.load(found.id)
        named = {finding.item_id for finding in findings}
        left_out = await asyncio.to_thread(
            lambda: quarantined(findings, named.union(loaded.keys), allow, keep)
        )
        return Validation(found.id, findings, len(findings), sorted(left_out), len(left_out))

    async def compose(
        self,
        bank: str,
        version: str | None,
        *,
        items: int,
        target: Mapping[str, float] | None,
        ask: Sequence[str],
        costs: Mapping[str, float] | str | None,
    ) -> tuple[LoadedVersion, ShortForm]:
        """The best fixed form of a version; it is not stored, as the returned weights are the form.

        Costs are given by item key, or are the `expected_tokens` of the items.

        Raises:
            InvalidInputError: The version predicts no scores, the tag has no items, an item has
                no known cost, or the form asks for more items than exist.
        """
        loaded = await self.load((await self.get(bank, version)).id)
        return loaded, await asyncio.to_thread(_composed, loaded, items, target, ask, costs)

    async def information(self, bank: str, version: str, theta: FloatArray) -> InformationCurve:
        """Information of the active items over theta."""
        loaded = await self.load((await self.get(bank, version)).id)
        return await asyncio.to_thread(loaded.information_curve, theta)

    async def curve_errors(self, version: LoadedVersion) -> FloatArray:
        """Standard errors of difficulties, logits, and slopes, from the calibrations of a version.

        Items that a calibration carried over have the errors of the version it was linked to. The
        shape is (n_items, 2), by position; NaN where unknown here.
        """
        names = ("se_b", "se_a")
        found: dict[tuple[str, str], float] = {}
        async with self._database.unit_of_work() as uow:
            lender = await uow.banks.of_version(version.id)
            with seeing(lender.project_id):
                version_id: str | None = version.id
                while version_id is not None:
                    try:
                        calibration = (await uow.versions.get(version_id)).calibration or {}
                    except NotFoundError:  # the version it was linked to was deleted since
                        break
                    made_by, fitted = calibration.get("id"), None
                    if made_by is not None:
                        fitted = await uow.calibrations.fitted(made_by)
                    if fitted is not None and "se_b" in fitted.columns:
                        for name in names:
                            for key, error in zip(fitted.keys, fitted.columns[name], strict=True):
                                if math.isfinite(error):
                                    found.setdefault((key, name), float(error))
                    version_id = (calibration.get("link") or {}).get("bank_version_id")
        return np.array(
            [[found.get((key, name), math.nan) for name in names] for key in version.keys]
        )

    async def load(
        self, version_id: str | None = None, *, bank: str | None = None
    ) -> LoadedVersion:
        """A version in memory, under its bank's present settings.

        Versions never change, so the last few are kept. Instead of an id, the id or name of a bank
        means its newest version.

        Raises:
            InvalidStateError: The bank has no version yet.
        """
        async with self._database.reading() as uow:
            if version_id is None:
                found, version_id = await uow.banks.with_newest(bank or "")
            else:
                found = await uow.banks.of_version(version_id)
        if version_id is None:
            raise InvalidStateError(
                f"Bank {found.name!r} has no version yet: import item parameters first, "
                f"or guess them: sextant banks import {found.name} --provisional"
            )
        kept = self._versions.get(version_id)
        if kept is not None and kept.bank_revision == found.revision:
            return kept
        # A hundred sessions that start at once load the version only once.
        async with self._loading:
            kept = self._versions.get(version_id)
            if kept is not None and kept.n_without_content and kept.bank_revision != found.revision:
                kept = None  # its items may have got texts since it was loaded
                for name in [name for name in self._items if name[0] == version_id]:
                    del self._items[name]
            if kept is None:
                async with self._database.unit_of_work() as uow:
                    version = await uow.versions.get(version_id)
                    columns = await uow.versions.columns(version_id)
                    pretest = await uow.versions.pretest_items(version_id)
                    findings = await uow.versions.findings(version_id)
                    scorers = await uow.versions.own_scorers(version_id)
                kept = await asyncio.to_thread(
                    LoadedVersion.of, found, version, columns, pretest, findings, scorers
                )
            elif kept.bank_revision != found.revision:
                kept = kept.under(found)
            self._versions[version_id] = kept
            return kept

    async def load_as(self, version_id: str, asking: Asking) -> LoadedVersion:
        """A version in memory, asked as a session asks it whatever its bank's settings are now."""
        kept = self._versions.get(version_id) or await self.load(version_id)
        return kept.asking_as(asking)

    async def adaptive_test(
        self, version: LoadedVersion, design: Design, price: Price | None = None
    ) -> AdaptiveTest:
        """The test of a design on a version; large tests are built outside the event loop.

        Exposure control is fitted by simulation, which takes seconds to minutes the first time.
        Only callers that want the same test wait for it.

        Raises:
            InvalidInputError: The design cannot be built on this version.
            BusyError: Too many designs are being fitted.
        """
        name = version.test_name(design, price)
        test = version.tests.get(name)
        if test is None:
            test = await self._building.once(
                (version.id, name), lambda: self._built(version, design, price)
            )
            version.tests[name] = test
        return test

    async def _built(
        self, version: LoadedVersion, design: Design, price: Price | None
    ) -> AdaptiveTest:
        acceptance = await self._acceptance(version, design, price)
        if version.bank.n_items <= _BUILT_AT_ONCE:
            return version.adaptive_test(design, price, acceptance)
        return await asyncio.to_thread(version.adaptive_test, design, price, acceptance)

    async def materials(
        self, version: LoadedVersion, design: Design, price: Price | None = None
    ) -> Materials:
        """Materials of the test of a design, for a child process that builds the test itself.

        Raises:
            InvalidInputError: The design cannot be built on this version.
            BusyError: Too many designs are being fitted.
        """
        async with self._database.unit_of_work() as uow:
            knowledge = (await uow.versions.get(version.id)).knowledge
        acceptance = await self._acceptance(version, design, price)
        return replace(
            _materials(version, design, price), knowledge=knowledge, acceptance=acceptance
        )

    async def _acceptance(
        self, version: LoadedVersion, design: Design, price: Price | None
    ) -> FloatArray | None:
        if design.selection.exposure is None:
            return None
        name = version.test_name(design, price)
        acceptance = version.acceptances.get(name)
        if acceptance is None:
            acceptance = await self._fitting.once(
                (version.id, name),
                lambda: fitted_acceptance(design, _materials(version, design, price)),
            )
            version.acceptances[name] = acceptance
        return acceptance

    async def items_at(
        self, version: LoadedVersion, positions: Sequence[int]
    ) -> dict[int, BankItem]:
        """The items at some positions of a version, with their texts and scorers.

        Raises:
            NotFoundError: The version has no item at one of them.
        """
        found = self._kept_items(version.id, positions)
        if len(found) < len(positions):
            # Sessions that start together need the same items: the first one fetches them for all.
            async with self._fetching:
                found = self._kept_items(version.id, positions)
                missing = [position for position in positions if position not in found]
                if missing and version.bank.n_items <= _FETCHED_WHOLE:
                    missing = sorted({*range(version.bank.n_items), *missing})
                if missing:
                    async with self._database.unit_of_work() as uow:
                        stored = await uow.versions.items_at(version.id, missing)
                    for position, item in zip(missing, stored, strict=True):
                        found[position] = self._items[version.id, position] = item
        return {
            position: BankItem.of(item, position, version.default_scorer, version.prompt_style)
            for position, item in found.items()
        }

    def _kept_items(self, version_id: str, positions: Sequence[int]) -> dict[int, Item]:
        return {
            position: item
            for position in positions
            if (item := self._items.get((version_id, position)))
        }


async def calibration_of(uow: UnitOfWork, version: BankVersion) -> CalibrationRecord | None:
    """The calibration behind a version, in its owner's project; None if it was not made here."""
    if version.calibration is None or "id" not in version.calibration:
        return None
    owner = await uow.banks.of_version(version.id)
    with seeing(owner.project_id):
        return await uow.calibrations.get(version.calibration["id"])


def _materials(version: LoadedVersion, design: Design, price: Price | None) -> Materials:
    abilities = version.bank.abilities
    return Materials(
        bank=version.bank,
        active=version.active,
        tags=version.tags,
        costs=version.costs(design, price),
        knowledge=(abilities and {ABILITIES: abilities_to_dict(abilities, version.keys)}) or {},
    )


def _composed(
    version: LoadedVersion,
    items: int,
    shares: Mapping[str, float] | None,
    ask: Sequence[str],
    costs: Mapping[str, float] | str | None,
) -> ShortForm:
    version.require_tags(shares or (), "/target")
    version.require_tags(ask, "/ask")
    facts = BankFacts(
        bank=version.bank,
        curves=version.curves or LearnedCurves.of_parameters(version.bank),
        tags=version.tags,
        targets=version.targets,
    )
    target = facts.target_of(shares)
    if target is None:
        raise InvalidInputError(
            f"Version {version.number} of {version.bank_name!r} predicts no scores, which a form "
            "needs: calibrate with the model nested or mirt, from at least 20 examinees, or "
            "compose from their records with `sextant compose --train`."
        )
    askable = version.active.copy()
    if ask and WHOLE_BANK not in ask:
        wanted = set(ask)
        askable &= np.array([not wanted.isdisjoint(tags) for tags in version.tags], np.bool_)
    return compose(target, items, askable=askable, costs=_costs(version, costs, askable))


def _costs(
    version: LoadedVersion, given: Mapping[str, float] | str | None, askable: BoolArray
) -> FloatArray | None:
    """Cost of each item, shape (n_items,); the cost of items not in `askable` does not matter."""
    if given is None:
        return None
    if isinstance(given, str):
        costs, wanted = version.token_costs(), "expected tokens, in and out,"
    else:
        if strange := [key for key in given if version.position_of(key) is None]:
            detail = f"the version has no item {strange[0]!r}"
            raise InvalidInputError.of_field("costs", detail)
        costs, wanted = np.array([given.get(key, np.nan) for key in version.keys]), "a cost"
    unknown = np.isnan(costs)
    lacking = np.flatnonzero(unknown & askable)
    if lacking.size:
        detail = (
            f"expected {wanted} for every item that may be asked; {lacking.size} have none, the "
            f"first {version.keys[int(lacking[0])]!r}"
        )
        raise InvalidInputError(f"{detail}.", problems=[FieldProblem("/costs", detail)])
    return np.where(unknown, 1.0, costs)
