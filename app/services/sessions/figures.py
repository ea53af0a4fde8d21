"""Figures that a session shows: usage, fit, position, profile; and when results are shown at all.

An estimate exists after any answer, and even before the first, where it is only the prior. The
coverage of intervals was checked after at least `MIN_MARKED` scored answers
(`app.engine.prediction.correction`), so it is unknown with fewer. Then theta, its standard error
and interval, the predicted score and the profile are null, and a reason is given. The answers
themselves are always in the session, item by item.

Theta has one more condition: with fewer than 20 reference models, the coverage of its intervals
cannot be checked, and is far too low. Theta is then withheld, but the score is shown.
"""

import math
import time
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np

from app.engine import Response
from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray
from app.engine.design.parts import BudgetDesign
from app.engine.estimation.estimators import GridBelief, GridEstimator, effective_answers
from app.engine.inference.diagnostics import inversions, person_fit
from app.engine.multidimensional import ProfileBelief
from app.engine.prediction.correction import KNOTS
from app.engine.prediction.learned_curves import extrapolation, share_below
from app.engine.prediction.p_irt import ALL_ITEMS, allowing_for_nonresponse
from app.engine.prediction.score_estimate import (
    Explained,
    Explanations,
    ScoreEstimator,
    prior_doubt,
)
from app.engine.prediction.targets import WHOLE_BANK, target_weights
from app.engine.state import Z_95, CatState, answered
from app.items import Outcome
from app.records.fields import Interval, finite, interval, shallow
from app.records.figures import (
    CallsFigures,
    EstimateFigures,
    ExtrapolationFigures,
    LatencyFigures,
    Method,
    Outcomes,
    PersonFitFigures,
    ProfileFigures,
    RepeatsEstimate,
    RepeatsFigures,
    RightFigures,
    SessionFigures,
    SpentFigures,
    TaskFigures,
    UsageFigures,
)
from app.records.sessions import Closing
from app.reports.figures import usd_per_item
from app.services.banks.loaded import LoadedVersion
from app.services.endpoints.scorer_calls import Spending, spent_by

#: Least number of scored answers for a result.
MIN_MARKED = KNOTS[0]


def person_fit_of(
    version: LoadedVersion, responses: Sequence[Response], theta: float | FloatArray
) -> PersonFitFigures:
    """Person fit of these answers at the final estimate."""
    # Without reference models, the curves are given and count as exact.
    asked = version.bank, responses, theta, version.n_reference or None
    fit, turned = person_fit(*asked), inversions(*asked)
    return {
        "lz": finite(fit.lz),
        "p_value": finite(fit.p_value),
        "flagged": fit.flagged,
        "inversions": {
            "observed": round(turned.observed, 3),
            "expected": round(turned.expected, 3),
        },
        "surprises": [
            {
                "item_id": version.key_at(surprise.item),
                "score": surprise.score,
                "expected": round(surprise.expected, 4),
            }
            for surprise in turned.surprises
        ],
    }


def position_of(
    version: LoadedVersion, test: AdaptiveTest, state: CatState, target: Mapping[str, float] | None
) -> ExtrapolationFigures | None:
    """Position among the reference models; None if the version cannot place examinees."""
    learned = version.curves
    if learned is None or learned.population is None:
        return None
    if (place := learned.place(state.responses)) is None:
        return None
    predictor = test.predictor
    if not isinstance(predictor, ScoreEstimator):
        # The test predicts its score in another way, but the position needs score curves.
        weights = target_weights(version.bank, target or {WHOLE_BANK: 1.0}, version.tags)
        curves = learned.curves.towards(weights, version.active)
        explanations = Explanations.of(curves, prior_doubt(learned.n_reference))
        predictor = ScoreEstimator(explanations, weights, version.active)
    if target is None or set(target) == {WHOLE_BANK}:
        shown = test.predict(state)
        score = shown.value, shown.lo, shown.hi
    else:  # the sampled questions of a part say nothing of the rest
        weights = target_weights(version.bank, {WHOLE_BANK: 1.0}, version.tags)
        held = Explained.of(learned.curves, weights, *answered(state.responses))
        reach = Z_95 * held.variance**0.5
        score = held.value, max(held.value - reach, 0.0), min(held.value + reach, 1.0)
    found = extrapolation(predictor.estimate(state.responses), place, learned.population, score)
    words = {"agrees": found.agrees, "detail": found.detail, "caution": found.caution}
    known = shallow(found)
    known["interval"] = Interval(lo=known.pop("lo"), hi=known.pop("hi"), level=0.95)
    return cast(ExtrapolationFigures, known | words)


#: Most tasks with a predicted score; nobody would read a longer page.
_MOST_TASKS = 50


def profile_of(
    version: LoadedVersion,
    test: AdaptiveTest,
    state: CatState,
    target: Mapping[str, float] | None = None,
) -> ProfileFigures | None:
    """Profile of abilities and scores; None if the version measures only one ability.

    `target` has the weights of the tags in the test's score. If this is not the score of the
    whole bank, the tasks include the whole bank.
    """
    belief, abilities = state.belief, version.bank.abilities
    if not isinstance(belief, ProfileBelief) or abilities is None:
        return None
    profile = belief.profile
    asked = Counter(tag for response in state.responses for tag in version.tags[response.item])
    asked[WHOLE_BANK] = state.n_scored
    tasks: list[TaskFigures] = []
    for name, predictor in list(test.tasks.items())[: _MOST_TASKS + 1]:
        if name == WHOLE_BANK and (target is None or set(target) == {WHOLE_BANK}):
            continue
        predicted = predictor.predict(version.bank, state.responses, state.belief)
        is_known = asked[name] == version.tag_counts[name]
        if not is_known:
            predicted = allowing_for_nonresponse(predicted, state)
        tasks.append(
            {
                "tag": name,
                "value": predicted.value,
                "interval": Interval(lo=finite(predicted.lo), hi=finite(predicted.hi), level=0.95),
                "method": ALL_ITEMS if is_known else predicted.method,
                "n_items": version.tag_counts[name],
                "n_asked": asked[name],
            }
        )
    half = Z_95 * profile.se
    ends = np.stack([profile.mean - half, profile.mean + half], axis=1)
    if abilities.items.nested:
        told = test.estimate(state)  # the general ability has a corrected interval
        ends[0] = told.lo, told.hi
    known = version.reference_abilities
    return {
        "abilities": [
            {
                "name": name,
                "value": value,
                "se": se,
                "interval": Interval(lo=lo, hi=hi, level=0.95),
                "above": share_below(value, known) if is_main and len(known) > 1 else None,
            }
            for name, value, se, (lo, hi), is_main in zip(
                abilities.items.names,
                profile.mean.tolist(),
                profile.se.tolist(),
                ends.tolist(),
                (abilities.composite == 1.0).tolist(),
                strict=True,
            )
        ],
        "tasks": tasks,
    }


def no_result(marked: int) -> str | None:
    """Why there is no result after `marked` scored answers; None if there is one."""
    if marked >= MIN_MARKED:
        return None
    return f"Needs at least {MIN_MARKED} scored answers, has {marked}."


def outcomes_in(counts: Counter[str]) -> Outcomes:
    """How many items ended in which way."""
    return cast(Outcomes, {outcome.value: counts[outcome] for outcome in Outcome})


def right_in(scores: Sequence[float]) -> RightFigures:
    """Number of right answers and mean score.

    Both are null without a scored answer; the number is also null if a score is not 0 or 1.
    """
    if not scores:
        return {"right": None, "mean": None}
    whole = all(score in (0.0, 1.0) for score in scores)
    return {"right": int(sum(scores)) if whole else None, "mean": sum(scores) / len(scores)}


def shown(figures: SessionFigures, withheld: str | None) -> SessionFigures:
    """A session's figures for people: no theta that is withheld or rests on too few answers."""
    reason = no_result(figures["progress"]["scored"]) or withheld
    estimate: EstimateFigures = {**figures["estimate"], "reason": reason}
    if reason is not None:
        estimate = {
            **estimate,
            "theta": None,
            "se": None,
            "interval": None,
            "interval_raw": None,
            "at_bound": False,
        }
        if (repeats := figures.get("repeats")) is not None:
            figures = {**figures, "repeats": {**repeats, "estimate": None}}
        if (profile := figures.get("profile")) is not None:
            figures = {**figures, "profile": {**profile, "abilities": []}}
    return {**figures, "estimate": estimate}


class SpareTime:
    """Time budget for optional figures, which is refilled slowly.

    One worker runs many tests on one thread. With few tests there is always time left, and each
    step computes its own figures. With many, or with a large bank, the first to ask get the time.

    Args:
        share: Share of the passing time that is added to the budget.
        most_s: Most seconds that the budget can hold.
    """

    def __init__(
        self,
        *,
        share: float = 0.1,
        most_s: float = 0.1,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._share, self._most_s, self._clock = share, most_s, clock
        self._left_s, self._as_of = most_s, clock()

    def is_left(self) -> bool:
        """Whether optional figures may be computed now, however long this takes."""
        now = self._clock()
        self._left_s = min(self._most_s, self._left_s + self._share * (now - self._as_of))
        self._as_of = now
        return self._left_s > 0

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Charge the time of the block to the budget, which may become negative."""
        began = self._clock()
        try:
            yield
        finally:
            self._left_s -= self._clock() - began


#: Outcomes of answers that were written and thus paid for; a refused prompt may cost nothing.
_METERED = frozenset({Outcome.SCORED, Outcome.UNPARSED, Outcome.TRUNCATED})


class Meter:
    """Counts usage and repeats, closing by closing.

    Variances and shares of repeats are over the asked items. An adaptive test picks these near the
    examinee's ability, where chance is greatest.

    Attributes:
        spent: What the answers tell of their cost.
        at_most: The same, with what was reserved where an endpoint reported no usage.
        is_blind: Whether the budget caps something of which an answer took an unknown amount.
    """

    def __init__(self, budget: BudgetDesign) -> None:
        self._budget = budget
        self.spent, self.at_most = Spending(), Spending()
        self.is_blind = False
        self._marking: Spending | None = None
        self._latencies: list[float] = []
        self._scores: dict[int, list[float]] = {}
        self._n_repeats = 1
        self._saved: CallsFigures | None = None

    def take(self, closing: Closing, item: int | None) -> None:
        """Count a closing; `item` is the item's position, or None for a pretest item."""
        for latency_ms in _latencies(closing):
            insort(self._latencies, latency_ms)
        is_written, budget = closing.outcome in _METERED, self._budget
        if closing.attempts and is_written:
            no_tokens = closing.tokens_in is None or closing.tokens_out is None
            self.is_blind |= budget.tokens is not None and no_tokens
            self.is_blind |= budget.usd is not None and closing.usd is None
        if closing.marking is not None:
            took = Spending(**closing.marking["usage"])
            self._marking = took if self._marking is None else self._marking + took
        cost, reported = _cost(closing, unsaid=is_written), closing.reported
        self.at_most += cost
        self.spent += cost if reported is closing else _cost(reported, unsaid=True)
        method: Method = closing.method or {}
        judged = None if closing.marking is None else closing.marking.get("cached")
        self._saved = saved((self._saved, method.get("cached"), judged))
        repeats = method.get("repeats")
        if repeats and item is not None:
            self._n_repeats = max(self._n_repeats, len(repeats))
            if scores := [each["score"] for each in repeats if each["score"] is not None]:
                self._scores[item] = scores

    def figures(self, elapsed_s: float) -> UsageFigures:
        """Usage so far."""
        n, latency = len(self._latencies), None
        if n:
            half, most = (self._latencies[math.ceil(share * n) - 1] for share in (0.5, 0.95))
            latency = LatencyFigures(p50=half, p95=most)
        return {
            **spent_figures([self]),
            "seconds": round(elapsed_s, 3),
            "latency_ms": latency,
            "judge": None if self._marking is None else self._marking.figures(),
            "cache": self._saved,
        }

    def repeats(self, test: AdaptiveTest, state: CatState) -> RepeatsFigures | None:
        """Figures of repeated items; None if no item was repeated."""
        if self._n_repeats == 1:
            return None
        given = list(self._scores.values())
        several = [scores for scores in given if len(scores) > 1]
        return {
            "n": self._n_repeats,
            "items": len(given),
            "within_item_variance": _mean([_variance(scores) for scores in several]),
            "pass_k": [_mean(_passed(given, k)) for k in range(1, self._n_repeats + 1)],
            "estimate": self._estimate(test, state),
        }

    def _estimate(self, test: AdaptiveTest, state: CatState) -> RepeatsEstimate | None:
        """Theta where each item counts as its effective number of independent answers."""
        estimator, belief = test.estimator, state.belief
        if not isinstance(estimator, GridEstimator) or not isinstance(belief, GridBelief):
            return None
        if no_result(state.n_scored) is not None:
            return None
        answers = effective_answers(test.bank, belief.theta, self._scores)
        counted = replace(state, belief=estimator.weighted(test.bank, belief, answers))
        found = test.estimate(counted)
        return {
            "theta": finite(found.theta),
            "se": finite(found.se),
            "interval": interval(found.lo, found.hi),
            "answers_per_item": answers,
        }


def saved(found: Iterable[CallsFigures | None]) -> CallsFigures | None:
    """What the calls that the cache saved would have taken; None if it saved none."""
    known = [each for each in found if each is not None]
    return spent_by(known) if known else None


def effort_of(figures: Mapping[str, Any]) -> dict[str, Any]:
    """`usd_per_item`, the mean cost of a session's items, and `latency_ms` of its answers."""
    return {
        "usd_per_item": usd_per_item(figures),
        "latency_ms": figures["usage"].get("latency_ms"),
    }


def spent_figures(meters: Iterable[Meter]) -> SpentFigures:
    """What several sessions took together."""
    spent = at_most = Spending()
    for meter in meters:
        spent, at_most = spent + meter.spent, at_most + meter.at_most
    return {**spent.figures(), "at_most": None if spent == at_most else at_most.figures()}


def _latencies(closing: Closing) -> list[float]:
    """Latency of each answer to an item; the closing's own is that of the slowest repeat."""
    repeats: Sequence[Mapping[str, Any]] = (closing.method or {}).get("repeats", [])
    answers = [each["latency_ms"] for each in repeats] or [closing.latency_ms]
    return [latency_ms for latency_ms in answers if latency_ms is not None]


def _cost(closing: Closing, *, unsaid: bool) -> Spending:
    """Cost of an answer; tokens that it does not tell are unknown if `unsaid`, or else none.

    One call of unknown price makes the sum unknown; a sum of the others would be too low.
    """
    tokens, usd = (None if unsaid else 0), (None if unsaid or closing.attempts else 0.0)
    return Spending(
        calls=closing.attempts or 0,
        tokens_in=tokens if closing.tokens_in is None else closing.tokens_in,
        tokens_out=tokens if closing.tokens_out is None else closing.tokens_out,
        usd=usd if closing.usd is None else closing.usd,
    )


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _variance(scores: Sequence[float]) -> float:
    """Unbiased variance of the scores of single answers."""
    mean = math.fsum(scores) / len(scores)
    return math.fsum((score - mean) ** 2 for score in scores) / (len(scores) - 1)


def _passed(items: Sequence[Sequence[float]], k: int) -> list[float]:
    """Chance that k answers drawn at random are all right, for each item with at least k answers.

    Source: Yao et al. (2024), tau-bench, pass^k.
    """
    return [
        math.comb(sum(score == 1.0 for score in scores), k) / math.comb(len(scores), k)
        for scores in items
        if len(scores) >= k
    ]
