"""Several examinees on one bank: whom to ask next, what is decided, who ties with whom.

    ranking = Ranking(tests=tests, rules=RankingRules(), budget=RankingBudget(items=200))
    state = ranking.start()
    while isinstance(step := ranking.ask(state, seed), RankingAsk):
        state = ranking.administer(state, step.member, step.item, step.probability)
        state = ranking.tell(state, step.member, Response(step.item, score_of(...)))
    ranking.standing(state)

Every test of a ranking runs on the same bank, so that thetas are on one scale. A member is a
position among the tests.

| symbol | meaning |
|---|---|
| theta_i, SE_i | ability of member i and its standard error, as they are stated |
| t_i, s_i | the same by the answers alone: without the prior that EAP and MAP bring in |
| z_ij | (t_i - t_j) / sqrt(s_i^2 + s_j^2), see `app.engine.prediction.ability` |
| alpha | 1 - confidence |

A prior pulls all members towards one theta, the more so the fewer their answers: between equals,
(theta_i - theta_j) / sqrt(SE_i^2 + SE_j^2) has the variance 1 - SE^2 and not 1, and would tell of
less than there is. As both are about normal, t = (theta / SE^2 - theta_0 / SE_0^2) s^2 with
1 / s^2 = 1 / SE^2 - 1 / SE_0^2, where theta_0 and SE_0 are those of the prior.

**Decided.** Members are compared at a few looks: after `min_items` answers of both, twice as many,
and so on below `max_items`; and at the end, when neither can be asked more. A test that is looked
at again and again finds a difference where there is none, so each look has a share of alpha: the
last has most of it, for it knows most, the earlier ones the rest. Of two *equal* members one comes
out above the other, at any look, with probability at most alpha. With Holm's correction no
difference is found among equals, in any pair, with that confidence. Order is transitive: above
somebody who is above a third is above the third. See `app.engine.ranking.ranks`. The published rule
(`one_look`) decides a pair when its posterior probability (eq. 10) is more than 1 - alpha / 2, as
if it were looked at once: equals that are looked at after every answer are told apart several times
as often.

**Tied.** Members that cannot be told apart are tied, never ordered. A pair of neighbours needs no
more answers when it is decided; when it is *equal*: the difference is within `tie_width` with the
confidence asked for; or when it is *too close*: both have `max_items`, or even so many would decide
it with a probability of at most `futility`. All others are open; if the budget ends first they,
too, are reported as ties.

**Asked next.** Of those in open pairs, the member with the largest SE^2 / ((n + 1) cost) (eq. 11):
the variance that an answer takes away, for its price. Who is asked must not hang on how near a pair
is to being decided: whoever gets no more answers would then be who looks apart by chance.

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
from app.engine.estimation.estimators import Z_95
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
from app.engine.selection.sampled import Chosen, choose
from app.engine.state import NO_USAGE, CatState, Response, Usage
from app.engine.stopping import Stop, StopReason
from app.errors import FieldProblem, InvalidInputError, ScaleMismatchError

_NORMAL = NormalDist()
#: Share of the most worthy member's worth below which a free one is not asked beside a busy one:
#: asking in parallel saves time, and should not cost much more.
_WORTH_ASKING = 0.5
#: Share of alpha that the last look has. On a judge's scores of 12 models 0.75 to 0.95 decide the
#: same pairs but for one in fifty.
LAST = 0.8


class Verdict(StrEnum):
    """What is known of two neighbours; see the module."""

    DECIDED = "decided"
    EQUAL = "equal"
    TOO_CLOSE = "too_close"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class RankingAsk:
    """Whom to ask next, and what; `probability` is that of the member's step, see `Ask`."""

    member: int
    item: ItemIndex
    probability: float = 1.0


@dataclass(frozen=True, slots=True)
class RankingState:
    """A ranking between two steps, by position.

    Attributes:
        members: The state of each member's test.
        seen: What was known of each at the looks it has come to; see `Ranking.looked`.
    """

    members: tuple[CatState, ...]
    seen: tuple[tuple[Stated, ...], ...] = ()

    @property
    def n_asked(self) -> int:
        """Items asked of all members."""
        return sum(member.n_asked for member in self.members)

    @property
    def usage(self) -> Usage:
        """What all closed calls have cost."""
        return sum((member.usage for member in self.members), NO_USAGE)

    def with_member(self, member: int, state: CatState) -> "RankingState":
        """The state with one member's test moved on."""
        members = (*self.members[:member], state, *self.members[member + 1 :])
        return RankingState(members, self.seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Rules on one bank for a number of members; keeps nothing between calls.

    Attributes:
        tests: One a member: same bank, though perhaps other items that may be asked. Their stopping
            rules are not used.
        rules: When the ranking is content.
        budget: Shared by all.
        costs: Expected cost of an item of each member, in one unit; dear members are asked less.
        closed: Members who are asked nothing more, as those of a finished ranking to which one is
            added.

    Raises:
        InvalidInputError: Fewer than two members, a cost that is none, or a warm-up that a member
            has too few items for or that the budget does not last for.
        ScaleMismatchError: Tests on banks of different scales, or on different banks.
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
            bank.require_scale(test.bank.scale)
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
                    f"The warm-up of {self.rules.min_items} items is more than the "
                    f"{test.pool.n_active} items that examinee {member + 1} of {len(self.tests)} "
                    "can be asked: expected a min_items of at most that.",
                    problems=[FieldProblem("/min_items", f"expected at most {test.pool.n_active}")],
                )
        warm_up = self.rules.min_items * (len(self.tests) - len(self.closed))
        for cap, unit in ((self.budget.items, "items"), (self.budget.tokens, "tokens")):
            if cap is not None and cap < warm_up:
                raise InvalidInputError(
                    f"The budget of {cap} {unit} is too small for the warm-up: "
                    f"{len(self.tests) - len(self.closed)} examinees x {self.rules.min_items} "
                    f"items need at least {warm_up}."
                )

    def start(self) -> RankingState:
        """The state before the first item."""
        return RankingState(tuple(test.start() for test in self.tests))

    def administer(
        self, state: RankingState, member: int, item: ItemIndex, probability: float = 1.0
    ) -> RankingState:
        """The state after `item`, drawn with this probability, was sent to a member.

        Raises:
            InvalidInputError: The member was asked this item before.
        """
        test = self.tests[member]
        return state.with_member(member, test.administer(state.members[member], item, probability))

    def tell(self, state: RankingState, member: int, response: Response) -> RankingState:
        """The state after a pending item of a member was scored.

        Raises:
            InvalidInputError: The item is not pending.
        """
        told = self.tests[member].tell(state.members[member], response)
        return self.looked(state.with_member(member, told))

    def skip(
        self, state: RankingState, member: int, item: ItemIndex, usage: Usage = NO_USAGE
    ) -> RankingState:
        """The state after a pending item was closed without a score; no theta changes.

        Raises:
            InvalidInputError: The item is not pending.
        """
        return state.with_member(
            member, self.tests[member].skip(state.members[member], item, usage)
        )

    def looked(self, state: RankingState) -> RankingState:
        """The same state, with what was known at the looks its members have come to.

        A look stands: of the answers that came until then, whatever came later.
        """
        if self._once:
            return state
        known = state.seen or ((),) * len(state.members)
        seen = tuple(
            (*looks, *self._looks(member, told, after=len(looks)))
            for member, (told, looks) in enumerate(zip(state.members, known, strict=True))
        )
        return RankingState(state.members, seen)

    def _looks(self, member: int, told: CatState, *, after: int) -> Iterator[Stated]:
        test = self.tests[member]
        for answers in self._planned[after:]:
            if told.n_scored < answers:
                return
            so_far = told
            if told.n_scored > answers:
                so_far = test.replay(told.responses[:answers])
            yield self._evidence(member, so_far)

    @property
    def _planned(self) -> tuple[int, ...]:
        """Answers of each member at the looks before the last: the warm-up, and twice as many."""
        first = max(self.rules.min_items, KNOTS[0])
        doublings = math.ceil(math.log2(max(self.rules.max_items / first, 1.0)))
        return tuple(first * 2**step for step in range(doublings))

    def ranks(self, state: RankingState) -> Ranks:
        """Order, pairs, ties and rank ranges as they are now.

        A member without any scored answer is above and below nobody.
        """
        stated = [self._stated(member, told) for member, told in enumerate(state.members)]
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
            None if told.pending or (lasts and member in to_ask) else self._evidence(member, told)
            for member, told in enumerate(state.members)
        ]
        yield Look(last, LAST if early else 1.0)

    @property
    def _once(self) -> bool:
        return self.rules.decision is RankingDecision.ONE_LOOK

    def verdict(self, state: RankingState, pair: Pair) -> Verdict:
        """What is known of two neighbours."""
        if pair.decided:
            return Verdict.DECIDED
        above, below = (self._stated(i, state.members[i]) for i in (pair.above, pair.below))
        gap, width = above.minus(below), self.rules.tie_width
        within = _NORMAL.cdf((width - gap.middle) / gap.sd) - _NORMAL.cdf(
            (-width - gap.middle) / gap.sd
        )
        if within >= self.rules.confidence:
            return Verdict.EQUAL
        if self._once and not self.rules.futility:
            both = all(self._remaining(state, one) for one in (pair.above, pair.below))
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
            seed: Of its random choices; a member's step draws from `[seed, member, step]`.
            free: Members who can take one more item now; None means all.
            ranks: Of this state, where the caller has them: to ask somebody changes nothing.

        Returns:
            None where somebody is to be asked, but nobody who is free: or they are worth so much
            less that they had better wait for those who are busy.
        """
        ranks = ranks or self.ranks(state)
        rivals = self._rivals(state, ranks)
        wanted = [member for member in rivals if self._remaining(state, member)]
        if not wanted:
            return self._content(state, ranks)
        affordable = [member for member in wanted if self._affords(state, member)]
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

    def _stated(self, member: int, told: CatState) -> Stated:
        """What a member is ranked by."""
        if self.rules.metric is Metric.SCORE:
            score = self.tests[member].predict(told)
            own = score.margin / Z_95 if told.n_scored else math.inf
            return Stated(theta=score.value, middle=score.value, own=own)
        if self._once:  # by the posterior of the model alone
            return Stated(theta=told.belief.theta, middle=told.belief.theta, own=told.belief.se)
        return self._ability(member, told).stated()

    def _ability(self, member: int, told: CatState) -> Ability:
        """Infinitely uncertain without a scored answer."""
        correction = self.tests[member].correction
        return Ability(
            theta=told.belief.theta,
            se=told.belief.se if told.n_scored else math.inf,
            n_items=told.n_scored,
            stretch=None if correction is None else correction.theta,
            place=None if correction is None else correction.place_of(told),
        )

    def _evidence(self, member: int, told: CatState) -> Stated:
        """The same by the answers alone; no prior pulls a score whose interval holds."""
        if self._once or self.rules.metric is Metric.SCORE:
            return self._stated(member, told)
        test = self.tests[member]
        return self._ability(member, told).by_answers(test.estimator.prior_in(test.bank))

    def _rivals(self, state: RankingState, ranks: Ranks) -> dict[int, list[int]]:
        """Who needs answers, and against whom; the warm-up before all else."""
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
        """Who has too few answers to be compared."""
        return [
            member
            for member, test in enumerate(state.members)
            if test.n_scored + len(test.pending) < max(self.rules.min_items, KNOTS[0])
            and self._remaining(state, member)
        ]

    def _worth(self, state: RankingState, member: int) -> float:
        """Variance that one more item is expected to take away, for its cost."""
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
            known = self._evidence(member, test)
            answers = max(test.n_scored, 1)
            left = len(test.pending) + self._remaining(state, member)
            now.append(known)
            end.append(known.after((answers + left) / answers))
        needed, apart = self._boundary(), now[0].minus(now[1])
        share = (end[0].minus(end[1]).sd / apart.sd) ** 2 if apart.sd < math.inf else 1.0
        if share >= 1.0:
            return float(apart.least_z >= needed)
        mean, sd = apart.least_z / math.sqrt(share), math.sqrt((1 - share) / share)
        return _NORMAL.cdf((mean - needed) / sd) + _NORMAL.cdf((-mean - needed) / sd)

    def _boundary(self) -> float:
        """The z that decides one pair at the last look; under Holm the first of them."""
        each = 1.0 if self._once else 2.0
        share = 1 / math.comb(len(self.tests), 2) if self.rules.holm else each
        last = 1.0 if self._once or not self._planned else LAST
        return -_NORMAL.inv_cdf((1 - self.rules.confidence) * share * last / 2)

    def _affords(self, state: RankingState, member: int) -> bool:
        """Whether the budget lasts for one more item of this member, calls in flight included."""
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

    def _item(self, state: RankingState, member: int, rivals: Iterable[int], seed: int) -> Chosen:
        """An item that most rivals have answered, first answered first; else the selector's."""
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
                return Chosen(item, min(_as_drawn(own, other, item) for other in askers[item]))
        rng = np.random.default_rng([seed, member, own.n_asked + 1])
        selected = choose(test.selector, test.pool, own, rng)
        if selected is None:  # `_remaining` counts what the selector may choose from
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
    """With which probability an item was drawn that is taken over from a rival.

    Who has been asked just what the rival had been asked by then gets its next item by the same
    lot. Otherwise nothing is known of the chance, and 1 says so.
    """
    draws = {one.item: one.draw for one in rival.responses if one.draw is not None}
    draws |= rival.draws
    taken = draws.get(item)
    if taken is None or len(draws) < rival.n_asked:  # of an unmarked item the step is forgotten
        return 1.0
    before = {other for other, draw in draws.items() if draw.step < taken.step}
    return taken.probability if before == own.asked else 1.0
