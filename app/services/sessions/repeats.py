"""An item asked several times: its answers as one, and what they say of chance."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from app.engine.adaptive import AdaptiveTest
from app.engine.estimation.estimators import GridBelief, GridEstimator
from app.engine.estimation.repeats import effective_answers
from app.engine.state import CatState
from app.records.intervals import finite, interval
from app.records.sessions import Closing
from app.services.marking.calling_out import Spending
from app.services.sessions.shown_figures import no_result

#: Times that one item may be asked.
MAX_REPEATS = 32


def combined(closings: Sequence[Closing]) -> Closing:
    """One closing of several answers to an item: the score is the mean of those that have one.

    What was answered is that of the first one with a score, and all of them stand in `method`;
    what they took is summed. Without any score it ends as the first did.
    """
    scored = [closing for closing in closings if closing.score is not None]
    first = (scored or list(closings))[0]
    mean = None if not scored else math.fsum(c.score or 0.0 for c in scored) / len(scored)
    latencies = [c.latency_ms for c in closings if c.latency_ms is not None]
    return replace(
        first,
        score=mean,
        tokens_in=total(c.tokens_in for c in closings if c.attempts),
        tokens_out=total(c.tokens_out for c in closings if c.attempts),
        usd=total(c.usd for c in closings if c.attempts),
        latency_ms=max(latencies, default=None),
        attempts=sum(c.attempts or 0 for c in closings),
        marking=_marking(closings),
        method={
            **{name: kept for name, kept in (first.method or {}).items() if name in _OF_CALL},
            "mode": "generate",
            **({"cached": saved} if (saved := saved_by_cache(closings)) else {}),
            "repeats": [_comparable(closing) for closing in closings],
        },
    )


def repeats_in(closing: Closing) -> list[Closing]:
    """The single answers of a closing that `combined` made, each to be marked again."""
    stored = (closing.method or {}).get("repeats", [])
    told = [{name: each[name] for name in _TOLD} for each in stored]
    return [replace(closing, method=None, marking=None, **each) for each in told]


_OF_CALL = ("endpoint_revision", "usage")
_TOLD = (
    *("outcome", "score", "extracted", "extractor", "reason", "error_code"),
    *("answer_text", "raw_text", "reasoning", "finish_reason"),
    *("tokens_in", "tokens_out", "usd", "latency_ms", "attempts"),
)


def _comparable(closing: Closing) -> dict[str, Any]:
    revision = (closing.method or {}).get("endpoint_revision")
    return {name: getattr(closing, name) for name in _TOLD} | {"endpoint_revision": revision}


def _marking(closings: Sequence[Closing]) -> dict[str, Any] | None:
    """The first one's, with what all of them took."""
    found = [closing.marking for closing in closings if closing.marking is not None]
    if not found:
        return None
    parts = {"usage": _sum([marking["usage"] for marking in found])}
    if saved := [marking["cached"] for marking in found if "cached" in marking]:
        parts["cached"] = _sum(saved)
    return {**found[0], **parts}


def _sum(usages: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    spent = Spending()
    for usage in usages:
        spent.add(Spending(**usage))
    return asdict(spent)


def total(values: Iterable[Any]) -> Any:
    """Their sum; None where one is unknown, for a low sum would not say so."""
    known = list(values)
    return None if None in known else sum(known)


def saved_by_cache(closings: Sequence[Closing]) -> dict[str, Any] | None:
    """What calls would have taken that were not made; None where none was saved."""
    found = [c.method["cached"] for c in closings if c.method and "cached" in c.method]
    if not found:
        return None
    return {name: total(each[name] for each in found) for name in found[0]}


class Answering:
    """How a session's answers came about, beside their marks: repeats and calls saved.

    Variances and shares are over the items asked, which an adaptive test picks near the examinee's
    ability: there chance is greatest.
    """

    def __init__(self) -> None:
        self._scores: dict[int, list[float]] = {}
        self._n = 1
        self._saved: dict[str, Any] | None = None

    def take(self, closing: Closing, item: int | None) -> None:
        """Count an item that was closed; `item` is its position, None if it is not of the test."""
        method = closing.method or {}
        for part in (method, closing.marking or {}):
            if cached := part.get("cached"):
                before = self._saved or dict.fromkeys(cached, 0)
                self._saved = {name: total((before[name], cached[name])) for name in cached}
        repeats = method.get("repeats")
        if repeats and item is not None:
            self._n = max(self._n, len(repeats))
            scores = [each["score"] for each in repeats if each["score"] is not None]
            if scores:
                self._scores[item] = scores

    @property
    def saved(self) -> dict[str, Any] | None:
        """Calls that the cache saved, and what they would have taken."""
        return self._saved

    def repeats(self, test: AdaptiveTest, state: CatState) -> dict[str, Any] | None:
        """Figures of repeated items, JSON-able; None where none was repeated."""
        if self._n == 1:
            return None
        given = list(self._scores.values())
        several = [scores for scores in given if len(scores) > 1]
        return {
            "n": self._n,
            "items": len(given),
            "within_item_variance": _mean([_variance(scores) for scores in several]),
            "pass_k": [_mean(_passed(given, k)) for k in range(1, self._n + 1)],
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
