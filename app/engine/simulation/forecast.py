"""What a test will take before anything is paid: items, cost, time and precision to expect.

Examinees are drawn, answer by the bank's own model, and take the test. The forecast is as good as
the model: real examinees fit it less well, and answers that cannot be scored cost items that are
not counted here.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray
from app.engine.prediction.sample_size import items_for
from app.engine.simulation.simulate import FREE, Calls, draw_scores, take
from app.engine.state import CatState
from app.errors import InvalidInputError

#: What people are told that it takes, whatever the design asks for: half of the score's interval.
TOLD_MARGIN = 0.03
#: Ends of the regions of ability that are told apart, logits.
REGION_EDGES = (-1.5, -0.5, 0.5, 1.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A figure over many tests.

    Attributes:
        mean: Over all.
        median: Half are below it.
        lo: 5 % are below it.
        hi: 95 % are below it.
    """

    mean: float
    median: float
    lo: float
    hi: float

    @classmethod
    def of(cls, values: Sequence[float] | FloatArray) -> "Range":
        """Of the finite ones among some values.

        Raises:
            InvalidInputError: There is none.
        """
        finite = np.asarray(values)[np.isfinite(values)]
        if not finite.size:
            raise InvalidInputError("No simulated test ends with a finite standard error.")
        lo, median, hi = np.quantile(finite, [0.05, 0.5, 0.95]).tolist()
        return cls(mean=float(finite.mean()), median=median, lo=lo, hi=hi)


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Examinees of similar true ability.

    Attributes:
        theta_lo: From this theta on; None is without end.
        theta_hi: Up to this one.
        reached: Share that is as exact as the design asks; None where it does not say.
    """

    theta_lo: float | None
    theta_hi: float | None
    n_examinees: int
    items: Range
    se: Range
    reached: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What so many items take; None where that is not known."""

    items: int
    tokens: float | None
    usd: float | None
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What tests by a design will take, and give.

    Attributes:
        items: Items asked.
        margin: Half of the width of the score's 95 % interval.
        se: Standard error at the end, logits.
        interval: Width of the 95 % interval of theta that people are told.
        theta_rmse: Root mean squared error against the true theta, under the model.
        reached: Share of tests that are as exact as the design asks; None where it does not say.
        stop_reasons: Reason to share of tests.
        tokens: Of a whole test; None where unknown, as are the next two.
        usd: Of a whole test.
        seconds: Of a whole test.
        for_3_points: What a margin of `TOLD_MARGIN` will take, were intervals to narrow as those
            of random samples do.
        for_all: What all items take that may be asked.
        regions: By ability, the lowest first; those without examinees are left out.
    """

    n_examinees: int
    items: Range
    margin: Range
    se: Range
    interval: Range
    theta_rmse: float
    reached: float | None
    stop_reasons: dict[str, float]
    tokens: Range | None
    usd: Range | None
    seconds: Range | None
    for_3_points: Effort
    for_all: Effort
    regions: tuple[Region, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {**asdict(self), "regions": [asdict(region) for region in self.regions]}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "Forecast":
        """The opposite of `to_dict`."""
        return cls(
            **{
                **_with_ranges(document),
                **{name: Effort(**document[name]) for name in ("for_3_points", "for_all")},
                "regions": tuple(Region(**_with_ranges(one)) for one in document["regions"]),
            }
        )


_RANGE = {field.name for field in fields(Range)}


def _with_ranges(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: Range(**said) if isinstance(said, Mapping) and said.keys() == _RANGE else said
        for name, said in document.items()
    }


def calls_of(
    n_items: int,
    *,
    tokens_in: float | FloatArray | None = None,
    tokens_out: float | FloatArray | None = None,
    price_in: float | None = None,
    price_out: float | None = None,
    pace_s: float | None = None,
) -> Calls:
    """What calls take, from tokens and prices.

    Args:
        n_items: Of the bank.
        tokens_in: Prompt tokens, of every item or item by item; NaN or None where unknown.
        tokens_out: The same of the answers.
        price_in: US dollars per million prompt tokens.
        price_out: The same of the answers.
        pace_s: See `Calls`.
    """
    known = [tokens for tokens in (tokens_in, tokens_out) if tokens is not None]
    if not known or any(np.isnan(tokens).any() for tokens in known):
        return Calls(pace_s=pace_s)
    one, other = (
        np.broadcast_to(np.asarray(0.0 if part is None else part), (n_items,))
        for part in (tokens_in, tokens_out)
    )
    usd = None
    if price_in is not None or price_out is not None:
        usd = (one * (price_in or 0.0) + other * (price_out or 0.0)) / 1e6
    return Calls(tokens=one + other, usd=usd, pace_s=pace_s)


def drawn(quantiles: Sequence[float], n: int, rng: np.random.Generator) -> FloatArray:
    """Thetas of a population that is known by its equally spaced quantiles, shape (n,)."""
    return np.interp(rng.random(n), np.linspace(0, 1, len(quantiles)), quantiles)


def forecast(
    test: AdaptiveTest,
    thetas: Sequence[float] | FloatArray,
    *,
    seed: int,
    concurrency: int = 1,
    se_target: float | None = None,
    margin_target: float | None = None,
    calls: Calls = FREE,
) -> Forecast:
    """Simulate one test for each theta.

    Args:
        test: The test.
        thetas: True abilities, logits.
        seed: Of answers and of choices.
        concurrency: Items kept in flight.
        se_target: The design's, whose reaching is counted.
        margin_target: The same of the score.
        calls: What calls take; budgets and time limits hold for them as they do in a session.

    Raises:
        InvalidInputError: No examinee.
    """
    if not len(thetas):
        raise InvalidInputError("A forecast needs at least one examinee.")
    ends: list[CatState] = []
    reasons: Counter[str] = Counter()
    rows = draw_scores(test.bank, thetas, np.random.default_rng([seed, len(thetas)]))
    for i, row in enumerate(rows):
        state, stop = take(test, row, seed=[seed, i], concurrency=concurrency, calls=calls)
        ends.append(state)
        reasons[stop.reason.value] += 1
    true = np.asarray(thetas, dtype=np.float64)
    items = np.array([state.n_asked for state in ends], dtype=np.float64)
    se = np.array([state.belief.se for state in ends])
    margin = np.array([test.predict(state).margin for state in ends])
    met = None
    if se_target is not None or margin_target is not None:
        enough = (se <= (se_target or np.inf)) & (margin <= (margin_target or np.inf))
        met = enough.astype(np.float64)
    told = [test.estimate(state) for state in ends]
    return Forecast(
        n_examinees=len(ends),
        items=Range.of(items),
        margin=Range.of(margin),
        se=Range.of(se),
        interval=Range.of([one.hi - one.lo for one in told]),
        theta_rmse=float(np.sqrt(np.mean((np.array([one.theta for one in told]) - true) ** 2))),
        reached=None if met is None else float(met.mean()),
        stop_reasons={reason: n / len(ends) for reason, n in reasons.most_common()},
        tokens=None
        if calls.tokens is None
        else Range.of([float(state.usage.tokens) for state in ends]),
        usd=None if calls.usd is None else Range.of([state.usage.usd for state in ends]),
        seconds=None if calls.pace_s is None else Range.of(items * calls.pace_s),
        for_3_points=_for_3_points(test, ends, margin, calls),
        for_all=_effort(test.pool.n_active, calls, _asked_cost(test, calls)),
        regions=tuple(_regions(true, items, se, met)),
    )


def _for_3_points(
    test: AdaptiveTest, ends: Sequence[CatState], margins: FloatArray, calls: Calls
) -> Effort:
    """What half of the tests will take, or less; an item costs what theirs did."""
    needed = [
        items_for(TOLD_MARGIN, reached=float(margin), n_asked=n_scored, n_items=test.n_counted)
        for n_scored, margin in zip((state.n_scored for state in ends), margins, strict=True)
        if n_scored
    ]
    items = min(round(float(np.median(needed))), test.pool.n_active) if needed else 0
    n_asked = max(sum(state.n_asked for state in ends), 1)
    tokens = sum(state.usage.tokens for state in ends) / n_asked
    return _effort(items, calls, (tokens, sum(state.usage.usd for state in ends) / n_asked))


def _asked_cost(test: AdaptiveTest, calls: Calls) -> tuple[float, float]:
    """Mean tokens and US dollars of an item that may be asked, as far as they are known."""
    chosen = slice(None) if test.pool.active is None else test.pool.active
    tokens, usd = (
        0.0 if column is None else float(column[chosen].mean())
        for column in (calls.tokens, calls.usd)
    )
    return tokens, usd


def _effort(items: int, calls: Calls, each: tuple[float, float]) -> Effort:
    tokens, usd = each
    return Effort(
        items=items,
        tokens=None if calls.tokens is None else items * tokens,
        usd=None if calls.usd is None else items * usd,
        seconds=None if calls.pace_s is None else items * calls.pace_s,
    )


def _regions(
    true: FloatArray, items: FloatArray, se: FloatArray, met: FloatArray | None
) -> list[Region]:
    which = np.digitize(true, REGION_EDGES)
    ends = (None, *REGION_EDGES, None)
    return [
        Region(
            theta_lo=ends[k],
            theta_hi=ends[k + 1],
            n_examinees=int(inside.sum()),
            items=Range.of(items[inside]),
            se=Range.of(se[inside]),
            reached=None if met is None else float(met[inside].mean()),
        )
        for k in range(len(REGION_EDGES) + 1)
        if (inside := which == k).any()
    ]
