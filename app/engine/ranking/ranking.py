"""Rank several examinees on one bank: which member to ask next, which pairs are decided or tied.

    ranking = Ranking(tests=tests, rules=RankingRules(), budget=RankingBudget(items=200))
    state = ranking.start()
    while isinstance(step := ranking.ask(state, seed), RankingAsk):
        state = ranking.administer(state, step.member, step.item, step.probability)
        state = ranking.tell(state, step.member, Response(step.item, score_of(...)))
    ranking.ranks(state)

Every test of a ranking runs on the same bank, so that thetas are on one scale. A member is a
position among the tests.

| symbol | meaning |
|---|---|
| theta_i, SE_i | stated ability of member i and its stated standard error |
| t_i, s_i | ability and standard error by the answers alone, without the prior of EAP and MAP |
| z_ij | (t_i - t_j) / sqrt(s_i^2 + s_j^2), see `app.engine.prediction.ability` |
| alpha | 1 - confidence |

A prior pulls all members towards one theta, most of all members with few answers. Between equals,
(theta_i - theta_j) / sqrt(SE_i^2 + SE_j^2) therefore has the variance 1 - SE^2 instead of 1, and a
test on it has too little power. As both are nearly normal,
t = (theta / SE^2 - theta_0 / SE_0^2) s^2 with 1 / s^2 = 1 / SE^2 - 1 / SE_0^2, where theta_0 and
SE_0 are those of the prior.

**Decided.** Members are compared at a few looks: when both have `min_items` answers, twice as many,
and so on below `max_items`; and at the end, when neither can be asked more. Repeated looks raise
the risk of finding a difference between equals, so each look has a share of alpha. The last look
knows most and has most of it; the earlier looks share the rest. Of two *equal* members, a given one
is found above the other, at any look, with probability at most alpha. With Holm's correction, alpha
bounds the probability of any difference among equals in all pairs together. The order is closed
under transitivity. See `app.engine.ranking.ranks`. The published rule (`one_look`) decides a pair
when its posterior probability (eq. 10) exceeds 1 - alpha / 2, as if there were one look. With a
look after every answer it separates equals several times as often.

**Tied.** Members that cannot be separated are tied, never ordered. A pair of neighbours needs no
more answers in three cases. It is decided. It is *equal*: the difference is within `tie_width` at
the requested confidence. It is *too close*: both have `max_items` answers, or even that many would
decide it with a probability of at most `futility`. All other pairs are open; if the budget ends
first, they are reported as ties, too.

**Asked next.** The member of an open pair with the largest SE^2 / ((n + 1) cost) (eq. 11), the
variance that an answer removes per cost. The choice must not depend on how nearly a pair is
decided: members that differ by chance would then get no further answers.

Sources: arXiv 2601.13885 for the variance by cost and for one look; Lan & DeMets (1983),
Biometrika 70, for what each look may spend; Holm (1979), Scandinavian Journal of Statistics 6;
Spiegelhalter, Freedman & Blackburn (1986), Controlled Clinical Trials 7, for the predictive power.
"""

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

import numpy as np

from app.engine.adaptive import AdaptiveTest
from app.engine.bank import ItemIndex
from app.engine.prediction.ability import Ability, Stated
from app.engine.prediction.correction import KNOTS
from app.engine.ranking.ranks import Look, Pair, Ranks, ranks_of
from app.engine.ranking.rules import (
    NO_LIMIT,
    Metric,
    RankingBudget,
    RankingDecision,
    RankingRules,
)
from app.engine.selection.base import Ask
from app.engine.selection.sampled import draws_of
from app.engine.state import NO_USAGE, Z_95, CatState, Response, Usage
from app.engine.stopping import Stop, StopReason
from app.errors import FieldProblem, InvalidInputError, ScaleMismatchError

_NORMAL = NormalDist()
#: Least worth of a free member, as a share of the largest worth: below it the ranking waits for
#: busy members. Parallel calls save time, but should not cost much more.
_WORTH_ASKING = 0.5
#: Share of alpha of the last look. On a judge's scores of 12 models, shares from 0.75 to 0.95
#: decide the same pairs except one in fifty.
LAST = 0.8


class Verdict(StrEnum):
    """Status of a pair of neighbours, as the module describes it."""

    DECIDED = "decided"
    EQUAL = "equal"
    TOO_CLOSE = "too_close"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class RankingAsk:
    """The next member and item; `probability` is the sampling probability, as in `Ask`."""

    member: int
    item: ItemIndex
    probability: float = 1.0


@dataclass(frozen=True, slots=True)
class RankingState:
    """A ranking between two steps.

    Attributes:
        members: State of each member's test, by position.
        seen: Evidence about each member at its looks so far, as `Ranking.looked` records it.
    """

    members: tuple[CatState, ...]
    seen: tuple[tuple[Stated, ...], ...] = ()

    @property
    def n_asked(self) -> int:
        """Items asked of all members."""
        return sum(member.n_asked for member in self.members)

    @property
    def usage(self) -> Usage:
        """Cost of all closed calls."""
        return sum((member.usage for member in self.members), NO_USAGE)

    def with_member(self, member: int, state: CatState) -> "RankingState":
        """The state with a new state of one member's test."""
        members = (*self.members[:member], state, *self.members[member + 1 :])
        return RankingState(members, self.seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """A ranking of several members on one bank; keeps nothing between calls.

    Attributes:
        tests: Test of each member. All have the same bank, but may ask different items. Their
            stopping rules are not used.
        rules: Rules for deciding, tying and ending.
        budget: Budget of all members together.
        costs: Expected cost of an item of each member, in one unit; costly members are asked less.
        closed: Members who are asked nothing more, such as those of a finished ranking that gets a
            further member.

    Raises:
        InvalidInputError: There are fewer than two members, a cost is invalid, or the items of a
            member or the budget are too few for the warm-up.
        ScaleMismatchError: The tests are on different banks.
    """

    tests: tuple[AdaptiveTest, ...]
    rules: RankingRules
    budget: RankingBudget = NO_LIMIT
    costs: tuple[float, ...] = ()
    closed: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if len(self.tests) < 2:
            raise InvalidInputError(
                f"A ranking needs at least two examinees, got {len(self.tests)}."
            )
        bank = self.tests[0].bank
        for test in self.tests[1:]:
            if test.bank is not bank:
                raise ScaleMismatchError(
                    "A ranking needs one bank for all its examinees, got several: their thetas "
                    "cannot be compared."
                )
        if self.costs and (
            len(self.costs) != len(self.tests)
            or not all(math.isfinite(cost) and cost > 0 for cost in self.costs)
        ):
            raise InvalidInputError(
                f"A ranking needs one cost above 0 for each of {len(self.tests)} examinees, got "
                f"{list(self.costs)!r:.200}."
            )
        for member, test in enumerate(self.tests):
            if member not in self.closed and test.pool.n_active < self.rules.min_items:
                raise InvalidInputError(
                    f"min_items: expected at most the {test.pool.n_active} items that examinee "
                    f"{member + 1} of {len(self.tests)} can be asked, got "
                    f"{self.rules.min_items}.",
                    problems=[
                        FieldProblem(
                            "/min_items",
                            f"expected at most {test.pool.n_active}, got {self.rules.min_items}",
                        )
                    ],
                )
        warm_up = self.rules.min_items * (len(self.tests) - len(self.closed))
        for cap, unit in ((self.budget.items, "items"), (self.budget.tokens, "tokens")):
            if cap is not None and cap < warm_up:
                raise InvalidInputError(
                    f"The budget of {cap} {unit} is too small for the warm-up: "
                    f"{len(self.tests) - len(self.closed)} examinees x {self.rules.min_items} "
                    f"items need at least {warm_up}.",
                    problems=[FieldProblem(f"/budget/{unit}", f"expected at least {warm_up}")],
                )

    def start(self) -> RankingState:
        """The state before the first item."""
        return RankingState(tuple(test.start() for test in self.tests))

    def administer(
        self, state: RankingState, member: int, item: ItemIndex, probability: float = 1.0
    ) -> RankingState:
        """The state after `item` was sent to a member; see `CatState.with_pending`."""
        return state.with_member(member, state.members[member].with_pending(item, probability))

    def tell(self, state: RankingState, member: int, response: Response) -> RankingState:
        """The state after a pending item of a member was scored; see `AdaptiveTest.tell`."""
        updated = self.tests[member].tell(state.members[member], response)
        return self.looked(state.with_member(member, updated))

    def skip(
        self, state: RankingState, member: int, item: ItemIndex, usage: Usage = NO_USAGE
    ) -> RankingState:
        """The state after a pending item was closed without a score; theta does not change."""
        return state.with_member(member, state.members[member].with_unscored(item, usage))

    def looked(self, state: RankingState) -> RankingState:
        """The state, with the evidence at each look that its members have reached.

        A look uses the answers up to its number; later answers do not change it.
        """
        if self._once:
            return state
        earlier = state.seen or ((),) * len(state.members)
        seen = tuple(
            (*looks, *self._looks(member, test, after=len(looks)))
            for member, (test, looks) in enumerate(zip(state.members, earlier, strict=True))
        )
        return RankingState(state.members, seen)

    def _looks(self, member: int, state: CatState, *, after: int) -> Iterator[Stated]:
        test = self.tests[member]
        for answers in self._planned[after:]:
            if state.n_scored < answers:
                return
            so_far = state
            if state.n_scored > answers:
                so_far = test.replay(state.responses[:answers])
            yield self._evidence(member, so_far)

    @property
    def _planned(self) -> tuple[int, ...]:
        """Numbers of answers at the looks before the last: the warm-up and its doublings."""
        first = max(self.rules.min_items, KNOTS[0])
        doublings = math.ceil(math.log2(max(self.rules.max_items / first, 1.0)))
        return tuple(first * 2**step for step in range(doublings))

    def ranks(self, state: RankingState) -> Ranks:
        """Current order, pairs, ties and rank ranges.

        No pair of a member without scored answers is decided.
        """
        stated = [self._stated(member, test) for member, test in enumerate(state.members)]
        return ranks_of(
            stated,
            looks=[Look(stated)] if self._once else list(self._all_looks(state)),
            confidence=self.rules.confidence,
            holm=self.rules.holm,
            either_way=self._once,
        )

    def _all_looks(self, state: RankingState) -> Iterator[Look]:
        seen, early = self.looked(state).seen, len(self._planned)
        for look in range(early):
            at = [looks[look] if look < len(looks) else None for looks in seen]
            yield Look(at, (1 - LAST) / early)
        to_ask = [member for member in range(len(seen)) if self._remaining(state, member)]
        lasts = any(self._affords(state, member) for member in to_ask)
        last = [
            None if test.pending or (lasts and member in to_ask) else self._evidence(member, test)
            for member, test in enumerate(state.members)
        ]
        yield Look(last, LAST if early else 1.0)

    @property
    def _once(self) -> bool:
        return self.rules.decision is RankingDecision.ONE_LOOK

    def verdict(self, state: RankingState, pair: Pair) -> Verdict:
        """Status of a pair of neighbours."""
        if pair.decided:
            return Verdict.DECIDED
        above, below = (self._stated(i, state.members[i]) for i in (pair.above, pair.below))
        gap, width = above.minus(below), self.rules.tie_width
        if not gap.sd:  # both scores are known, as all questions were asked
            return Verdict.EQUAL if abs(gap.estimate) <= width else Verdict.TOO_CLOSE
        sd = math.hypot(above.sd, below.sd)  # the difference may be on either side
        within = _NORMAL.cdf((width - gap.estimate) / sd)
        within -= _NORMAL.cdf((-width - gap.estimate) / sd)
        if within >= self.rules.confidence:
            return Verdict.EQUAL
        if self._once and not self.rules.futility:
            both = all(self._remaining(state, member) for member in (pair.above, pair.below))
            return Verdict.OPEN if both else Verdict.TOO_CLOSE
        if self._chance(state, pair) <= self.rules.futility:
            return Verdict.TOO_CLOSE
        return Verdict.OPEN

    def ask(
        self,
        state: RankingState,
        seed: int,
        *,
        free: Collection[int] | None = None,
        ranks: Ranks | None = None,
    ) -> RankingAsk | Stop | None:
        """The next member and its item, or the end.

        The same state, seed and free members give the same result.

        Args:
            state: The ranking so far.
            seed: Random seed; a member's step draws from `[seed, member, step]`.
            free: Members who can take one more item now; None means all.
            ranks: Ranks of this state, if the caller has them; asking an item does not change them.

        Returns:
            The next item, the end, or None to wait. None means that only busy members are to be
            asked, or that the free members are worth much less than the busy ones.
        """
        ranks = ranks or self.ranks(state)
        rivals = self._rivals(state, ranks)
        candidates = [member for member in rivals if self._remaining(state, member)]
        if not candidates:
            return self._content(state, ranks)
        affordable = [member for member in candidates if self._affords(state, member)]
        if not affordable:
            spent = state.usage
            usd = "" if self.budget.usd is None else f", {spent.usd:g} usd"
            return Stop(
                StopReason.BUDGET_EXHAUSTED,
                f"{state.n_asked} items{usd} and {spent.tokens} tokens spent; the next item would "
                "go beyond the budget.",
            )
        worths = {member: self._worth(state, member) for member in affordable}
        least = 0.0 if self._cold(state) else _WORTH_ASKING * max(worths.values())
        for member in sorted(affordable, key=lambda member: -worths[member]):
            if (free is None or member in free) and worths[member] >= least:
                chosen = self._item(state, member, rivals[member], seed)
                return RankingAsk(member, chosen.item, chosen.probability)
        return None

    def _stated(self, member: int, state: CatState) -> Stated:
        """The measure by which a member is ranked."""
        if self.rules.metric is Metric.SCORE:
            score = self.tests[member].predict(state)
            known = (score.value - score.lo) / Z_95, (score.hi - score.value) / Z_95
            sides = known if state.n_scored else (math.inf, math.inf)
            # The larger one, where it is not known which side counts.
            return Stated(theta=score.value, sd=max(sides), sides=sides)
        if self._once:  # by the posterior of the model alone
            return Stated(theta=state.belief.theta, sd=state.belief.se)
        return self._ability(member, state).stated()

    def _ability(self, member: int, state: CatState) -> Ability:
        """Ability of a member, with infinite error if there is no scored answer."""
        correction = self.tests[member].correction
        return Ability(
            theta=state.belief.theta,
            se=state.belief.se if state.n_scored else math.inf,
            n_items=state.n_scored,
            stretch=None if correction is None else correction.theta,
            place=None if correction is None else correction.place_of(state),
        )

    def _evidence(self, member: int, state: CatState) -> Stated:
        """The measure by the answers alone; a score needs no correction for a prior."""
        if self._once or self.rules.metric is Metric.SCORE:
            return self._stated(member, state)
        test = self.tests[member]
        return self._ability(member, state).by_answers(test.estimator.prior_in(test.bank))

    def _rivals(self, state: RankingState, ranks: Ranks) -> dict[int, list[int]]:
        """Members who need answers, each with its rivals; the warm-up comes first."""
        if cold := self._cold(state):
            everybody = range(len(state.members))
            return {member: [other for other in everybody if other != member] for member in cold}
        rivals: dict[int, list[int]] = {}
        for pair in ranks.neighbours:
            if self.verdict(state, pair) is Verdict.OPEN:
                rivals.setdefault(pair.above, []).append(pair.below)
                rivals.setdefault(pair.below, []).append(pair.above)
        return rivals

    def _cold(self, state: RankingState) -> list[int]:
        """Members who have too few answers for a comparison."""
        return [
            member
            for member, test in enumerate(state.members)
            if test.n_scored + len(test.pending) < max(self.rules.min_items, KNOTS[0])
            and self._remaining(state, member)
        ]

    def _worth(self, state: RankingState, member: int) -> float:
        """Variance that one more item is expected to remove, per cost."""
        test = state.members[member]
        cost = self.costs[member] if self.costs else 1.0
        sd = test.belief.se
        if self.rules.metric is Metric.SCORE:
            sd = self.tests[member].predict(test).margin / Z_95
        return sd**2 / ((test.n_asked + 1) * cost)

    def _remaining(self, state: RankingState, member: int) -> int:
        """How many more items the member can be asked."""
        if member in self.closed:
            return 0
        asked = state.members[member].n_asked
        return max(min(self.rules.max_items, self.tests[member].pool.n_active) - asked, 0)

    def _chance(self, state: RankingState, pair: Pair) -> float:
        """Probability that the pair is decided once all its items are asked.

        The predictive power under a flat prior of the difference: with f = V_end / V, the final z
        is normal with mean z / sqrt(f) and variance (1 - f) / f.
        """
        now, end = [], []
        for member in (pair.above, pair.below):
            test = state.members[member]
            evidence = self._evidence(member, test)
            answers = max(test.n_scored, 1)
            further = len(test.pending) + self._remaining(state, member)
            now.append(evidence)
            end.append(evidence.after((answers + further) / answers))
        needed, gap = self._boundary(), now[0].minus(now[1])
        share = (end[0].minus(end[1]).sd / gap.sd) ** 2 if gap.sd < math.inf else 1.0
        if share >= 1.0:
            return float(gap.z >= needed)
        mean, sd = gap.z / math.sqrt(share), math.sqrt((1 - share) / share)
        return _NORMAL.cdf((mean - needed) / sd) + _NORMAL.cdf((-mean - needed) / sd)

    def _boundary(self) -> float:
        """The z that decides a pair at the last look; under Holm, the first pair."""
        each = 1.0 if self._once else 2.0
        share = 1 / math.comb(len(self.tests), 2) if self.rules.holm else each
        last = 1.0 if self._once or not self._planned else LAST
        return -_NORMAL.inv_cdf((1 - self.rules.confidence) * share * last / 2)

    def _affords(self, state: RankingState, member: int) -> bool:
        """Whether the budget allows one more item of this member, after the calls in flight."""
        budget = self.budget
        if budget.items is not None and state.n_asked >= budget.items:
            return False
        for cap, spent_by in (
            (budget.usd, [test.usage.usd for test in state.members]),
            (budget.tokens, [float(test.usage.tokens) for test in state.members]),
        ):
            if cap is None:
                continue
            means = [
                spent / max(len(test.responses) + len(test.unscored), 1)
                for spent, test in zip(spent_by, state.members, strict=True)
            ]
            in_flight = sum(
                len(test.pending) * mean for test, mean in zip(state.members, means, strict=True)
            )
            spent = sum(spent_by)
            if spent >= cap or spent + in_flight + means[member] > cap:
                return False
        return True

    def _item(self, state: RankingState, member: int, rivals: Iterable[int], seed: int) -> Ask:
        """The item that most rivals were asked, earliest first; else the selector's item."""
        test, own = self.tests[member], state.members[member]
        if self.rules.shared_items:
            allowed = test.pool.admissible(own)
            askers: dict[ItemIndex, list[CatState]] = {}
            for rival in rivals:
                other = state.members[rival]
                for item in (*(response.item for response in other.responses), *other.pending):
                    if allowed[item]:
                        askers.setdefault(item, []).append(other)
            if askers:
                item = max(askers, key=lambda item: len(askers[item]))
                return Ask(item, min(_as_drawn(own, other, item) for other in askers[item]))
        rng = np.random.default_rng([seed, member, own.n_asked + 1])
        selected = test.selector.select(test.pool, own, rng)
        if selected is None:  # cannot happen: `_remaining` counts the selector's items
            raise InvalidInputError(f"No item is left for examinee {member}.")
        return selected

    def _content(self, state: RankingState, ranks: Ranks) -> Stop:
        verdicts = [self.verdict(state, pair) for pair in ranks.neighbours]
        open_ = sum(verdict is not Verdict.DECIDED for verdict in verdicts)
        if not open_:
            return Stop(StopReason.DECISION_REACHED, "Every pair of neighbours is decided.")
        return Stop(
            StopReason.TIED,
            f"Of {len(verdicts)} pairs of neighbours, decided: {len(verdicts) - open_}, tied: "
            f"{open_}; more items would not tell these apart.",
        )


def _as_drawn(own: CatState, rival: CatState, item: ItemIndex) -> float:
    """Sampling probability of an item that is taken over from a rival.

    If the member was asked exactly the items that the rival had been asked before this one, the
    probability is the rival's. Otherwise it is unknown, which is recorded as 1.
    """
    draws = dict(draws_of(rival))
    taken = draws.get(item)
    if taken is None or len(draws) < rival.n_asked:  # the step of an item without a draw is unknown
        return 1.0
    before = {other for other, draw in draws.items() if draw.step < taken.step}
    return taken.probability if before == own.asked else 1.0
