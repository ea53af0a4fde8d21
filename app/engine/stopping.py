"""When a test is over, and why.

Rules look at the state only. `AnyOf` combines them: any of its rules ends the test, and when
several hold at once the reason given is that of the first in this order:

1. goals: standard error, decision, margin of the score, several together;
2. signs that going on brings nothing: plateau, low remaining information;
3. limits: number of items, budget (usd, then tokens), time.

Goals and signs wait for `min_items` scored answers; limits never wait. An exhausted bank is found
by the selection itself and comes last. A test that ends at a limit still has a valid estimate.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from app.engine.estimation.intervals import at_confidence
from app.engine.prediction.correction import IntervalCorrection
from app.engine.prediction.p_irt import Predictor, allowing_for_nonresponse
from app.engine.selection.base import Pool
from app.engine.state import CatState, Estimator
from app.printable import percent, plain

#: Number of consecutive answers that must leave theta in place for a plateau: one small step is
#: often luck.
PLATEAU_ANSWERS = 3


class StopReason(StrEnum):
    """Why a test ended."""

    SE_TARGET = "se_target"
    MAX_ITEMS = "max_items"
    BUDGET_EXHAUSTED = "budget_exhausted"
    TIME_LIMIT = "time_limit"
    DECISION_REACHED = "decision_reached"
    TIED = "tied"
    PLATEAU = "plateau"
    LOW_INFORMATION = "low_information"
    BANK_EXHAUSTED = "bank_exhausted"
    SCORE_MARGIN = "score_margin"
    TOO_MANY_FAILURES = "too_many_failures"
    CANCELLED = "cancelled"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of a test."""

    reason: StopReason
    detail: str


@dataclass(frozen=True, slots=True)
class Situation:
    """The input of a rule.

    Attributes:
        state: The test so far, pending items included.
        pool: The items the test may ask.
        elapsed_s: Seconds since the test began.
        answered: The test without those answers of `state` that are only expected; None if all
            answers are real.
    """

    state: CatState
    pool: Pool
    elapsed_s: float = 0.0
    answered: CatState | None = None


class StoppingRule(Protocol):
    """Decides whether a test is over. A small frozen object that keeps nothing between calls."""

    def check(self, now: Situation) -> Stop | None:
        """The reason to stop, or None to go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeTarget:
    """The standard error is small enough."""

    se: float

    def check(self, now: Situation) -> Stop | None:
        """See `StoppingRule`."""
        if now.state.belief.se > self.se:
            return None
        return Stop(StopReason.SE_TARGET, f"SE {now.state.belief.se:.4g} <= target {self.se:g}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionByInterval:
    """The confidence interval lies wholly on one side of the cut score, as for a gate.

    Attributes:
        correction: Correction of theta's interval; None keeps the interval of the model.
        looks: Ratio of the most to the fewest answers at which the rule is checked: the side is
            wrong with a probability of at most `1 - confidence` over all looks.
    """

    cut: float
    confidence: float = 0.95
    correction: IntervalCorrection | None = None
    looks: float = 1.0

    def check(self, now: Situation) -> Stop | None:
        """See `StoppingRule`."""
        if self.correction is None:
            told = now.state.belief.estimate()
        else:
            told = self.correction.of_state(now.state)
        lo, hi = at_confidence(told.theta, told.lo, told.hi, self.confidence, looks=self.looks)
        if lo <= self.cut <= hi:
            return None
        side = "above" if told.theta > self.cut else "below"
        return Stop(
            StopReason.DECISION_REACHED,
            f"Theta {told.theta:.3f}, {lo:.3f} to {hi:.3f} ({percent(self.confidence)}, adjusted "
            f"for repeated looks), is {side} the cut score {self.cut:g}.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionBySprt:
    """The likelihood ratio between just above and just below the cut score is decisive.

    Wald's bounds with both error rates at `1 - confidence`.

    Attributes:
        indifference: Distance in logits from the cut to each of the two hypotheses.

    Source: Eggen (1999), Applied Psychological Measurement 23.
    """

    cut: float
    confidence: float = 0.95
    indifference: float = 0.2

    def check(self, now: Situation) -> Stop | None:
        """See `StoppingRule`."""
        if not now.state.responses:
            return None
        below, above = now.pool.index.bank.log_likelihood(
            [self.cut - self.indifference, self.cut + self.indifference],
            [response.item for response in now.state.responses],
            [response.score for response in now.state.responses],
        ).tolist()
        ratio, bound = above - below, math.log(self.confidence / (1 - self.confidence))
        if abs(ratio) < bound:
            return None
        side = "above" if ratio > 0 else "below"
        return Stop(
            StopReason.DECISION_REACHED,
            f"Log likelihood ratio {ratio:.2f} beyond ±{bound:.2f}: {side} the cut score "
            f"{self.cut:g}.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreMargin:
    """The 95 % interval of the score is narrow enough: half of its width is at most the margin.

    Attributes:
        predictor: Predictor of the reported score.
    """

    margin: float
    predictor: Predictor

    def check(self, now: Situation) -> Stop | None:
        """See `StoppingRule`."""
        known = now.answered or now.state
        prediction = allowing_for_nonresponse(
            self.predictor.predict(now.pool.index.bank, known.responses, known.belief), known
        )
        # Expected answers narrow it with the root of their number; the prior counts as one answer.
        margin = prediction.margin * ((1 + known.n_scored) / (1 + now.state.n_scored)) ** 0.5
        if margin > self.margin:
            return None
        return Stop(
            StopReason.SCORE_MARGIN,
            f"The score is known to ±{100 * margin:.1f} points (goal ±{100 * self.margin:g}).",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plateau:
    """The last answers have moved theta by less than `theta_change` each.

    Attributes:
        estimator: Recomputes earlier thetas, which the state does not keep.
    """

    theta_change: float
    estimator: Estimator[Any]

    def check(self, now: Situation) -> Stop | None:
        """See `StoppingRule`."""
        known = len(now.state.responses) - PLATEAU_ANSWERS
        if known < 0:
            return None
        belief = self.estimator.start(now.pool.index.bank)
        largest = 0.0
        for position, response in enumerate(now.state.responses):
            before, belief = belief, self.estimator.update(now.pool.index.bank, belief, response)
            if position >= known:
                largest = max(largest, abs(belief.theta - before.theta))
        if not largest < self.theta_change:
            return None
        return Stop(
            StopReason.PLATEAU,
            f"The last {PLATEAU_ANSWERS} answers moved theta by at most {largest:.4g} "
            f"< {self.theta_change:g} each.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LowInformation:
    """No remaining item has as much information as `information` (1/logit^2) at theta."""

    information: float

    def check(self, now: Situation) -> Stop | None:
        """See `StoppingRule`."""
        theta = now.state.belief.theta
        best = now.pool.index.best(theta, asked=now.state.asked, active=now.pool.active)
        most = float(now.pool.index.bank.information(theta, best)[0]) if best else 0.0
        if most >= self.information:
            return None
        return Stop(
            StopReason.LOW_INFORMATION,
            f"The best item left has information {most:.4g} < {self.information:g}.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxItems:
    """Enough items were asked, scored or not: each has cost a call."""

    items: int

    def check(self, now: Situation) -> Stop | None:
        """See `StoppingRule`."""
        if now.state.n_asked < self.items:
            return None
        return Stop(StopReason.MAX_ITEMS, f"{self.items} items asked.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The calls would cost more than allowed.

    The cost of the calls in flight and of the next one is reserved, at the mean cost of the calls
    closed so far, so that the cap is kept and not exceeded first.
    """

    usd: float | None = None
    tokens: int | None = None

    def check(self, now: Situation) -> Stop | None:
        """See `StoppingRule`."""
        closed = len(now.state.responses) + len(now.state.unscored) + now.state.n_dropped
        share = 1.0 + (len(now.state.pending) + 1) / closed if closed else 1.0
        for spent, cap, unit in (
            (now.state.usage.usd, self.usd, "usd"),
            (now.state.usage.tokens, self.tokens, "tokens"),
        ):
            if cap is not None and (spent >= cap or spent * share > cap):
                return Stop(
                    StopReason.BUDGET_EXHAUSTED,
                    f"{plain(spent)} of {plain(cap)} {unit} spent; one more item is expected to "
                    f"take it to {plain(spent * share)}.",
                )
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimit:
    """The test has run long enough."""

    seconds: float

    def check(self, now: Situation) -> Stop | None:
        """See `StoppingRule`."""
        if now.elapsed_s < self.seconds:
            return None
        return Stop(StopReason.TIME_LIMIT, f"{now.elapsed_s:.1f} s >= limit {self.seconds:g} s.")


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every rule holds; the reason is that of the first."""

    rules: tuple[StoppingRule, ...]

    def check(self, now: Situation) -> Stop | None:
        """See `StoppingRule`."""
        stops = []
        for rule in self.rules:
            stop = rule.check(now)
            if stop is None:
                return None
            stops.append(stop)
        return Stop(stops[0].reason, " ".join(stop.detail for stop in stops)) if stops else None


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The first rule that holds ends the test.

    Attributes:
        goals: Rules that are checked once `min_items` answers are scored.
        limits: Rules that are always checked, after the goals.
        min_items: Number of scored answers before a goal counts.
    """

    goals: tuple[StoppingRule, ...] = ()
    limits: tuple[StoppingRule, ...] = ()
    min_items: int = 0

    def check(self, now: Situation) -> Stop | None:
        """See `StoppingRule`."""
        if len(now.state.responses) >= self.min_items:
            for rule in self.goals:
                if stop := rule.check(now):
                    return stop
        for rule in self.limits:
            if stop := rule.check(now):
                return stop
        return None
