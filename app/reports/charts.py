"""Charts as inline SVG, which the page's style sheet colours."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from app.reports.formats import count, percent, signed

#: Size of a picture in its own units; below, the edges of the area inside the axes.
WIDTH, HEIGHT = 520, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, WIDTH - 12, 14, HEIGHT - 46
_TICKS = 5
#: Layout of interval charts: margin, row height, text and line within a row, height of the axis.
_EDGE, _ROW, _LABEL, _TRACK, _AXIS = 12, 52, 16, 36, 30
_NAME = 34  # most characters of a name, so that its note fits beside it
_THETAS = (-6.0, 6.0)  # widest range of theta that a course shows
#: Most points of a course that show their figures under the cursor; more could hardly be hit.
_TOLD = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve; `style` is its class in the style sheet."""

    values: Sequence[float]
    label: str = ""
    style: str = "one"


@dataclass(frozen=True, slots=True)
class _Axis:
    """Maps values to coordinates; values beyond an end are drawn at that end."""

    lo: float
    hi: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        inside = min(max(value, self.lo), self.hi)
        return self.start + (inside - self.lo) / (self.hi - self.lo) * (self.end - self.start)


def line_chart(
    x: Sequence[float],
    lines: Sequence[Line],
    *,
    title: str,
    description: str,
    x_label: str = "ability (theta)",
    y_label: str,
    top: float | None = None,
    band: tuple[float, float] | None = None,
    points: Sequence[tuple[float, float]] = (),
) -> Markup:
    """Draw curves over one axis; the upright axis goes from 0 to `top`, by default to the values.

    `band` is a range of x that is shaded, `points` are observed points (x, value) beside the
    curves. Title and description are also for readers who cannot see the picture.
    """
    ticks = _ticks(0.0, top or max(max(one.values) for one in lines))
    across, up = _Axis(x[0], x[-1], _LEFT, _RIGHT), _Axis(0.0, ticks[-1], _BOTTOM, _TOP)
    shapes = []
    if band is not None:
        left, right = map(across, band)
        shapes.append(_rect("band", left, _TOP, right - left, _BOTTOM - _TOP))
    shapes += _frame(across, x_label, _BOTTOM)
    shapes += _scale(up, [(tick, f"{tick:.10g}") for tick in ticks], y_label)
    for one in lines:
        path = _path(across, up, x, one.values)
        shapes.append(_el("polyline", class_=f"line {one.style}", points=path))
    for at, value in points:
        if x[0] <= at <= x[-1]:
            shapes.append(_el("circle", class_="point", cx=across(at), cy=up(value), r=5))
    entries = [(one.style, one.label) for one in lines if one.label]
    return _svg(title, description, shapes) + _legend(entries)


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
    """Draw two distributions over one axis, one upwards, one downwards, each to its own scale."""
    across, height = _Axis(edges[0], edges[-1], _LEFT, _RIGHT), _Axis(-1.0, 1.0, _BOTTOM, _TOP)
    middle = height(0.0)
    shapes = _frame(across, x_label, middle)
    for counts, style, sign in ((up, "one", 1.0), (down, "two", -1.0)):
        most = max(counts) or 1.0
        for (left, right), n in zip(pairwise(map(across, edges)), counts, strict=True):
            if n:
                tip = height(sign * 0.95 * n / most)
                top, tall = min(tip, middle), abs(tip - middle)
                shapes.append(_rect(f"bar {style}", left + 0.5, top, right - left - 1, tall))
    return _svg(title, description, shapes) + _legend([("one", up_label), ("two", down_label)])


def course_charts(points: Sequence[Sequence[float | None]]) -> tuple[Markup | None, Markup | None]:
    """Draw score and ability with their intervals by number of answers: content of two figures.

    Args:
        points: Rows of answers, theta, lo, hi, score, lo, hi; None for an unknown value. A curve
            with fewer than two known points is not drawn.
    """
    scores, thetas = [(row[0], *row[4:]) for row in points], [row[:4] for row in points]
    return (
        _course(scores, "Score", "score", (0.0, 1.0), percent, percent),
        _course(thetas, "Ability", "ability (theta)", _THETAS, _theta, _theta_tick),
    )


def _theta(value: float) -> str:
    return signed(value, 2)


def _theta_tick(value: float) -> str:
    return signed(value, 0 if value == int(value) else 1)


def _course(
    rows: Sequence[Sequence[float | None]],
    what: str,
    label: str,
    ends: tuple[float, float],
    show: Callable[[float], str],
    show_tick: Callable[[float], str],
) -> Markup | None:
    known = [[value for value in row if value is not None] for row in rows if None not in row]
    if len({row[0] for row in known}) < 2:
        return None
    answers, values, lows, highs = zip(*known, strict=True)
    ticks = _ticks(max(min(lows), ends[0]), min(max(highs), ends[1]))
    across = _Axis(0.0, answers[-1], _LEFT, _RIGHT)
    up = _Axis(ticks[0], ticks[-1], _BOTTOM, _TOP)
    band = _path(across, up, (*answers, *answers[::-1]), (*lows, *highs[::-1]))
    shapes = [_el("polygon", class_="band", points=band)]
    shapes += _scale(up, [(tick, show_tick(tick)) for tick in ticks], label)
    for n in _ticks(0, answers[-1]):
        if n <= answers[-1] and n == int(n):
            shapes.append(_text(f"{n:.0f}", across(n), _BOTTOM + 18, "mid"))
    shapes += _axis_line("scored answers", _BOTTOM)
    shapes.append(_el("polyline", class_="line one", points=_path(across, up, answers, values)))
    told = known[:: -math.ceil(len(known) / _TOLD)][::-1]  # always with the last one
    shapes.append(_read_out(across, told, label, show))
    title = f"{what} as answers came in"
    description = (
        f"{show(values[-1])} after {count(int(answers[-1]), 'answer')}, 95\u00a0% interval "
        f"{show(lows[-1])} to {show(highs[-1])}."
    )
    entries = [("one", "best estimate"), ("shade", "95\u00a0% interval")]
    caption = Markup("<figcaption>{}</figcaption>").format(title)
    return caption + _svg(title, description, shapes) + _legend(entries)


def _read_out(
    across: _Axis, rows: Sequence[Sequence[float]], label: str, show: Callable[[float], str]
) -> Markup:
    """Make a column for each row of a picture, which shows the row's figures under the cursor."""
    between = [(one[0] + other[0]) / 2 for one, other in pairwise(rows)]
    edges = map(across, (rows[0][0], *between, rows[-1][0]))
    columns = []
    for (n, value, lo, hi), (left, right) in zip(rows, pairwise(edges), strict=True):
        said = f"answer {n:.0f}: {label} {show(value)}, 95\u00a0% interval {show(lo)} to {show(hi)}"
        shape = f"M{left:.1f} {_TOP}H{right:.1f}V{_BOTTOM}H{left:.1f}z"
        columns.append(_el("path", _el("title", said), d=shape))
    return _el("g", *columns, class_="told")


def interval_bar(
    value: float,
    lo: float | None,
    hi: float | None,
    said: str,
    ends: tuple[float, float] = (0.0, 1.0),
    mark: float | None = None,
) -> Markup:
    """Draw a value with its interval, if there is one, on one line, as rows of tables show it.

    `said` is a text with the same content; values beyond the `ends` of the line are drawn at an
    end; `mark` is the position of a mark across the line, such as a threshold.
    """
    across = _Axis(*ends, 0.0, 100.0)
    shapes = [_rect("bar-out", None, 4, 100, 2)]
    if lo is not None and hi is not None:
        left = across(lo)
        shapes.append(_rect("bar-in", left, 2, max(across(hi) - left, 0.5), 6))
    if mark is not None:
        shapes.append(_rect("bar-mark", 0.992 * across(mark), None, 0.8, 10))
    shapes.append(_rect("bar-at", 0.988 * across(value), None, 1.2, 10))
    return _el(
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
    """One row of an interval chart.

    Attributes:
        note: Text beside the label.
        typical: Position of a mark for comparison.
        never: Whether to draw the dot hollow, because nothing was observed.
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
    ticks: Iterable[tuple[float, str]],
    *,
    title: str,
    description: str,
    entries: Sequence[tuple[str, str]],
    among: Sequence[float] = (),
) -> Markup:
    """Draw values with their intervals, one below the other, and other values as dots above them.

    Values beyond the `ends` of the axis are drawn at an end. `ticks` are positions of marks with
    their texts, `entries` styles in the legend with their meanings, `among` the other values.
    """
    across = _Axis(*ends, _EDGE + 8, WIDTH - _EDGE - 8)
    above = _ROW // 2 if among else 0
    height = above + _ROW * len(bars) + _AXIS
    shapes = []
    for tick, text in ticks:
        at = across(tick)
        shapes.append(_line("grid", at, at, 0, height - _AXIS + 4))
        anchor = "mid" if ends[0] < tick < ends[1] else "end" if tick >= ends[1] else None
        shapes.append(_text(text, at, height - 8, anchor))
    shapes += [
        _el("circle", class_="dot among", cx=across(value), cy=above // 2, r=6) for value in among
    ]
    for row, bar in enumerate(bars):
        top = above + row * _ROW
        y, kind = top + _TRACK, " never" if bar.never else ""
        name = bar.label if len(bar.label) <= _NAME else bar.label[: _NAME - 1] + "…"
        shapes += [
            _text(name, _EDGE, top + _LABEL, "label strong"),
            _text(bar.note, WIDTH - _EDGE, top + _LABEL, "end aside"),
            _line(f"whisker{kind}", across(bar.lo), across(bar.hi), y, y),
        ]
        if bar.typical is not None:
            at = across(bar.typical)
            shapes.append(_line("typical", at, at, y - 10, y + 10))
        shapes.append(_el("circle", class_=f"dot{kind}", cx=across(bar.value), cy=y, r=7))
    return _svg(title, description, shapes, height) + _legend(entries)


def _frame(across: _Axis, label: str, base: float) -> list[Markup]:
    """Draw the horizontal axis with its marks."""
    step = 1 if across.hi - across.lo <= 8 else 2
    first = int(across.lo) - int(across.lo) % step
    shapes = []
    for value in range(first, int(across.hi) + 1, step):
        if across.lo <= value <= across.hi:
            at = across(value)
            shapes.append(_line("grid", at, at, _TOP, _BOTTOM))
            shapes.append(_text(signed(value, 0), at, _BOTTOM + 18, "mid"))
    return shapes + _axis_line(label, base)


def _axis_line(label: str, base: float) -> list[Markup]:
    line = _line("axis", _LEFT, _RIGHT, base, base)
    return [line, _text(label, (_LEFT + _RIGHT) // 2, HEIGHT - 6, "mid")]


def _scale(up: _Axis, ticks: Sequence[tuple[float, str]], label: str) -> list[Markup]:
    """Draw the marks of an upright axis."""
    middle = (_TOP + _BOTTOM) // 2
    turned = f"rotate(-90 14 {middle})"
    shapes = [_el("text", label, x=14, y=middle, class_="mid", transform=turned)]
    for value, text in ticks:
        at = up(value)
        shapes.append(_line("grid", _LEFT, _RIGHT, at, at))
        shapes.append(_text(text, _LEFT - 8, at + 4, "end"))
    return shapes


def _svg(title: str, description: str, shapes: Sequence[Markup], height: int = HEIGHT) -> Markup:
    """Make a picture with a title and a description for readers who cannot see it."""
    return _el(
        "svg",
        _el("title", title),
        _el("desc", description),
        *shapes,
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_label=f"{title}. {description}",
    )


def _legend(entries: Sequence[tuple[str, str]]) -> Markup:
    """Make a legend from styles and meanings; empty where there is nothing to tell apart."""
    if len(entries) < 2:
        return Markup("")
    keys = [_el("span", _el("i", class_=f"key {style}"), label) for style, label in entries]
    return _el("p", *keys, class_="legend")


def _rect(kind: str, x: float | None, y: float | None, width: float, height: float) -> Markup:
    return _el("rect", class_=kind, x=x, y=y, width=width, height=height)


def _line(kind: str, x1: float, x2: float, y1: float, y2: float) -> Markup:
    return _el("line", class_=kind, x1=x1, x2=x2, y1=y1, y2=y2)


def _text(text: str, x: float, y: float, kind: str | None) -> Markup:
    return _el("text", text, x=x, y=y, class_=kind)


def _path(across: _Axis, up: _Axis, x: Iterable[float], y: Iterable[float]) -> str:
    return " ".join(f"{across(at):.1f},{up(value):.1f}" for at, value in zip(x, y, strict=True))


def _el(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """Make one element: text is escaped, and an attribute that is None is left out.

    `class_` becomes `class`, and `_` in a name `-`; coordinates have one decimal.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(text)}"'
        for key, value in attributes.items()
        if (text := f"{value:.1f}" if isinstance(value, float) else value) is not None
    )
    inside = "".join(map(escape, children))
    return Markup(f"<{name}{given}>{inside}</{name}>")  # noqa: S704  escaped, all of it


def _ticks(lo: float, hi: float) -> list[float]:
    """About five round values that span `lo` to `hi`."""
    rough = max(hi - lo, 1e-6) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(size for size in (1, 2, 2.5, 5, 10) if size * power >= rough)
    first, last = math.floor(lo / step + 1e-9), math.ceil(hi / step - 1e-9)
    return [round(k * step, 10) for k in range(first, max(last, first + 1) + 1)]
