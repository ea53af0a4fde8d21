"""Comparison of two examinees: of sessions on one scale, or of rows of a response set."""

import asyncio
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from pydantic import Field

from app.engine.inference.comparison import Difference, paired
from app.errors import FieldProblem, InvalidInputError, NotFoundError, ScaleMismatchError
from app.records.figures import ExtrapolationFigures, LatencyFigures
from app.records.sessions import Administration, SessionRecord
from app.reports.namesakes import distinct_names
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService
from app.services.responses.sheets import table_of
from app.services.results.measured import (
    Measured,
    apart,
    between_abilities,
    between_scores,
    misjoined,
)
from app.services.sessions.figures import effort_of
from app.storage.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One side of a comparison."""

    id: Annotated[str, Field(description="Id of the session, or name of the examinee.")]
    label: str
    score: Annotated[
        float | None,
        Field(description="Score on the whole bank; for a response set, on the common items."),
    ]
    common: Annotated[float | None, Field(description="Mean score on the common items.")]
    theta: float | None
    unasked: Annotated[
        int | None,
        Field(description="Number of questions that the session may still ask if it is extended."),
    ] = None
    extrapolation: Annotated[
        ExtrapolationFigures | None,
        Field(description="Position among the reference models; null if unknown."),
    ] = None
    usd_per_item: Annotated[
        float | None, Field(description="Cost per question of a session, US dollars.")
    ]
    latency_ms: Annotated[LatencyFigures | None, Field(description="Latency of the answers.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Differences between two examinees, first minus second.

    Attributes:
        scale: Scale of the abilities; `None` where there is no common one.
        n_common: Number of items on which both examinees have a score.
        score: Difference of the scores; for a response set, on the common items. `None` where the
            sessions' scores cover different questions, or with fewer than two common items.
        common: Mean difference on the common items; `None` for fewer than two.
        theta: Difference of the abilities; `None` where there are none.
        reason: Why two sessions cannot be compared: one has too few scored answers.
        caution: Whether the sessions share answers, whether parameters are of other questions, and
            how the sessions were asked differently; None where there is nothing to say.
        theta_caution: Caution on the abilities: their errors are unknown, as the bank was not
            cross-validated, or their scales differ.
    """

    first: Compared
    second: Compared
    confidence: float
    scale: str | None
    n_common: int
    score: Difference | None
    common: Difference | None
    theta: Difference | None
    reason: str | None = None
    caution: str | None = None
    theta_caution: str | None = None


_SHARED = (
    "These sessions share answers, as one was made from the other or both from a third: the "
    "difference is no evidence of two models, and neither its interval nor its verdict holds."
)


@dataclass(frozen=True, slots=True)
class _Session:
    record: SessionRecord
    measured: Measured
    scores: dict[str, float]


@dataclass(frozen=True, eq=False)
class ComparisonService:
    """Compares examinees. Nothing is stored: sessions and response sets do not change."""

    database: Database
    versions: VersionService

    async def sessions(self, first: str, second: str, *, confidence: float) -> Comparison:
        """Compare two ended sessions: by ability only on one scale.

        Raises:
            NotFoundError: There is no such session.
            InvalidStateError: One session has not ended, or has failed.
            ScaleMismatchError: Neither the questions nor the scales of theta are the same.
            InvalidInputError: Both ids name the same session.
        """
        if first == second:
            detail = "A session cannot be compared with itself."
            raise InvalidInputError.at("/session_ids/1", detail)
        one, other = await self._measured(first), await self._measured(second)
        async with self.database.reading() as uow:
            roots = await uow.sessions.roots([first, second])
        is_one_model = roots.get(first, first) == roots.get(second, second)
        records, sides = [one.record, other.record], (one.measured, other.measured)
        versions = [side.version for side in sides]
        banks = distinct_names({one.bank_id: one.bank_name for one in versions})
        asked = " and ".join(f"version {one.number} of {banks[one.bank_id]!r}" for one in versions)
        apart_by_scale = (
            f"The abilities are on different scales, of {asked}: link the banks' versions, or "
            "replay one session on the other's version."
        )
        on_one_scale = versions[0].bank.scale == versions[1].bank.scale
        if not (on_one_scale or versions[0].has_questions_of(versions[1])):
            detail = f"The scores are of different questions. {apart_by_scale}"
            raise ScaleMismatchError(detail, problems=[FieldProblem("/session_ids", detail)])
        common = [item for item in one.scores if item in other.scores]
        groups = dict(zip(versions[0].item_ids, versions[0].groups, strict=True))
        mine = [one.scores[item] for item in common]
        theirs = [other.scores[item] for item in common]
        reasons = [
            f"Session {side.session_id}: {side.result.reason}"
            for side in sides
            if side.result.reason is not None and side.result.score is None
        ]
        score = on_common = theta = None
        if reasons:
            mine = theirs = []
        else:
            # More answers never tell one model from itself.
            left = 0 if is_one_model else max(side.n_unasked for side in sides)
            # Asking every item that is left makes both scores known exactly, which decides.
            score = _within(between_scores(*sides, confidence), left, left)
            of_items = [groups[item] for item in common]
            on_common = _within(_difference(mine, theirs, of_items, confidence), left)
            theta = _within(between_abilities(*sides, confidence), left)
        cautions = (
            _SHARED if is_one_model else None,
            misjoined(records),
            apart(records),
        )
        return Comparison(
            first=_side(one, mine),
            second=_side(other, theirs),
            confidence=confidence,
            scale=versions[0].bank.scale if on_one_scale else None,
            n_common=len(common),
            score=score,
            common=on_common,
            theta=theta,
            reason=" ".join(reasons) or None,
            caution=" ".join(filter(None, cautions)) or None,
            theta_caution=_untried(one, other) if on_one_scale else apart_by_scale,
        )

    async def examinees(
        self, response_set: str, first: str, second: str, *, confidence: float
    ) -> Comparison:
        """Compare two examinees of a response set on the items that both answered.

        Raises:
            NotFoundError: There is no such set, or no such examinee in it.
            InvalidInputError: Both names are the same examinee.
        """
        if first == second:
            detail = "An examinee cannot be compared with itself."
            raise InvalidInputError.at("/examinees/1", detail)
        async with self.database.unit_of_work() as uow:  # streaming needs a transaction
            found = await uow.response_sets.find(response_set)
            items = await uow.response_sets.item_keys(found.id)
            sheets = [sheet async for sheet in uow.response_sets.sheets(found.id, [first, second])]
        table = await asyncio.to_thread(table_of, items, sheets)
        rows = dict(zip(table.examinees, table.scores, strict=True))
        for name in (first, second):
            if name not in rows:
                raise NotFoundError(f"examinee in response set {found.name!r}:", name)
        common = ~np.isnan(rows[first]) & ~np.isnan(rows[second])
        mine, theirs = rows[first][common].tolist(), rows[second][common].tolist()
        difference = _difference(mine, theirs, None, confidence)
        sides = [
            Compared(
                id=name,
                label=name,
                score=_mean(scores),
                common=_mean(scores),
                theta=None,
                usd_per_item=None,
                latency_ms=None,
            )
            for name, scores in ((first, mine), (second, theirs))
        ]
        return Comparison(
            first=sides[0],
            second=sides[1],
            confidence=confidence,
            scale=None,
            n_common=len(mine),
            score=difference,
            common=difference,
            theta=None,
        )

    async def _measured(self, session_id: str) -> _Session:
        async with self.database.reading() as uow:
            record = await uow.sessions.get(session_id)
            administrations = await uow.sessions.administrations(session_id)
        version = await self.versions.load(record.bank_version_id)
        measured = Measured.of_session(record, version, administrations)
        return _Session(record, measured, _scores(version, administrations))


def _untried(*sides: _Session) -> str | None:
    """Caution where abilities are compared by a version that was not cross-validated."""
    if any(side.measured.ability is None for side in sides) or all(
        side.measured.version.correction is not None for side in sides
    ):
        return None
    return (
        "This bank was not cross-validated: the verdict by ability assumes that the curves are "
        "true, and is mostly too sure, above all for models beyond the reference models."
    )


def _scores(version: LoadedVersion, administrations: list[Administration]) -> dict[str, float]:
    """Item id -> score, for the scored items that are not in pretest."""
    return {
        version.item_ids[item.position]: item.closing.score
        for item in administrations
        if item.closing is not None
        and item.closing.score is not None
        and not version.is_pretest(item.position)
    }


def _side(found: _Session, scores: list[float]) -> Compared:
    result = found.measured.result
    return Compared(
        id=found.record.id,
        label=found.measured.label,
        score=None if result.score is None else result.score["value"],
        common=_mean(scores),
        theta=result.theta,
        unasked=found.measured.n_unasked,
        extrapolation=result.extrapolation,
        **effort_of(found.record.summary),
    )


def _within(found: Difference | None, left: int, instead: int | None = None) -> Difference | None:
    """`found`; with `items_to_decide` set to `instead` where fewer items are `left`."""
    if found is None or found.items_to_decide is None or found.items_to_decide <= left:
        return found
    return replace(found, items_to_decide=instead or None)


def _difference(
    first: list[float], second: list[float], groups: list[str | None] | None, confidence: float
) -> Difference | None:
    if len(first) < 2:
        return None
    if groups is not None and None not in groups and len(set(groups)) == 1:
        return None  # items on one text count as one observation
    return paired(first, second, groups=groups, confidence=confidence)


def _mean(scores: list[float]) -> float | None:
    return sum(scores) / len(scores) if scores else None
