"""Find items of a bank version that behave differently in new answers, and may have leaked."""

import asyncio
from dataclasses import dataclass

import numpy as np

from app.calibration.linking.drift import Drift, find_drift
from app.calibration.logistic.curves import Family
from app.calibration.matrix import ScoreMatrix
from app.errors import InvalidInputError
from app.records.banks import BankVersion
from app.records.response_sets import ResponseSet
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService
from app.services.responses.service import ResponseSetService
from app.services.responses.sheets import table_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftLook:
    """Drift of a version's items in the answers of a response set.

    Attributes:
        order: Positions in `drift`: drifted items first, then by how clearly they left their curve.
    """

    version: BankVersion
    response_set: ResponseSet
    drift: Drift
    order: tuple[int, ...]

    @property
    def verdict(self) -> str:
        """The result in words, for readers who do not know response curves."""
        drift = self.drift
        judged = int(np.isfinite(drift.z).sum())
        easier = int((drift.drifted & (drift.easier > 0)).sum())
        harder = int(drift.drifted.sum()) - easier
        of = f"{judged} of {len(drift.keys)} items with new answers have enough of them to tell."
        if not judged:
            return f"{of} Collect more sessions."
        if not easier and not harder:
            return f"{of} None departs clearly from its old curve."
        parts = [of]
        if easier:
            parts.append(
                f"{easier} became easier than the abilities of the examinees explain: their text "
                "or answers may have leaked into training data, or their scorer has changed."
            )
        if harder:
            parts.append(
                f"{harder} became harder: look for a changed prompt, a broken scorer, or an answer "
                "that is out of date."
            )
        return " ".join(parts)


@dataclass(frozen=True, eq=False, kw_only=True)
class DriftService:
    """Compares recorded answers with bank versions; stores nothing."""

    versions: VersionService
    response_sets: ResponseSetService

    async def look(self, bank: str, version: str | None, response_set: str) -> DriftLook:
        """Check the active items of a version for drift in the answers of a set.

        Raises:
            NotFoundError: No such bank, version or set.
            InvalidInputError: No answers, scores other than 0 and 1, or a version whose model is
                not 1PL to 4PL.
            CalibrationError: Fewer than two items in common.
        """
        found = await self.versions.get(bank, version)
        loaded = await self.versions.load(found.id)
        require_family(loaded)
        answers, items, sheets = await self.response_sets.trials(response_set)
        table = await asyncio.to_thread(table_of, items, sheets)
        if table.n_answers == 0:
            raise InvalidInputError(
                f"Response set {answers.name!r} has no scored answers: collect sessions first."
            )
        errors = await self.versions.curve_errors(loaded)
        active = np.flatnonzero(loaded.active)

        def judge() -> Drift:
            matrix = ScoreMatrix.of(table.scores, examinees=table.examinees, items=table.items)
            return find_drift(matrix, loaded.bank.take(active), old_se=errors[active])

        drift = await asyncio.to_thread(judge)
        clearness = np.nan_to_num(-np.log(np.maximum(drift.p_value, 1e-300)), nan=-1.0)
        order = np.lexsort((-clearness, ~drift.drifted)).tolist()
        return DriftLook(version=found, response_set=answers, drift=drift, order=tuple(order))


def require_family(version: LoadedVersion) -> None:
    """Refuse to check for drift in a version whose model is not binary with a single ability.

    Raises:
        InvalidInputError: The response model of the version is not 1PL to 4PL.
    """
    if version.response_model not in tuple(Family):
        raise InvalidInputError(
            f"Drift is judged in versions of the models {', '.join(Family)}; version "
            f"{version.number} of bank {version.bank_name!r} is {version.response_model}."
        )
