"""Pictures that pages add to those of the reports."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.api.schemas.leaderboards import LeaderboardEntry
from app.api.schemas.rankings import RankedRead
from app.api.schemas.session_figures import AccuracyRead
from app.pages.rendering import short
from app.records.item_uses import ItemAnswer
from app.reports.charts import Line, line_chart
from app.reports.markup import Markup
from app.reports.parts import count, percent, signed
from app.reports.session.charts import Bar, interval_chart, trace_chart
from app.services.banks.loaded import LoadedVersion

_GRID = np.linspace(-4, 4, 65)
_WIDEST = 10.0
#: Groups of examinees on the picture of an item, and rows of a board's picture.
_GROUPS, _ROWS = 8, 60
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


def board_chart(entries: Sequence[LeaderboardEntry], scale: str) -> Markup | None:
    """Results one below the other with their intervals: a forest plot."""
    return _score_chart(
        [
            (
                _place(entry.rank_lo, entry.rank_hi, entry.endpoint.name or entry.endpoint.model),
                entry.accuracy,
            )
            for entry in entries[:_ROWS]
        ],
        f"Scores on scale {short(scale)}, with their 95\u00a0% intervals",
    )


def _place(lo: int, hi: int, name: str) -> str:
    return f"{lo}. {name}" if lo == hi else f"{lo}-{hi}. {name}"


def _score_chart(scores: Sequence[tuple[str, AccuracyRead | None]], title: str) -> Markup | None:
    """Scores with their names, one below the other; those without an interval are left out."""
    bars = [
        Bar(
            label=label,
            note=f"{percent(score.value)} ({percent(lo)} to {percent(hi)})",
            value=score.value,
            lo=lo,
            hi=hi,
        )
        for label, score in scores
        if score is not None
        for lo, hi in ((score.lo, score.hi),)
        if lo is not None and hi is not None
    ]
    if not bars:
        return None
    return interval_chart(
        bars,
        (0.0, 1.0),
        [0.0, 0.25, 0.5, 0.75, 1.0],
        title=title,
        description=f"{count(len(bars), 'result')}, the best first.",
        show=percent,
        entries=[("dot", "score"), ("one", "95\u00a0% interval")],
    )


def _forest(bars: Sequence[Bar], title: str) -> Markup:
    lo = math.floor(max(min(bar.lo for bar in bars), -_WIDEST))
    hi = max(math.ceil(min(max(bar.hi for bar in bars), _WIDEST)), lo + 1)
    step = max(1, (hi - lo) // 6)
    return interval_chart(
        bars,
        (float(lo), float(hi)),
        [float(tick) for tick in range(lo, hi + 1, step)],
        title=title,
        description=f"{count(len(bars), 'result')}, the best first.",
        show=lambda tick: signed(tick, 0),
        entries=[("dot", "ability"), ("one", "95\u00a0% interval")],
    )


def ranking_chart(order: Sequence[RankedRead], metric: str) -> Markup | None:
    """The endpoints of a ranking one below the other, as far as they have a place."""
    if (order and order[0].accuracy is not None) and metric == "score":
        return _score_chart(
            [
                (_place(one.rank_lo, one.rank_hi, one.name or one.model), one.accuracy)
                for one in order[:_ROWS]
            ],
            "Scores by now, with their 95\u00a0% intervals",
        )
    bars = [
        Bar(
            label=f"{place}. {one.name or one.model}",
            note=f"{signed(one.theta, 2)} ({signed(lo, 2)} to {signed(hi, 2)})",
            value=one.theta,
            lo=lo,
            hi=hi,
        )
        for one in order[:_ROWS]
        if one.theta is not None and one.ci is not None
        for lo, hi in (one.ci,)
        if lo is not None and hi is not None
        for place in (
            [str(one.rank_lo)] if one.rank_lo == one.rank_hi else [f"{one.rank_lo}-{one.rank_hi}"]
        )
    ]
    return _forest(bars, "Abilities by now, with their 95\u00a0% intervals") if bars else None


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
