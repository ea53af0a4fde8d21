"""The curve of an item, and how answers of tests compare with it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from app.printable import percent
from app.records.banks import ItemAnswer
from app.reports.charts import Line, line_chart
from app.services.banks.loaded import LoadedVersion

_REACH, _WIDEST = 4.0, 10.0
#: Points of a curve, and how many of them lie between two rows of its table.
_POINTS, _EVERY = 65, 8
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
        here: What is expected at the ability of the examinee.
        points: Mean ability and mean score of tests.
    """

    picture: Markup | None
    table: Sequence[tuple[float, float]] = ()
    here: float | None = None
    points: Sequence[tuple[float, float]] = ()


def item_curve(
    version: LoadedVersion,
    position: int,
    *,
    theta: float | None = None,
    answers: Sequence[ItemAnswer] = (),
) -> Curve:
    """The curve of an item, with where an examinee is on it, or what tests saw beside it.

    Args:
        version: What the item is of.
        position: Of the item; one in pretest has no curve.
        theta: Ability of the examinee, if it is known.
        answers: To the item, with the abilities that the tests told: they are shown as the mean
            scores of examinees of similar ability.
    """
    if version.is_pretest(position):
        return Curve(None)
    edge = max(_REACH, min(math.ceil(abs(theta or 0.0)), _WIDEST))
    grid = np.linspace(-edge, edge, _POINTS)
    values = version.bank.expected_score(grid, [position])[:, 0].tolist()
    points = observed(answers)
    here = band = None
    said = f"; {len(points)} points show what tests saw" if points else ""
    if theta is not None:
        here = float(version.bank.expected_score(theta, [position])[0])
        said = f"; at the ability {theta:+.2f} a mean score of {percent(here)} is expected"
        band = (max(theta - edge / 125, -edge), min(theta + edge / 125, edge))
    picture = line_chart(
        grid.tolist(),
        [Line(values=values)],
        title="Expected score by ability",
        description=f"The curve of the item{said}.",
        y_label="expected score",
        top=1.0,
        band=band,
        points=points,
    )
    table = list(zip(grid.tolist(), values, strict=True))[::_EVERY]
    return Curve(picture, table, here, points)


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
