"""Pictures that pages add to those of the reports."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.reports.charts import Line, line_chart
from app.reports.markup import Markup
from app.reports.parts import percent, signed
from app.reports.session.charts import trace_chart
from app.services.banks.loaded import LoadedVersion

_GRID = np.linspace(-4, 4, 65)
_WIDEST = 10.0


@dataclass(frozen=True, slots=True)
class Curve:
    """The curve of an item, with its table.

    Attributes:
        picture: None where the item has no curve over one ability.
        table: Ability and mean score.
    """

    picture: Markup | None
    table: Sequence[tuple[float, float]] = ()
    here: tuple[float, float] | None = None


def step_chart(version: LoadedVersion, position: int, theta: float | None) -> Curve:
    """The curve of an item, and where the examinee is on it.

    Args:
        version: What the item is of.
        position: Of the item; one in pretest has no curve.
        theta: Ability of the examinee, if it is known.
    """
    if version.is_pretest(position):
        return Curve(None)
    bank = version.bank
    grid = _GRID
    if theta is not None and abs(theta) > grid[-1]:
        edge = min(math.ceil(abs(theta)), _WIDEST)
        grid = np.linspace(-edge, edge, 65)
    values = bank.expected_score(grid, [position])[:, 0].tolist()
    here = None
    said = "The curve rises with ability."
    band = None
    if theta is not None:
        at = float(bank.expected_score(theta, [position])[0])
        here = (theta, at)
        said = f"At the ability {theta:+.2f} a mean score of {at:.0%} is expected."
        half = (grid[-1] - grid[0]) / 250
        band = (max(theta - half, float(grid[0])), min(theta + half, float(grid[-1])))
    picture = line_chart(
        grid.tolist(),
        [Line(values=values)],
        title="How likely a right answer is",
        description=said,
        x_label="ability (theta)",
        y_label="expected score",
        top=1.0,
        band=band,
    )
    marks = range(0, len(values), 8)
    return Curve(picture, [(float(grid[at]), values[at]) for at in marks], here)


@dataclass(frozen=True, slots=True)
class Pictures:
    """How estimates went, still; None where there are fewer than two."""

    score: Markup | None
    theta: Markup | None


def course_pictures(points: Sequence[Sequence[float | None]]) -> Pictures:
    """Score and theta with their intervals, of rows `answers, theta, lo, hi, score, lo, hi`."""
    return Pictures(
        _trace(points, 4, "Predicted score as answers came in", "predicted score", percent, (0, 1)),
        _trace(
            points,
            1,
            "Ability as answers came in",
            "ability (theta)",
            lambda tick: signed(tick, 1),
            (-_WIDEST, _WIDEST),
        ),
    )


def _trace(
    points: Sequence[Sequence[float | None]],
    first: int,
    title: str,
    label: str,
    show: Callable[[float], str],
    ends: tuple[float, float],
) -> Markup | None:
    columns: list[list[float]] = [[], [], [], []]
    for point in points:
        values = [point[0], *point[first : first + 3]]
        known = [value for value in values if value is not None]
        if len(known) == len(columns):
            for column, value in zip(columns, known, strict=True):
                column.append(value)
    answers = [int(n) for n in columns[0]]
    if len(set(answers)) < 2:
        return None
    return trace_chart(
        answers,
        *columns[1:],
        title=title,
        description=f"{show(columns[1][-1])} after {answers[-1]} answers, 95\u00a0% interval "
        f"{show(columns[2][-1])} to {show(columns[3][-1])}.",
        y_label=label,
        show=show,
        least=ends[0],
        most=ends[1],
    )
