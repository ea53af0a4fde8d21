"""What the answers of one session took, and what they say of chance where items are repeated."""

import math
from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from app.engine.adaptive import AdaptiveTest
from app.engine.design.parts import BudgetDesign
from app.engine.estimation.estimators import GridBelief, GridEstimator
from app.engine.estimation.repeats import effective_answers
from app.engine.state import CatState
from app.items import Outcome
from app.records.fields import finite, interval
from app.records.sessions import Closing
from app.services.marking.calling_out import Spending
from app.services.sessions.shown_figures import no_result

#: Outcomes of answers that were written, and so paid for; a refused prompt may have cost nothing.
_METERED = frozenset({Outcome.SCORED, Outcome.UNPARSED, Outcome.TRUNCATED})


class Meter:
    """Counts, closing by closing.

    Variances and shares of repeats are over the items asked, which an adaptive test picks near the
    examinee's ability: there chance is greatest.

    Attributes:
        usd: What the calls cost; None where a price or a count of tokens is unknown.
        is_blind: Whether an answer took what the budget caps, and nobody knows how much.
    """

    def __init__(self, budget: BudgetDesign) -> None:
        self._budget = budget
        self.calls = self.tokens_in = self.tokens_out = 0
        self.usd: float | None = 0.0
        self.is_blind = False
        self._marking: Spending | None = None
        self._latencies: list[float] = []
        self._scores: dict[int, list[float]] = {}
        self._n_repeats = 1
        self._saved: dict[str, Any] | None = None

    def take(self, closing: Closing, item: int | None) -> None:
        """An answer came, or none; `item` is its position, None if it is not of the test."""
        self.calls += closing.attempts or 0
        if closing.latency_ms is not None:
            insort(self._latencies, closing.latency_ms)
        self.tokens_in += closing.tokens_in or 0
        self.tokens_out += closing.tokens_out or 0
        if closing.attempts and closing.outcome in _METERED and self._is_unknown(closing):
            self.is_blind = True
        if closing.marking is not None:
            self._marking = self._marking or Spending()
            self._marking.add(Spending(**closing.marking["usage"]))
        # One call of unknown price makes the sum unknown; None says so, a low sum would not.
        if closing.usd is None and closing.attempts:
            self.usd = None
        elif self.usd is not None:
            self.usd += closing.usd or 0.0
        method = closing.method or {}
        for part in (method, closing.marking or {}):
            if cached := part.get("cached"):
                before = self._saved or dict.fromkeys(cached, 0)
                self._saved = {name: total((before[name], cached[name])) for name in cached}
        repeats = method.get("repeats")
        if repeats and item is not None:
            self._n_repeats = max(self._n_repeats, len(repeats))
            if scores := [each["score"] for each in repeats if each["score"] is not None]:
                self._scores[item] = scores

    def figures(self, elapsed_s: float) -> dict[str, Any]:
        """What `GET /v1/sessions/{id}` shows, JSON-able."""
        n, latency = len(self._latencies), None
        if n:  # which half of the answers, and all but a twentieth, did not take longer than
            shares = {"p50": 0.5, "p95": 0.95}
            latency = {name: self._latencies[math.ceil(q * n) - 1] for name, q in shares.items()}
        return {
            "calls": self.calls,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "usd": self.usd,
            "seconds": round(elapsed_s, 3),
            "latency_ms": latency,
            "judge": None if self._marking is None else asdict(self._marking),
            "cache": self._saved,
        }

    def _is_unknown(self, closing: Closing) -> bool:
        no_tokens = closing.tokens_in is None or closing.tokens_out is None
        return (self._budget.tokens is not None and no_tokens) or (
            self._budget.usd is not None and closing.usd is None
        )

    def repeats(self, test: AdaptiveTest, state: CatState) -> dict[str, Any] | None:
        """Figures of repeated items, JSON-able; None where none was repeated."""
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

    def _estimate(self, test: AdaptiveTest, state: CatState) -> dict[str, Any] | None:
        """Theta where each item counts as the answers that it got, as far as these differ."""
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


def total(values: Iterable[Any]) -> Any:
    """Their sum; None where one is unknown, for a low sum would not say so."""
    known = list(values)
    return None if None in known else sum(known)


def effort_of(figures: Mapping[str, Any]) -> dict[str, Any]:
    """What a question of an ended session took: `usd_per_item`, and `latency_ms` of its answers."""
    usage, items = figures["usage"], figures["progress"]["items"]
    usd = usage["usd"]
    return {
        "usd_per_item": usd / items if usd is not None and items else None,
        "latency_ms": usage.get("latency_ms"),
    }


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _variance(scores: Sequence[float]) -> float:
    """Unbiased, of one answer."""
    mean = math.fsum(scores) / len(scores)
    return math.fsum((score - mean) ** 2 for score in scores) / (len(scores) - 1)


def _passed(items: Sequence[Sequence[float]], k: int) -> list[float]:
    """Of each item with k answers or more, the chance that k of them drawn at random are all right.

    Source: Yao et al. (2024), tau-bench, pass^k.
    """
    return [
        math.comb(sum(score == 1.0 for score in scores), k) / math.comb(len(scores), k)
        for scores in items
        if len(scores) >= k
    ]
