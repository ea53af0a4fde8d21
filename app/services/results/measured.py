"""Results of two sessions, and the differences between them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.engine import Response
from app.engine.bank import ItemIndex
from app.engine.inference.comparison import (
    Difference,
    MeasuredScore,
    of_abilities,
    of_scores,
    shared_error,
)
from app.engine.inference.diagnostics import residuals
from app.engine.prediction.ability import Ability
from app.records.fields import ends
from app.records.gates import Baseline
from app.records.sessions import Administration, SessionRecord
from app.services.banks.loaded import LoadedVersion
from app.services.sessions.result import Result, result_in, result_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The result of an ended session, or of one that was kept as a baseline.

    Attributes:
        label: Name of the examinee.
        version: Bank version of the session.
        residuals: Item id -> residual (score minus expected score), for each scored item.
    """

    session_id: str
    label: str
    version: LoadedVersion
    result: Result
    residuals: Mapping[str, float]

    @classmethod
    def of_session(
        cls, record: SessionRecord, version: LoadedVersion, asked: Sequence[Administration]
    ) -> "Measured":
        """Build from a session and the items that it asked.

        Raises:
            InvalidStateError: The session has not ended, or has failed.
        """
        return cls(
            session_id=record.id,
            label=record.endpoint_name or record.endpoint_model or record.id,
            version=version,
            result=result_of(record),
            residuals=_residuals(version, asked),
        )

    @classmethod
    def of_baseline(cls, baseline: Baseline, version: LoadedVersion) -> "Measured":
        """Build from the copy of a session that a baseline keeps."""
        return cls(
            session_id=baseline.session_id,
            label=baseline.label,
            version=version,
            result=result_in(baseline.summary),
            residuals=baseline.residuals,
        )

    @property
    def score(self) -> MeasuredScore | None:
        """Score of the whole bank; None where it is unknown."""
        told = self.result.score
        if told is None:
            return None
        lo, hi = ends(told["interval"])
        if lo is None or hi is None:
            return None
        return MeasuredScore(n_items=self.result.n_scored, value=told["value"], lo=lo, hi=hi)

    @property
    def ability(self) -> Ability | None:
        """Theta with all that is known about its error; None where there is no theta."""
        return None if self.result.theta is None else self.result.ability(self.version.correction)


def between_scores(one: Measured, other: Measured, confidence: float) -> Difference | None:
    """Difference of the scores; None where one is unknown or they cover different items."""
    first, second = one.score, other.score
    if first is None or second is None or one.version.item_ids != other.version.item_ids:
        return None
    # The two sessions do not share the error that unscored answers add to an interval.
    scores = [side.result.score for side in (one, other)]
    has_room = any(score is not None and score.get("nonresponse") for score in scores)
    shared = 0.0 if has_room else alike(one, other)
    return of_scores(first, second, confidence=confidence, correlation=shared)


def between_abilities(
    one: Measured, other: Measured, confidence: float, factor: float = 1.0
) -> Difference | None:
    """Difference of the thetas; None where one is unknown or their scales differ."""
    first, second = one.ability, other.ability
    if first is None or second is None or one.version.bank.scale != other.version.bank.scale:
        return None
    return of_abilities(first, second, confidence=confidence, factor=factor)


def alike(one: Measured, other: Measured) -> float:
    """Correlation between the errors of two scores; see `shared_error`."""
    common = [item for item in one.residuals if item in other.residuals]
    first, second = (np.array([side.residuals[x] for x in common]) for side in (one, other))
    return shared_error(first, second, len(one.residuals), len(other.residuals))


def _residuals(version: LoadedVersion, asked: Sequence[Administration]) -> dict[str, float]:
    """Item id -> residual at the last theta; empty for banks that measure several abilities."""
    closed = sorted(
        (item.arrival or 0, item.position, item.closing.score, item.closing.theta)
        for item in asked
        if item.closing is not None
        and item.closing.score is not None
        and not version.is_pretest(item.position)
    )
    if not closed or closed[-1][-1] is None or version.bank.abilities is not None:
        return {}
    answers = [Response(ItemIndex(position), score) for _, position, score, _ in closed]
    left = residuals(version.bank, answers, closed[-1][-1]).tolist()
    found = zip((version.item_ids[answer.item] for answer in answers), left, strict=True)
    return {item: round(residual, 4) for item, residual in found if math.isfinite(residual)}
