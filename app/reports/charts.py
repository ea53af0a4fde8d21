"""Line charts and histograms as inline SVG, coloured by the page's style sheet."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.reports.markup import Markup, Node, el, join

#: Of a picture, in its own units.
WIDTH, HEIGHT = 520, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 14, 46
_TICKS = 5


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
