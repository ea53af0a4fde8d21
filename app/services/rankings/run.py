"""One running ranking: what it asks next, and which members it asks no more. No I/O.

A run that is rebuilt from the members' stored answers equals the one that was lost.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from pydantic import BaseModel, Field

from app.engine import Stop, StopReason
from app.engine.prediction.ability import Stated
from app.engine.ranking.ranking import Ranking, RankingAsk, RankingState
from app.engine.ranking.ranks import Ranks
from app.engine.ranking.rules import RankingBudget, RankingRules
from app.records.fields import finite, interval
from app.records.leased import ENDED
from app.records.rankings import (
    RankedFigures,
    RankingEnd,
    RankingFigures,
    RankingSettings,
    RankingStep,
)
from app.records.sessions import (
    Advance,
    Closing,
    PromptChanges,
    SelectedItem,
    SessionEvent,
    SessionRecord,
)
from app.services.sessions.figures import MIN_MARKED, no_result, spent_figures
from app.services.sessions.plan import SessionPlan
from app.services.sessions.run import SessionRun

#: Least cost of a member, as a share of the dearest one's: else only free members would be asked.
_CHEAPEST = 1e-3


class RankingPlan(BaseModel, frozen=True):
    """Settings of a ranking, as they are stored."""

    rules: RankingRules
    budget: RankingBudget
    asking: SessionPlan = SessionPlan.from_dict({"preset": "ability"})
    prompt: PromptChanges = Field(default_factory=PromptChanges)
    by_hand: bool = False

    def to_dict(self) -> RankingSettings:
        """The settings in their stored form, which names `by_hand` only if it is true."""
        stored = self.model_dump(mode="json", exclude=set() if self.by_hand else {"by_hand"})
        return cast(RankingSettings, {**stored, "asking": self.asking.to_dict()})


@dataclass(frozen=True, slots=True)
class Member:
    """An endpoint in a ranking, or a named examinee."""

    record: SessionRecord
    run: SessionRun

    @property
    def has_ended(self) -> bool:
        """Whether its session has ended: it was a member before another one joined."""
        return self.record.status in ENDED


class RankingRun:
    """The state of one ranking, for the runner or the client's calls that drive it."""

    def __init__(self, *, plan: RankingPlan, members: Sequence[Member], seed: int) -> None:
        self.members = tuple(members)
        for member in members:  # finds the score and position that are shown before a step
            member.run.summary(elapsed_s=0.0, final=member.has_ended)
        self._seed = seed
        self._concurrency = plan.asking.design.concurrency
        self._ended = frozenset(i for i, member in enumerate(members) if member.has_ended)
        self._ranking = Ranking(
            tests=tuple(member.run.test for member in members),
            rules=plan.rules,
            budget=plan.budget,
            closed=self._ended,
        )
        self._seen: tuple[tuple[Stated, ...], ...] = ()
        self._ranked: tuple[object, Ranks] | None = None

    @property
    def state(self) -> RankingState:
        """State of the engine's ranking."""
        members = tuple(member.run.state for member in self.members)
        state = self._ranking.looked(RankingState(members, self._seen))
        self._seen = state.seen
        return state

    @property
    def live(self) -> list[int]:
        """Positions of the members that this run asks."""
        return [i for i in range(len(self.members)) if i not in self._ended]

    @property
    def n_pending(self) -> int:
        """Number of answers that are awaited."""
        return sum(len(self.members[i].run.pending) for i in self.live)

    def choose(
        self, at_most: float = math.inf
    ) -> tuple[dict[int, list[SelectedItem]], Stop | None]:
        """Items chosen for each member, within concurrency and `at_most`, and why no more are."""
        asked: dict[int, list[SelectedItem]] = {}
        closed = self._closed()
        placed = self._placed(closed)
        ranking = self._among(placed, closed)
        if isinstance(ranking, Stop):
            return asked, ranking
        ranks = self._ranks(placed, closed)
        while sum(map(len, asked.values())) < at_most:
            free = [
                at
                for at, i in enumerate(placed)
                if i not in closed and len(self.members[i].run.pending) < self._concurrency
            ]
            step = ranking.ask(self._state_of(placed), self._seed, free=free, ranks=ranks)
            if not isinstance(step, RankingAsk):
                return asked, step
            member = placed[step.member]
            asked.setdefault(member, []).append(
                self.members[member].run.ask_item(step.item, step.probability)
            )
        return asked, None

    def step_forward(
        self,
        *,
        closed: Mapping[int, dict[int, Closing]],
        asked: Mapping[int, Sequence[SelectedItem]],
        elapsed_s: Mapping[int, float],
        stop: Stop | None,
        status: str = "running",
    ) -> RankingStep:
        """The step of all members, or the end of the ranking, for storage to write.

        Mappings are keyed by the member's position; members that go on get `status`.
        """
        members: dict[str, Advance] = {}
        for i in self.live:
            run = self.members[i].run
            # A member that can be asked nothing more ends for that reason.
            ending = None if stop is None else run.ending(run.blocked() or stop)
            if i in closed or i in asked or ending is not None:
                members[self.members[i].record.id] = run.step_forward(
                    closed=closed.get(i, {}),
                    asked=asked.get(i, []),
                    elapsed_s=elapsed_s[i],
                    ending=ending,
                    status=status,
                )
        end = None if stop is None else self._end(stop)
        summary = self.summary()
        data = {key: summary[key] for key in ("order", "ties", "decided", "progress", "usage")}
        event = SessionEvent("ranking.updated", data)
        if end is not None:
            why = {"stop_reason": end.stop_reason, "stop_detail": end.stop_detail}
            event = SessionEvent(f"ranking.{end.status}", {**why, **data})
        return RankingStep(summary=summary, events=[event], end=end, members=members)

    def _end(self, stop: Stop) -> RankingEnd:
        """The end of the ranking for this reason."""
        answering = sum(bool(member.run.state.responses) for member in self.members)
        if answering >= 2 or stop.reason is StopReason.BUDGET_EXHAUSTED:
            return RankingEnd(
                status="completed", stop_reason=stop.reason.value, stop_detail=stop.detail
            )
        detail = (
            f"Only {answering} of {len(self.members)} examinees gave an answer that could be "
            "scored. "
        ) + " ".join(filter(None, map(self._why, range(len(self.members)))))
        return RankingEnd(
            status="failed",
            stop_reason=StopReason.TOO_MANY_FAILURES.value,
            stop_detail=detail,
            failure={"code": StopReason.TOO_MANY_FAILURES.value, "detail": detail},
        )

    def summary(self) -> RankingFigures:
        """Present figures of `GET /v1/rankings/{id}`."""
        state = self.state
        closed = self._closed()
        placed = self._placed(closed)
        ranked = self._ranks(placed, closed)
        # Each member has an endpoint: named examinees are stored as endpoints, too.
        ids = [cast(str, member.record.endpoint_id) for member in self.members]
        group_of = {
            placed[at]: number for number, group in enumerate(ranked.groups, 1) for at in group
        }
        # A member that could not be placed may have any rank, which widens the other rank ranges.
        behind = [i for i in range(len(self.members)) if i not in placed]
        ranks = {
            placed[at]: (lo, hi + len(behind)) for at, (lo, hi) in enumerate(ranked.rank_ranges)
        }
        # A member without a result has no rank, and decides nothing about others.
        untold = {i for i, test in enumerate(state.members) if no_result(test.n_scored) is not None}
        order: list[RankedFigures] = []
        for position in (*(placed[at] for at in ranked.order), *behind):
            member, test = self.members[position], state.members[position]
            lo, hi = ranks.get(position, (1, len(self.members)))
            if position in untold:
                lo, hi = 1, len(self.members)
            told = member.run.test.estimate(test)
            hides = position in untold or member.run.version.theta_withheld is not None
            order.append(
                {
                    "endpoint_id": ids[position],
                    "name": member.record.endpoint_name,
                    "model": cast(str, member.record.endpoint_model),
                    "session_id": member.record.id,
                    "rank_lo": lo,
                    "rank_hi": hi,
                    "group": None if position in untold else group_of.get(position),
                    "left_behind": self._why(position) if position in behind else None,
                    "theta": None if hides else finite(test.belief.theta),
                    "se": None if hides else finite(test.belief.se),
                    "interval": None if hides else interval(told.lo, told.hi),
                    "score": None if position in untold else member.run.score,
                    "reason": no_result(test.n_scored),
                    "extrapolation": None if position in untold else member.run.population_position,
                    "items": test.n_asked - len(test.pending),
                    "scored": test.n_scored,
                    "in_flight": len(test.pending),
                    "usd": member.run.meter.spent.usd,
                }
            )
        return {
            "order": order,
            "pairs": [
                {
                    "a": ids[placed[pair.above]],
                    "b": ids[placed[pair.below]],
                    "p_a_above_b": pair.p_above,
                    "p_value": pair.p_value,
                    "decided": pair.decided,
                }
                for pair in ranked.pairs
                if untold.isdisjoint((placed[pair.above], placed[pair.below]))
            ],
            "ties": [
                [ids[placed[at]] for at in tie]
                for tie in ranked.ties
                if untold.isdisjoint(placed[at] for at in tie)
            ],
            "decided": untold.isdisjoint(placed)
            and all(pair.decided for pair in ranked.neighbours),
            "progress": {
                "items": sum(entry["items"] for entry in order),
                "scored": sum(entry["scored"] for entry in order),
                "in_flight": sum(entry["in_flight"] for entry in order),
            },
            "usage": spent_figures(member.run.meter for member in self.members),
        }

    def _closed(self) -> frozenset[int]:
        """Positions of the members that are asked nothing more."""
        blocked = (i for i in self.live if self.members[i].run.blocked() is not None)
        return self._ended.union(blocked)

    def _placed(self, closed: frozenset[int]) -> tuple[int, ...]:
        """Positions of the members to rank: all but those closed with too few answers.

        Nothing can be decided about such a member. Placed between two others it would be the
        neighbour of both, and those two would never be compared with each other.
        """
        least = max(self._ranking.rules.min_items, MIN_MARKED)
        placed = tuple(
            i
            for i, member in enumerate(self.members)
            if i not in closed or member.run.state.n_scored + len(member.run.pending) >= least
        )
        return placed if len(placed) >= 2 else tuple(range(len(self.members)))

    def _ranks(self, placed: tuple[int, ...], closed: frozenset[int]) -> Ranks:
        """Present ranks of the placed members; kept until an item is asked or answered."""
        state = self._state_of(placed)
        answers = [(one.n_scored, one.n_asked, len(one.pending)) for one in state.members]
        at = placed, closed, answers
        if self._ranked is None or self._ranked[0] != at:
            ranking = self._among(placed, closed)
            if isinstance(ranking, Stop):  # no member is asked any more
                tests = tuple(self.members[i].run.test for i in placed)
                shut = frozenset(range(len(placed)))
                ranking = replace(self._ranking, tests=tests, closed=shut)
            self._ranked = at, ranking.ranks(state)
        return self._ranked[1]

    def _state_of(self, members: Sequence[int]) -> RankingState:
        state = self.state
        return RankingState(
            tuple(state.members[i] for i in members),
            tuple(state.seen[i] for i in members) if state.seen else (),
        )

    def _among(self, placed: Sequence[int], closed: frozenset[int]) -> Ranking | Stop:
        """The ranking of `placed` alone, on the budget that the other members have left."""
        rest = [self.members[i].run.state for i in range(len(self.members)) if i not in placed]
        whole, rules = self._ranking.budget, self._ranking.rules
        n_asked = sum(state.n_asked for state in rest)
        tokens = sum(state.usage.tokens for state in rest)
        usd = sum(state.usage.usd for state in rest)
        budget = RankingBudget(
            items=None if whole.items is None else whole.items - n_asked,
            usd=None if whole.usd is None else whole.usd - usd,
            tokens=None if whole.tokens is None else whole.tokens - tokens,
        )
        shut = frozenset(at for at, i in enumerate(placed) if i in closed)
        warm_up = rules.min_items * (len(placed) - len(shut))
        for cap, unit in ((budget.items, "items"), (budget.tokens, "tokens")):
            if cap is not None and cap < warm_up:
                return Stop(
                    StopReason.BUDGET_EXHAUSTED,
                    f"{max(cap, 0)} {unit} are left by examinees that failed, too few for the "
                    f"warm-up of the others: they need {warm_up}.",
                )
        costs = self._costs()
        return replace(
            self._ranking,
            tests=tuple(self.members[i].run.test for i in placed),
            budget=budget,
            costs=tuple(costs[i] for i in placed) if costs else (),
            closed=shut,
        )

    def _why(self, position: int) -> str | None:
        """Why a member is asked nothing more."""
        member = self.members[position]
        blocked = None if member.has_ended else member.run.blocked()
        return member.record.stop_detail if blocked is None else blocked.detail

    def _costs(self) -> tuple[float, ...]:
        """Mean cost per item of each member; empty, so all count alike, until all are known."""
        means = []
        for member in self.members:
            state = member.run.state
            closed = len(state.responses) + len(state.unscored)
            usd = member.run.meter.spent.usd
            if usd is None or not closed:
                return ()
            means.append(usd / closed)
        dearest = max(means)
        return tuple(max(mean, _CHEAPEST * dearest) for mean in means) if dearest > 0 else ()
