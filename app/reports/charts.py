"""Charts as inline SVG, coloured by the page's style sheet."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.reports.markup import Markup, Node, el, join

#: Of a picture, in its own units.
WIDTH, HEIGHT = 520, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 12, 14, 46
_TICKS = 5
#: Of intervals one below the other: the margin, the height of a row, text and line in it.
_EDGE, _ROW, _LABEL, _TRACK, _AXIS = 12, 52, 16, 36, 30
_NAME = 34  # characters of a name that fit beside its note


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve; `style` is its class in the style sheet."""

    values: Sequence[float]
    label: str = ""
    style: str = "one"


@dataclass(frozen=True, slots=True)
class _Axes:
    """From values to places on the picture."""

    x: tuple[float, float]
    y: tuple[float, float]

    def px(self, value: float) -> float:
        lo, hi = self.x
        return _LEFT + (value - lo) / (hi - lo) * (WIDTH - _LEFT - _RIGHT)

    def py(self, value: float) -> float:
        lo, hi = self.y
        return HEIGHT - _BOTTOM - (value - lo) / (hi - lo) * (HEIGHT - _TOP - _BOTTOM)


def line_chart(
    x: Sequence[float],
    lines: Sequence[Line],
    *,
    title: str,
    description: str,
    x_label: str,
    y_label: str,
    top: float | None = None,
    band: tuple[float, float] | None = None,
    points: Sequence[tuple[float, float]] = (),
) -> Markup:
    """Curves over one axis that starts at 0.

    Args:
        x: Where the values are.
        lines: What they are.
        title: What the picture shows, also for those who cannot see it.
        description: What there is to see, in a sentence.
        x_label: Under the axis.
        y_label: Beside it.
        top: Upper end of the axis; by default what the values need.
        band: A range of x that is shaded.
        points: What was seen, beside the curves; x and value.
    """
    axes = _Axes((x[0], x[-1]), (0.0, top or _round_up(max(max(one.values) for one in lines))))
    shapes = [_frame(axes, x_label, y_label)]
    if band is not None:
        left, right = axes.px(band[0]), axes.px(band[1])
        shapes.insert(
            0,
            el(
                "rect",
                class_="band",
                x=place(left),
                y=_TOP,
                width=place(right - left),
                height=HEIGHT - _TOP - _BOTTOM,
            ),
        )
    for one in lines:
        path = " ".join(
            f"{place(axes.px(at))},{place(axes.py(min(value, axes.y[1])))}"
            for at, value in zip(x, one.values, strict=True)
        )
        shapes.append(el("polyline", class_=f"line {one.style}", points=path))
    for at, value in points:
        if axes.x[0] <= at <= axes.x[1]:
            shapes.append(
                el("circle", class_="point", cx=place(axes.px(at)), cy=place(axes.py(value)), r=5)
            )
    return join(
        svg(title, description, *shapes),
        legend([(one.style, one.label) for one in lines if one.label]),
    )


def histogram(
    edges: Sequence[float],
    up: Sequence[float],
    down: Sequence[float],
    *,
    title: str,
    description: str,
    x_label: str,
    up_label: str,
    down_label: str,
) -> Markup:
    """Two distributions over one axis: one upwards, one downwards, each to its own height."""
    axes = _Axes((edges[0], edges[-1]), (-1.0, 1.0))
    middle = axes.py(0.0)
    bars = []
    for counts, style, sign in ((up, "one", 1.0), (down, "two", -1.0)):
        most = max(counts) or 1.0
        for left, right, count in zip(edges[:-1], edges[1:], counts, strict=True):
            if count:
                tip = axes.py(sign * 0.95 * count / most)
                bars.append(
                    el(
                        "rect",
                        class_=f"bar {style}",
                        x=place(axes.px(left) + 0.5),
                        y=place(min(tip, middle)),
                        width=place(axes.px(right) - axes.px(left) - 1),
                        height=place(abs(tip - middle)),
                    )
                )
    frame = _frame(axes, x_label, "", y_ticks=False)
    entries = [("one", up_label), ("two", down_label)]
    return join(svg(title, description, frame, *bars), legend(entries))


def interval_bar(
    value: float,
    lo: float | None,
    hi: float | None,
    said: str,
    ends: tuple[float, float] = (0.0, 1.0),
    mark: float | None = None,
) -> Markup:
    """A value with its interval in one line, as rows of tables show it.

    Args:
        value: Where its mark stands.
        lo: Lower end of the interval; None, as `hi`, where there is none.
        hi: Upper end.
        said: The same in words.
        ends: Of the line; what is beyond is drawn at its end.
        mark: Such as a threshold, across the line.
    """
    least, most = ends

    def x(at: float) -> float:
        return 100 * (min(max(at, least), most) - least) / (most - least)

    shapes: list[Node] = [el("rect", class_="bar-out", y=4, width=100, height=2)]
    if lo is not None and hi is not None:
        wide = max(x(hi) - x(lo), 0.5)
        shapes.append(el("rect", class_="bar-in", x=place(x(lo)), y=2, width=place(wide), height=6))
    if mark is not None:
        shapes.append(el("rect", class_="bar-mark", x=place(0.992 * x(mark)), width=0.8, height=10))
    shapes.append(el("rect", class_="bar-at", x=place(0.988 * x(value)), width=1.2, height=10))
    return el(
        "svg",
        *shapes,
        class_="interval",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=said,
    )


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
    among: Sequence[float] = (),
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
        among: Other values, as dots above them.
    """
    lo, hi = ends
    above = _ROW // 2 if among else 0
    height = above + _ROW * len(bars) + _AXIS

    def x(value: float) -> float:
        inside = min(max(value, lo), hi)
        return _EDGE + 8 + (inside - lo) / (hi - lo) * (WIDTH - _EDGE - _EDGE - 16)

    shapes: list[Node] = []
    for tick in ticks:
        at = place(x(tick))
        shapes.append(el("line", class_="grid", x1=at, x2=at, y1=0, y2=height - _AXIS + 4))
        anchor = "mid" if lo < tick < hi else "end" if tick >= hi else None
        shapes.append(el("text", show(tick), x=at, y=height - 8, class_=anchor))
    for value in among:
        at = place(x(value))
        shapes.append(el("circle", class_="dot among", cx=at, cy=above // 2, r=6))
    for row, bar in enumerate(bars):
        top = above + row * _ROW
        y, kind = top + _TRACK, " never" if bar.never else ""
        name = bar.label if len(bar.label) <= _NAME else bar.label[: _NAME - 1] + "…"
        shapes += [
            el("text", name, x=_EDGE, y=top + _LABEL, class_="label strong"),
            el("text", bar.note, x=WIDTH - _EDGE, y=top + _LABEL, class_="end aside"),
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
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    ticks = _ticks(max(min(lows), least), min(max(highs), most))
    lo, hi = ticks[0], ticks[-1]

    def x(count: float) -> float:
        return _LEFT + (count - answers[0]) / (answers[-1] - answers[0]) * (right - _LEFT)

    def y(value: float) -> float:
        return bottom - (min(max(value, lo), hi) - lo) / (hi - lo) * (bottom - _TOP)

    def line(ends: Sequence[float], *, back: bool = False) -> list[str]:
        points = [f"{place(x(n))},{place(y(end))}" for n, end in zip(answers, ends, strict=True)]
        return points[::-1] if back else points

    shapes: list[Node] = [
        el("polygon", class_="band", points=" ".join(line(lows) + line(highs, back=True)))
    ]
    for tick in ticks:
        at = place(y(tick))
        shapes.append(el("line", class_="grid", x1=_LEFT, x2=right, y1=at, y2=at))
        shapes.append(el("text", show(tick), x=_LEFT - 8, y=place(y(tick) + 4), class_="end"))
    shapes += [
        el("text", str(n), x=place(x(n)), y=bottom + 18, class_="mid") for n in _whole(answers[-1])
    ]
    middle = (_TOP + bottom) // 2
    shapes += [
        el("line", class_="axis", x1=_LEFT, x2=right, y1=bottom, y2=bottom),
        el("polyline", class_="line one", points=" ".join(line(values))),
        el("text", "marked answers", x=(_LEFT + right) // 2, y=HEIGHT - 6, class_="mid"),
        el("text", y_label, x=14, y=middle, class_="mid", transform=f"rotate(-90 14 {middle})"),
    ]
    entries = [("one", "best estimate"), ("shade", "95\u00a0% interval")]
    return join(el("figcaption", title), svg(title, description, *shapes), legend(entries))


def svg(title: str, description: str, *shapes: Node, height: int = HEIGHT) -> Markup:
    """A picture with its description, for those who cannot see it."""
    return el(
        "svg",
        el("title", title),
        el("desc", description),
        *shapes,
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_label=f"{title}. {description}",
    )


def _frame(axes: _Axes, x_label: str, y_label: str, *, y_ticks: bool = True) -> Markup:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    parts = []
    lo, hi = axes.x
    step = 1 if hi - lo <= 8 else 2
    first = int(lo) - int(lo) % step
    for value in range(first, int(hi) + 1, step):
        if lo <= value <= hi:
            at = axes.px(value)
            parts.append(el("line", class_="grid", x1=place(at), x2=place(at), y1=_TOP, y2=bottom))
            parts.append(el("text", _sign(value), x=place(at), y=bottom + 18, class_="mid"))
    if y_ticks:
        for i in range(_TICKS + 1):
            height = axes.y[1] * i / _TICKS
            at = axes.py(height)
            parts.append(el("line", class_="grid", x1=_LEFT, x2=right, y1=place(at), y2=place(at)))
            parts.append(
                el("text", _tick(height, axes.y[1]), x=_LEFT - 8, y=place(at + 4), class_="end")
            )
    axis = axes.py(0.0)
    parts.append(el("line", class_="axis", x1=_LEFT, x2=right, y1=place(axis), y2=place(axis)))
    parts.append(el("text", x_label, x=(_LEFT + right) // 2, y=HEIGHT - 6, class_="mid"))
    if y_label:
        middle = (_TOP + bottom) // 2
        turn = f"rotate(-90 14 {middle})"
        parts.append(el("text", y_label, x=14, y=middle, class_="mid", transform=turn))
    return join(*parts)


def legend(entries: Sequence[tuple[str, str]]) -> Markup | None:
    """Style and meaning of what is drawn; none where there is nothing to tell apart."""
    if len(entries) < 2:
        return None
    return el(
        "p",
        *(el("span", el("i", class_=f"key {style}"), label) for style, label in entries),
        class_="legend",
    )


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10 ... times a power of ten, halves in between."""
    if not value > 0:
        return 1.0
    power = 10.0 ** (len(str(int(value))) - 1 if value >= 1 else -_leading_zeros(value) - 1)
    return next(
        power * step for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15) if power * step >= value
    )


def _leading_zeros(value: float) -> int:
    zeros = 0
    while value < 0.1:
        value *= 10
        zeros += 1
    return zeros


def _tick(value: float, most: float) -> str:
    return f"{value:.0f}" if most >= 10 else f"{value:.2g}" if value else "0"


def _sign(value: int) -> str:
    return f"{value:+d}".replace("-", "−") if value else "0"


def place(value: float) -> str:
    """A coordinate."""
    return f"{value:.1f}"


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
