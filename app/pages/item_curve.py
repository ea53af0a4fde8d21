"""The curve of an item, and how the answers of sessions compare with it."""

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
#: Points of a curve, and the number of them from one row of its table to the next.
_POINTS, _EVERY = 65, 8
#: Most groups of examinees in the chart of an item.
_GROUPS = 8
#: Least number of answers that are compared with the curve.
_LEAST_HELD = 10


@dataclass(frozen=True, slots=True)
class Curve:
    """The curve of an item, with its table.

    Attributes:
        picture: Chart of the curve; None where the item has no curve over one ability.
        table: Pairs of ability (logits) and expected score.
        here: Expected score at the ability of the examinee.
        points: Pairs of mean ability and mean score of groups of sessions.
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
    """The curve of an item, with the place of an examinee on it, or the scores in sessions.

    Args:
        version: Bank version of the item.
        position: Position of the item in the bank; an item in pretest has no curve.
        theta: Ability of the examinee, if it is known.
        answers: Answers to the item, with the abilities of their sessions. They are shown as mean
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
    """Mean ability and mean score of groups of answers, from the lowest ability up."""
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
    """How answers in sessions compare with the curve of their item.

    Attributes:
        n: Number of answers from sessions with an ability.
        mean: Mean score of these answers.
        expected: Mean expected score on the curve, at the final abilities of their sessions.
        se: Standard error of `mean` if the curve holds.
    """

    n: int
    mean: float
    expected: float
    se: float

    @property
    def z(self) -> float:
        """Mean score minus expected score, in standard errors."""
        return (self.mean - self.expected) / self.se


def held(version: LoadedVersion, position: int, answers: Sequence[ItemAnswer]) -> Held | None:
    """Compare the answers to an item with its curve; None with too few answers.

    Each ability is estimated with the answer itself, which brings the curve a little nearer to
    it. So differences are found later than they should be, not more often.

    Args:
        version: Bank version of the item.
        position: Position of the item in the bank.
        answers: Answers to the item; None is returned unless all scores are 0 or 1.
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
