"""Pictures of a test: intervals one below the other, and how they narrowed."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.reports.charts import HEIGHT, WIDTH, legend, place, svg
from app.reports.markup import Markup, Node, el, join

_LEFT, _RIGHT = 12, 12
_ROW, _LABEL, _TRACK = 52, 16, 36  # height of a row; text and line in it
_AXIS = 30
_NAME = 34  # characters of a name that fit beside its note
_PLOT_LEFT, _PLOT_TOP, _PLOT_BOTTOM = 72, 14, 46
_TICKS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One interval.

    Attributes:
        note: Beside the label.
        typical: Where a mark is set for comparison.
        never: Drawn hollow: nothing of it was seen.
    """

    label: str
    note: str
    value: float
    lo: float
    hi: float
    typical: float | None = None
    never: bool = False


def interval_chart(
    bars: Sequence[Bar],
    ends: tuple[float, float],
    ticks: Sequence[float],
    *,
    title: str,
    description: str,
    show: Callable[[float], str],
    entries: Sequence[tuple[str, str]],
) -> Markup:
    """Values with their intervals, one below the other.

    Args:
        bars: What is shown.
        ends: Of the axis; what is beyond is drawn at its end.
        ticks: Where the axis is marked.
        title: What the picture shows.
        description: What there is to see.
        show: A value of the axis as text.
        entries: Of the legend: style and meaning.
    """
    lo, hi = ends
    height = _ROW * len(bars) + _AXIS

    def x(value: float) -> float:
        inside = min(max(value, lo), hi)
        return _LEFT + 8 + (inside - lo) / (hi - lo) * (WIDTH - _LEFT - _RIGHT - 16)

    shapes: list[Node] = []
    for tick in ticks:
        at = place(x(tick))
        shapes.append(el("line", class_="grid", x1=at, x2=at, y1=0, y2=height - _AXIS + 4))
        anchor = "mid" if lo < tick < hi else "end" if tick >= hi else None
        shapes.append(el("text", show(tick), x=at, y=height - 8, class_=anchor))
    for row, bar in enumerate(bars):
        top = row * _ROW
        y, kind = top + _TRACK, " never" if bar.never else ""
        name = bar.label if len(bar.label) <= _NAME else bar.label[: _NAME - 1] + "…"
        shapes += [
            el("text", name, x=_LEFT, y=top + _LABEL, class_="label strong"),
            el("text", bar.note, x=WIDTH - _RIGHT, y=top + _LABEL, class_="end aside"),
            el(
                "line",
                class_=f"whisker{kind}",
                x1=place(x(bar.lo)),
                x2=place(x(bar.hi)),
                y1=y,
                y2=y,
            ),
        ]
        if bar.typical is not None:
            at = place(x(bar.typical))
            shapes.append(el("line", class_="typical", x1=at, x2=at, y1=y - 10, y2=y + 10))
        shapes.append(el("circle", class_=f"dot{kind}", cx=place(x(bar.value)), cy=y, r=7))
    return join(svg(title, description, *shapes, height=height), legend(entries))


def trace_chart(
    answers: Sequence[int],
    values: Sequence[float],
    lows: Sequence[float],
    highs: Sequence[float],
    *,
    title: str,
    description: str,
    y_label: str,
    show: Callable[[float], str],
    least: float,
    most: float,
) -> Markup:
    """A value with its interval as answers came in, and its caption: the inside of a figure.

    Args:
        answers: How many had come, ascending, two at least.
        values: What was thought then.
        lows: Lower ends of the interval.
        highs: Upper ends.
        title: What the picture shows.
        description: What there is to see.
        y_label: Beside the axis.
        show: A value of the axis as text.
        least: Nothing below is drawn.
        most: Nothing above is drawn.
    """
    bottom, right = HEIGHT - _PLOT_BOTTOM, WIDTH - _RIGHT
    ticks = _ticks(max(min(lows), least), min(max(highs), most))
    lo, hi = ticks[0], ticks[-1]

    def x(count: float) -> float:
        return _PLOT_LEFT + (count - answers[0]) / (answers[-1] - answers[0]) * (right - _PLOT_LEFT)

    def y(value: float) -> float:
        return bottom - (min(max(value, lo), hi) - lo) / (hi - lo) * (bottom - _PLOT_TOP)

    def line(ends: Sequence[float], *, back: bool = False) -> list[str]:
        points = [f"{place(x(n))},{place(y(end))}" for n, end in zip(answers, ends, strict=True)]
        return points[::-1] if back else points

    shapes: list[Node] = [
        el("polygon", class_="band", points=" ".join(line(lows) + line(highs, back=True)))
    ]
    for tick in ticks:
        at = place(y(tick))
        shapes.append(el("line", class_="grid", x1=_PLOT_LEFT, x2=right, y1=at, y2=at))
        shapes.append(el("text", show(tick), x=_PLOT_LEFT - 8, y=place(y(tick) + 4), class_="end"))
    shapes += [
        el("text", str(n), x=place(x(n)), y=bottom + 18, class_="mid") for n in _whole(answers[-1])
    ]
    middle = (_PLOT_TOP + bottom) // 2
    shapes += [
        el("line", class_="axis", x1=_PLOT_LEFT, x2=right, y1=bottom, y2=bottom),
        el("polyline", class_="line one", points=" ".join(line(values))),
        el("text", "marked answers", x=(_PLOT_LEFT + right) // 2, y=HEIGHT - 6, class_="mid"),
        el("text", y_label, x=14, y=middle, class_="mid", transform=f"rotate(-90 14 {middle})"),
    ]
    entries = [("one", "best estimate"), ("shade", "95\u00a0% interval")]
    return join(el("figcaption", title), svg(title, description, *shapes), legend(entries))


def _ticks(lo: float, hi: float) -> list[float]:
    """About five round values whose first and last hold everything."""
    rough = max(hi - lo, 1e-6) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(size for size in (1, 2, 2.5, 5, 10) if size * power >= rough)
    first, last = math.floor(lo / step + 1e-9), math.ceil(hi / step - 1e-9)
    return [round(k * step, 10) for k in range(first, max(last, first + 1) + 1)]


def _whole(most: int) -> list[int]:
    """Round numbers of answers up to the last."""
    ticks = _ticks(0, most)
    return [int(tick) for tick in ticks if tick <= most and tick == int(tick)]
