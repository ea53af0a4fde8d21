"""Fixed short forms of stored versions. Forms are not stored: the returned weights are the form."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.engine.bank import FloatArray
from app.engine.design.facts import BankFacts
from app.engine.models.base import BoolArray
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.prediction.score_model import ShortForm, compose
from app.engine.prediction.targets import WHOLE_BANK
from app.errors import FieldProblem, InvalidInputError
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService


@dataclass(frozen=True, slots=True, kw_only=True)
class FormSpec:
    """Specification of a form."""

    items: int
    target: Mapping[str, float] | None = None
    ask: Sequence[str] = ()
    by_tokens: bool = False
    costs: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class VersionForm:
    """A form of a version."""

    version: LoadedVersion
    spec: FormSpec
    form: ShortForm


@dataclass(frozen=True, eq=False)
class FormService:
    """Composes forms."""

    versions: VersionService

    async def compose(self, bank: str, version: str | None, spec: FormSpec) -> VersionForm:
        """The best fixed form of a version.

        Raises:
            NotFoundError: No such bank or version.
            InvalidInputError: The version predicts no scores, the tag has no items, an item has
                no known cost, or the form asks for more items than exist.
        """
        found = await self.versions.get(bank, version)
        loaded = await self.versions.load(found.id)
        return VersionForm(loaded, spec, await asyncio.to_thread(_composed, loaded, spec))


def _composed(version: LoadedVersion, spec: FormSpec) -> ShortForm:
    _check_tags(version, spec.target or (), "/target")
    _check_tags(version, spec.ask, "/ask")
    facts = BankFacts(
        bank=version.bank,
        curves=version.curves or LearnedCurves.of_parameters(version.bank),
        tags=version.tags,
        targets=version.targets,
    )
    target = facts.target_of(spec.target)
    if target is None:
        raise InvalidInputError(
            f"Version {version.number} of {version.bank_name!r} predicts no scores, which a form "
            "needs: calibrate with the model nested or mirt, from at least 20 examinees, or "
            "compose from their records with `sextant compose --train`."
        )
    askable = version.active.copy()
    if spec.ask and WHOLE_BANK not in spec.ask:
        wanted = set(spec.ask)
        askable &= np.array([not wanted.isdisjoint(tags) for tags in version.tags], np.bool_)
    return compose(target, spec.items, askable=askable, costs=_costs(version, spec, askable))


def _check_tags(version: LoadedVersion, tags: Collection[str], pointer: str) -> None:
    for tag in tags:
        if not version.tag_counts[tag]:
            known = ", ".join(sorted(version.tag_counts)[:20])
            detail = f"no item has the tag {tag!r}; known tags: {known}"
            raise InvalidInputError(f"{detail}.", problems=[FieldProblem(pointer, detail)])


def _costs(version: LoadedVersion, spec: FormSpec, askable: BoolArray) -> FloatArray | None:
    """Cost of each item, shape (n_items,); the cost of items not in `askable` does not matter."""
    if spec.by_tokens:
        costs = version.token_costs()
        unknown, wanted = np.isnan(costs), "expected tokens, in and out,"
    elif spec.costs is not None:
        given = spec.costs
        if strange := [key for key in given if version.position_of(key) is None]:
            detail = f"the version has no item {strange[0]!r}"
            raise InvalidInputError(f"costs: {detail}.", problems=[FieldProblem("/costs", detail)])
        costs = np.array([given.get(key, np.nan) for key in version.keys])
        unknown, wanted = np.isnan(costs), "a cost"
    else:
        return None
    lacking = np.flatnonzero(unknown & askable)
    if lacking.size:
        detail = (
            f"expected {wanted} for every item that may be asked; {lacking.size} have none, the "
            f"first {version.keys[int(lacking[0])]!r}"
        )
        raise InvalidInputError(f"{detail}.", problems=[FieldProblem("/costs", detail)])
    return np.where(unknown, 1.0, costs)
