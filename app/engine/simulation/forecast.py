"""Forecast of a test: the expected number of items, cost, time and precision.

Simulated examinees take the test; their answers are drawn from the bank's response model. The
forecast is only as good as that model: real examinees fit it less well. Answers that cannot be
scored cost further items, which the forecast does not count.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray
from app.engine.prediction.sample_size import items_for
from app.engine.simulation.simulate import FREE, Calls, draw_scores, take
from app.engine.state import CatState
from app.errors import InvalidInputError

#: Half-width of the score's interval for which the effort is reported, whatever the design asks.
TOLD_MARGIN = 0.03
#: Boundaries between the regions of ability, logits.
REGION_EDGES = (-1.5, -0.5, 0.5, 1.5)
#: From this share of all items on, an adaptive test saves too little to recommend it.
_NEARLY_ALL = 0.8
_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Distribution of a figure over many tests.

    Attributes:
        lo: 5 % quantile.
        hi: 95 % quantile.
    """

    mean: float
    median: float
    lo: float
    hi: float

    @classmethod
    def of(cls, values: Sequence[float] | FloatArray) -> "Range":
        """The distribution of the finite values.

        Raises:
            InvalidInputError: No value is finite.
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
        theta_lo: Lower end of the region, inclusive, logits; None is without end.
        theta_hi: Upper end of the region, exclusive, logits; None is without end.
        reached: Share of tests with the precision that the design asks; None if it asks none.
    """

    theta_lo: float | None
    theta_hi: float | None
    n_examinees: int
    items: Range
    se: Range
    reached: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What a number of items costs; a field is None if it is unknown."""

    items: int
    tokens: float | None
    usd: float | None
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Expected effort and precision of tests by a design.

    Attributes:
        items: Number of items asked.
        margin: Half the width of the score's 95 % interval.
        se: Standard error of theta at the end, logits.
        interval: Width of the reported 95 % interval of theta, logits.
        theta_rmse: Root mean squared error of theta under the model, logits.
        reached: Share of tests with the precision that the design asks; None if it asks none.
        stop_reasons: Share of tests by the reason of their end.
        tokens: Tokens of a whole test; None if unknown.
        usd: Price of a whole test, US dollars; None if unknown.
        seconds: Time of a whole test; None if unknown.
        for_3_points: Effort for a margin of `TOLD_MARGIN`, if intervals narrow as those of random
            samples do.
        for_all: Effort for all items that may be asked.
        regions: Results by ability, lowest first, without regions that have no examinee.
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


def calls_of(
    n_items: int,
    *,
    tokens_in: float | FloatArray | None = None,
    tokens_out: float | FloatArray | None = None,
    price_in: float | None = None,
    price_out: float | None = None,
    pace_s: float | None = None,
) -> Calls:
    """Cost of the calls, from tokens and prices.

    Args:
        n_items: Number of items of the bank.
        tokens_in: Prompt tokens, one number or shape (n_items,); NaN or None where unknown.
        tokens_out: Answer tokens, in the same form.
        price_in: US dollars per million prompt tokens.
        price_out: US dollars per million answer tokens.
        pace_s: Seconds from one item to the next, see `Calls`.
    """
    given = [tokens for tokens in (tokens_in, tokens_out) if tokens is not None]
    if not given or any(np.isnan(tokens).any() for tokens in given):
        return Calls(pace_s=pace_s)
    prompt, answer = (
        np.broadcast_to(np.asarray(0.0 if part is None else part), (n_items,))
        for part in (tokens_in, tokens_out)
    )
    usd = None
    if price_in is not None or price_out is not None:
        usd = (prompt * (price_in or 0.0) + answer * (price_out or 0.0)) / 1e6
    return Calls(tokens=prompt + answer, usd=usd, pace_s=pace_s)


def drawn(quantiles: Sequence[float], n: int, rng: np.random.Generator) -> FloatArray:
    """Thetas drawn from a population, given by equally spaced quantiles, shape (n,)."""
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
    watch: Callable[[int], object] | None = None,
) -> Forecast:
    """Simulate one test for each theta.

    Args:
        test: The test.
        thetas: True abilities, logits.
        seed: Random seed of answers and selections.
        concurrency: Number of items kept in flight.
        se_target: Standard error of theta that the design asks.
        margin_target: Margin of the score that the design asks. Either goal ends a test; `reached`
            counts tests that end with both.
        calls: Cost of the calls; budgets and time limits hold for it as in a session.
        watch: Called with the number of tests so far after each test.

    Raises:
        InvalidInputError: There is no examinee.
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
        if watch is not None:
            watch(len(ends))
    true = np.asarray(thetas, dtype=np.float64)
    items = np.array([state.n_asked for state in ends], dtype=np.float64)
    se = np.array([state.belief.se for state in ends])
    margin = np.array([test.predict(state).margin for state in ends])
    on_target = None
    if se_target is not None or margin_target is not None:
        enough = (se <= (se_target or np.inf)) & (margin <= (margin_target or np.inf))
        on_target = enough.astype(np.float64)
    final = [test.estimate(state) for state in ends]
    return Forecast(
        n_examinees=len(ends),
        items=Range.of(items),
        margin=Range.of(margin),
        se=Range.of(se),
        interval=Range.of([one.hi - one.lo for one in final]),
        theta_rmse=float(np.sqrt(np.mean((np.array([one.theta for one in final]) - true) ** 2))),
        reached=None if on_target is None else float(on_target.mean()),
        stop_reasons={reason: n / len(ends) for reason, n in reasons.most_common()},
        tokens=None
        if calls.tokens is None
        else Range.of([float(state.usage.tokens) for state in ends]),
        usd=None if calls.usd is None else Range.of([state.usage.usd for state in ends]),
        seconds=None if calls.pace_s is None else Range.of(items * calls.pace_s),
        for_3_points=_for_3_points(test, ends, margin, calls),
        for_all=_effort(test.pool.n_active, calls, _asked_cost(test, calls)),
        regions=tuple(_regions(true, items, se, on_target)),
    )


def _for_3_points(
    test: AdaptiveTest, ends: Sequence[CatState], margins: FloatArray, calls: Calls
) -> Effort:
    """Effort for `TOLD_MARGIN`: the median number of items, at the mean cost of those asked.

    It may be more items than may be asked; then no test reaches the margin.
    """
    needed = [
        items_for(TOLD_MARGIN, reached=float(margin), n_asked=n_scored, n_items=test.n_counted)
        for n_scored, margin in zip((state.n_scored for state in ends), margins, strict=True)
        if n_scored
    ]
    items = round(float(np.median(needed))) if needed else 0
    n_asked = max(sum(state.n_asked for state in ends), 1)
    tokens = sum(state.usage.tokens for state in ends) / n_asked
    return _effort(items, calls, (tokens, sum(state.usage.usd for state in ends) / n_asked))


def _asked_cost(test: AdaptiveTest, calls: Calls) -> tuple[float, float]:
    """Mean tokens and US dollars of an item that may be asked; 0 where unknown."""
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


def summary(forecast: Forecast) -> list[str]:
    """Two sentences: how precise the score is, what that costs, and whether it pays."""
    return [_exactness(forecast), _margin_words(forecast)]


def points(share: float) -> str:
    """A margin in points: `±3.6 points`."""
    percent = 100 * share
    return f"±{percent:.0f} points" if percent >= 10 else f"±{percent:.2g} points"


def _exactness(forecast: Forecast) -> str:
    asked, every = round(forecast.items.median), forecast.for_all.items
    if asked >= every:
        return f"All {every:,} questions are asked: {points(forecast.margin.median)}."
    return (
        f"{asked:,} of {every:,} questions: {points(forecast.margin.median)}; all {every:,} cost "
        f"{_times(every / max(asked, 1))} as much."
    )


def _margin_words(forecast: Forecast) -> str:
    needed, every = forecast.for_3_points, forecast.for_all
    if needed.items > every.items:
        many = f"the {every.items:,} questions that may be asked"
        return f"{points(TOLD_MARGIN)} take more than {many}."
    if needed.items >= _NEARLY_ALL * every.items:
        return (
            f"{points(TOLD_MARGIN)} take {needed.items:,} of {every.items:,} questions: "
            f"for that ask them all{_also(every)}."
        )
    return f"{points(TOLD_MARGIN)} take about {needed.items:,} questions{_also(needed)}."


def _also(effort: Effort) -> str:
    parts = []
    if effort.seconds is not None:
        parts.append(_time(effort.seconds))
    if effort.usd is not None:
        parts.append(f"${effort.usd:,.2f}" if effort.usd >= 0.1 else f"${effort.usd:.4f}")
    elif effort.tokens is not None:
        parts.append(f"{effort.tokens:,.0f} tokens")
    return "".join(f", {part}" for part in parts)


def _time(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{minutes} minutes" if minutes < 90 else f"{minutes / 60:.1f} hours"


def _times(ratio: float) -> str:
    rounded = round(ratio)
    if ratio < 1.75:
        return f"{ratio:.1f} times"
    return f"{_NUMBERS[rounded - 2] if rounded <= len(_NUMBERS) + 1 else f'{rounded:,}'} times"
