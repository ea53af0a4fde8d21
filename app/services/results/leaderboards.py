"""A bank's leaderboard: present results in order, with ties where none is decided.

It tells two models apart where a comparison of their two sessions would without their common items.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.engine.inference.comparison import abilities_above, scores_above
from app.engine.prediction.correction import IntervalCorrection, correction_in
from app.engine.ranking.ranks import WeakOrder, weak_order
from app.records.banks import Bank
from app.records.sessions import SessionRecord
from app.services.results.measured import (
    apart,
    counted_in,
    left_unmarked,
    measured_score,
    misjoined,
    scores_left_out,
)
from app.services.sessions.result import Result, result_of
from app.storage.database import Database

#: Default metric.
SCORE = "score"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Filter of the results that are listed; None accepts all.

    Attributes:
        model: Name of the model, whatever scaffold drives it.
        scaffold: Scaffold of the agent, whatever model it drives.
        self_reported: True for examinees that answer by hand, False for endpoints.
    """

    model: str | None = None
    scaffold: str | None = None
    self_reported: bool | None = None

    def takes(self, record: SessionRecord) -> bool:
        """Whether a session passes the filter."""
        told = (
            (self.model, record.endpoint_model),
            (self.scaffold, record.examinee and record.examinee.scaffold),
            (self.self_reported, record.examinee is not None),
        )
        return all(wanted is None or wanted == found for wanted, found in told)


_EVERYBODY = Wanted()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Present result of one examinee: the most precise of its latest results.

    Attributes:
        rank_lo: Best rank that the decided pairs allow; 1 is best.
        rank_hi: Worst rank that the decided pairs allow.
        group: Number of the tie group, from 1; models of different groups are told apart.
    """

    session: SessionRecord
    result: Result
    rank_lo: int
    rank_hi: int
    group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unranked:
    """An examinee whose latest sessions have no result."""

    session: SessionRecord
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """Results on one scale, best first, and examinees without a result.

    Attributes:
        caution: Whether parameters are of other questions, how the sessions were asked differently,
            whether many answers are unscored, and how many questions the scores exclude; None where
            there is nothing to say.
    """

    scale: str
    entries: tuple[Entry, ...]
    unranked: tuple[Unranked, ...] = ()
    caution: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaderboard:
    """Results on the scale of the bank's latest version, and separately those on other scales."""

    bank: Bank
    metric: str
    confidence: float
    board: Board
    others: tuple[Board, ...]


@dataclass(frozen=True, eq=False)
class LeaderboardService:
    """Builds leaderboards from stored sessions."""

    database: Database

    async def present(self, bank_id: str, scale: str) -> list[SessionRecord]:
        """The sessions that a leaderboard ranks on a scale, by score; their ranks take seconds."""
        async with self.database.reading() as uow:
            found = await uow.sessions.present_results(bank_id)
        scores = [
            (score.value, record)
            for record in found
            if record.provenance["scale"] == scale
            and (score := measured_score(result_of(record))) is not None
        ]
        return [record for _, record in sorted(scores, key=lambda one: -one[0])]

    async def of_bank(
        self,
        bank: str,
        *,
        metric: str = SCORE,
        confidence: float = 0.95,
        wanted: Wanted = _EVERYBODY,
    ) -> Leaderboard:
        """The leaderboard of a bank, given by id or name, ranked by score or ability.

        Raises:
            NotFoundError: There is no such bank, or it has no version.
        """
        async with self.database.reading() as uow:
            found = await uow.banks.find(bank)
            version = await uow.versions.find(found)
            present = list(filter(wanted.takes, await uow.sessions.present_results(found.id)))
            versions = {record.bank_version_id for record in present}
            taught = await uow.versions.learned(versions)
            lists = await uow.versions.question_digests(versions) if len(versions) > 1 else {}
        scales: dict[str, list[SessionRecord]] = {version.scale: []}
        for record in present:
            scales.setdefault(record.provenance["scale"], []).append(record)
        learned = {key: correction_in(known) for key, known in taught.items()}
        board, *others = [
            await asyncio.to_thread(_board, scale, rows, learned, lists, metric, confidence)
            for scale, rows in scales.items()
        ]
        return Leaderboard(
            bank=found, metric=metric, confidence=confidence, board=board, others=tuple(others)
        )


def _board(
    scale: str,
    records: Sequence[SessionRecord],
    learned: Mapping[str, IntervalCorrection | None],
    lists: Mapping[str, str],
    metric: str,
    confidence: float,
) -> Board:
    """Results on one scale.

    `learned` maps ids of bank versions to interval corrections, `lists` to digests of questions.
    """
    known: list[tuple[SessionRecord, Result]] = []
    unranked: list[Unranked] = []
    for record in records:
        result = result_of(record)
        if (measured_score(result) if metric == SCORE else result.theta) is None:
            untold = "score of the whole bank" if metric == SCORE else "finite estimate"
            reason = result.reason or f"The result has no {untold}."
            unranked.append(Unranked(session=record, reason=reason))
        else:
            known.append((record, result))
    if not known:
        return Board(scale=scale, entries=(), unranked=tuple(unranked))
    ranks = (
        _by_score(known, lists, confidence)
        if metric == SCORE
        else _by_ability(known, learned, confidence)
    )
    compared = [record for record, _ in known]
    cautions = (
        misjoined(compared),
        apart(compared),
        left_unmarked(compared, is_score=metric == SCORE),
        scores_left_out(compared, lists),
    )
    group_of = {place: nth for nth, group in enumerate(ranks.groups, 1) for place in group}
    return Board(
        scale=scale,
        entries=tuple(
            Entry(
                session=known[place][0],
                result=known[place][1],
                rank_lo=ranks.rank_ranges[place][0],
                rank_hi=ranks.rank_ranges[place][1],
                group=group_of[place],
            )
            for place in ranks.order
        ),
        unranked=tuple(unranked),
        caution=" ".join(filter(None, cautions)) or None,
    )


def _by_score(
    known: Sequence[tuple[SessionRecord, Result]], lists: Mapping[str, str], confidence: float
) -> WeakOrder:
    scores = [score for _, result in known if (score := measured_score(result)) is not None]
    # Later versions of a scale may count other questions, whose scores cannot be compared.
    about = [counted_in(record, lists) for record, _ in known]
    counted = np.array([about.index(one) for one in about])
    is_above = scores_above(scores, confidence=confidence) & (counted[:, None] == counted)
    return weak_order([score.value for score in scores], is_above)


def _by_ability(
    known: Sequence[tuple[SessionRecord, Result]],
    learned: Mapping[str, IntervalCorrection | None],
    confidence: float,
) -> WeakOrder:
    abilities = [result.ability(learned[row.bank_version_id]).stated() for row, result in known]
    return weak_order(
        [ability.theta for ability in abilities], abilities_above(abilities, confidence=confidence)
    )
