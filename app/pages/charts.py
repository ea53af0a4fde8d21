"""Pictures that pages add to those of the reports."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.api.schemas.sessions.sessions import SessionRead
from app.pages.rendering import who
from app.records.item_uses import ItemAnswer
from app.reports.charts import Line, line_chart, trace_chart
from app.reports.markup import Markup
from app.reports.parts import percent, signed
from app.reports.reference_strip import Reference, strip, strip_position
from app.services.banks.loaded import LoadedVersion

_GRID = np.linspace(-4, 4, 65)
_WIDEST = 10.0
#: Groups of examinees on the picture of an item.
_GROUPS = 8
#: Answers from which on they are held against the curve.
_LEAST_HELD = 10


@dataclass(frozen=True, slots=True)
class Curve:
    """The curve of an item, with its table.

    Attributes:
        picture: None where the item has no curve over one ability.
        table: Ability and mean score.
        here: Ability of the examinee, and what is expected there.
        points: Mean ability and mean score of tests.
    """

    picture: Markup | None
    table: Sequence[tuple[float, float]] = ()
    here: tuple[float, float] | None = None
    points: Sequence[tuple[float, float]] = ()


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


def item_chart(version: LoadedVersion, position: int, answers: Sequence[ItemAnswer]) -> Curve:
    """The curve of an item, and the mean scores of examinees of similar ability.

    Args:
        version: What the item is of.
        position: Of the item.
        answers: To it, with the abilities that the tests told.
    """
    if version.is_pretest(position):
        return Curve(None)
    values = version.bank.expected_score(_GRID, [position])[:, 0].tolist()
    points = observed(answers)
    seen = f"; {len(points)} points show what tests saw" if points else ""
    picture = line_chart(
        _GRID.tolist(),
        [Line(values=values)],
        title="Expected score by ability",
        description=f"The curve of the item{seen}.",
        x_label="ability (theta)",
        y_label="expected score",
        top=1.0,
        points=points,
    )
    marks = range(0, len(values), 8)
    table = [(float(_GRID[at]), values[at]) for at in marks]
    return Curve(picture, table, points=points)


def observed(answers: Sequence[ItemAnswer]) -> list[tuple[float, float]]:
    """Mean ability and mean score of groups of answers, the least able first."""
    known = sorted(
        (answer.theta, answer.score)
        for answer in answers
        if answer.theta is not None and answer.score is not None
    )
    if not known:
        return []
    parts = np.array_split(np.asarray(known), min(_GROUPS, len(known)))
    return [(float(part[:, 0].mean()), float(part[:, 1].mean())) for part in parts]


@dataclass(frozen=True, slots=True)
class Held:
    """How live answers compare with the curve of their item.

    Attributes:
        n: Answers of tests that tell an ability.
        mean: Of their scores.
        expected: By the curve, at the abilities that those tests ended with.
        se: Standard error of `mean` if the curve holds.
    """

    n: int
    mean: float
    expected: float
    se: float

    @property
    def z(self) -> float:
        """By how many standard errors the answers are better than expected."""
        return (self.mean - self.expected) / self.se


def held(version: LoadedVersion, position: int, answers: Sequence[ItemAnswer]) -> Held | None:
    """Whether an item still is what its curve says, by answers of tests; None with too few.

    Each ability includes the answer itself, which brings the curve a little nearer to it: so
    differences are found later, not more often, than they should.

    Args:
        version: What the item is of; of right and wrong answers.
        position: Of the item.
        answers: To it.
    """
    known = [(a.theta, a.score) for a in answers if a.theta is not None and a.score is not None]
    if version.is_pretest(position) or len(known) < _LEAST_HELD:
        return None
    thetas, scores = np.asarray(known, dtype=float).T
    if not np.isin(scores, (0.0, 1.0)).all():
        return None
    p = version.bank.expected_score(thetas, [position])[:, 0]
    se = math.sqrt(float((p * (1 - p)).sum())) / len(known)
    return Held(len(known), float(scores.mean()), float(p.mean()), se) if se > 0 else None


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


def strip_of(version: LoadedVersion, sessions: Sequence[SessionRead]) -> Markup | None:
    """The reference models of a version, with sessions on it; None where none can be placed."""
    population = () if version.curves is None else version.curves.population
    reference = Reference.of(
        version.bank, population, version.reference_abilities, version.n_examinees
    )
    placed = [
        (who(one), strip_position(one.estimate.model_dump(), reference))
        for one in sessions
        if one.headline is not None and one.bank.scale == version.bank.scale
    ]
    return strip(reference, placed)
