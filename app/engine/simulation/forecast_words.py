"""A forecast in two sentences: how precise the score is, what that costs, and whether it pays."""

from app.engine.simulation.forecast import TOLD_MARGIN, Effort, Forecast

#: From this share of all items on, an adaptive test saves too little to recommend it.
_NEARLY_ALL = 0.8
_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def summary(forecast: Forecast) -> list[str]:
    """Sentences about a forecast."""
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
