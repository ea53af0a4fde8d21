"""How wrong score curves are, measured where it matters: on examinees held out in four ways.

Held out are quarters at random, the strongest fifth, the strongest 30 % with only the weakest half
known, and the weakest fifth. Each takes the test that the bank will give, answered from its own
record, and its score is predicted after 8, 16, 32 and 48 answers. Errors of the score's logit if
the curves hold say, by the distance, how wide intervals must be: see
`app.engine.prediction.model_error`. Tests take the time, not fits: so few are tested of each.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from app.calibration.multidimensional.score_curves import (
    fit_curves,
    population_quantiles,
    strongest_first,
)
from app.calibration.multidimensional.score_intervals import LEAST_ANSWERED, LEAST_EXAMINEES
from app.engine.adaptive import AdaptiveTest
from app.engine.bank import ItemBank
from app.engine.estimation.estimators import GridBelief, GridEstimator
from app.engine.information_index import index_of
from app.engine.models.base import BoolArray, FloatArray, IntArray
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.prediction.model_error import SCORE, ModelError, Seen, model_error
from app.engine.prediction.score_estimate import (
    Explanations,
    ScoreEstimator,
    logit_of,
    prior_doubt,
)
from app.engine.prediction.targets import WHOLE_BANK
from app.engine.selection.base import Criterion, Pool
from app.engine.selection.exposure import Randomesque
from app.engine.selection.information import PerCost
from app.engine.selection.sampled import CurveVariance, Sampled, WantedOrSampled
from app.engine.simulation.simulate import take
from app.engine.state import CatState, Response
from app.engine.stopping import AnyOf, MaxItems

#: Name of the hold-out of examinees like the others.
RANDOM = "random"
#: Numbers of answers at which errors are looked at.
LOOKS = (8, 16, 32, 48)
#: Examinees tested in each hold-out, and in each of the random ones; more would not change three
#: numbers much.
_MOST_TESTED, _MOST_OF_A_PART = 16, 8
#: Random hold-outs.
_PARTS = 4
#: Examinees that curves are fitted to in each hold-out; more make them hardly better.
_MOST_KNOWN = 500
_SURE = 1e-6  # model's standard deviation below which nothing is left to be wrong about


@dataclass(frozen=True, slots=True)
class HoldOut:
    """Examinees that are known, and examinees that are tested.

    Attributes:
        name: Of the kind.
        known: Positions of those that curves are fitted to.
        tested: Positions of the others.
    """

    name: str
    known: IntArray
    tested: IntArray


def hold_outs(scores: FloatArray, rng: np.random.Generator) -> list[HoldOut]:
    """The ways of holding out.

    Args:
        scores: Shape (n_examinees, n_items), NaN where there is no answer.
        rng: Deals the random ones.
    """
    n = len(scores)
    mixed, strongest = rng.permutation(n), strongest_first(scores)
    fifth, half, third = n - int(0.8 * n), n - n // 2, n - int(0.7 * n)
    parts = np.array_split(mixed, _PARTS)
    return [
        *(HoldOut(RANDOM, np.setdiff1d(mixed, part), part) for part in parts),
        HoldOut("strongest_fifth", strongest[fifth:], strongest[:fifth]),
        HoldOut("strongest_from_weakest", strongest[half:], strongest[:third]),
        HoldOut("weakest_fifth", strongest[:-fifth], strongest[-fifth:]),
    ]


def learn_curves(
    scores: FloatArray,
    targets: Mapping[str, FloatArray],
    rng: np.random.Generator,
    *,
    askable: BoolArray | None = None,
    costs: FloatArray | None = None,
) -> LearnedCurves:
    """Fit score curves, and measure how wrong they are about each target.

    Tests are those for the whole bank's score, or for the only target. Of fewer than 20 examinees
    none is held out: how wrong their curves are is what is thought beforehand.

    Args:
        scores: Records in [0, 1], shape (n_examinees, n_items), NaN where there is no answer.
        targets: Weights by name, each of shape (n_items,), summing to 1.
        rng: Deals the hold-outs.
        askable: Mask of the items that tests may ask, shape (n_items,); all by default.
        costs: Of the items where tests choose by gain per cost, shape (n_items,).
    """
    if len(scores) < LEAST_EXAMINEES:
        return LearnedCurves(curves=fit_curves(scores, rng), n_reference=len(scores))
    seen: dict[str, list[Seen]] = {name: [] for name in targets}
    for held in hold_outs(scores, rng):
        for name, found in _errors(scores, held, targets, askable, costs).items():
            seen[name] += found
    return LearnedCurves(
        curves=fit_curves(scores, rng),
        n_reference=len(scores),
        errors={
            name: model_error(found, len(LOOKS), margin=0.0, kind=SCORE)
            for name, found in seen.items()
        },
        population=population_quantiles(scores),
    )


def _errors(
    scores: FloatArray,
    held: HoldOut,
    targets: Mapping[str, FloatArray],
    askable: BoolArray | None,
    costs: FloatArray | None,
) -> dict[str, list[Seen]]:
    """By target, one entry for each number of answers."""
    n_items = scores.shape[1]
    active = np.ones(n_items, dtype=np.bool_) if askable is None else askable
    fitted = fit_curves(scores[_evenly(held.known, _MOST_KNOWN)])
    aim = targets.get(WHOLE_BANK)
    if aim is None:
        aim = next(iter(targets.values()))
    curves = fitted.towards(aim, active)
    looks = sorted({min(look, int(active.sum())) for look in LOOKS})
    doubt = prior_doubt(held.known.size)
    test = score_test(Explanations(curves, doubt), aim, looks[-1], active, costs)
    predictors = {
        name: ScoreEstimator(
            Explanations(fitted.towards(weights, active), doubt), weights, ModelError(), active
        )
        for name, weights in targets.items()
    }
    found: dict[str, dict[int, list[tuple[float, float, float]]]] = {
        name: {look: [] for look in looks} for name in targets
    }
    most = _MOST_OF_A_PART if held.name == RANDOM else _MOST_TESTED
    for row in _evenly(held.tested, most).tolist():
        answered = ~np.isnan(scores[row])
        if not (answered & active).any():
            continue
        passed: list[CatState] = []
        take(test, scores[row], seed=[row], watch=passed.append)
        unknown = np.flatnonzero(~answered).tolist()
        for name, weights in targets.items():
            share = float(weights[answered].sum())
            if share < LEAST_ANSWERED * float(weights.sum()):
                continue
            truth = float(weights[answered] @ scores[row, answered]) / share
            # Half an answer from all right and all wrong, which have no logit.
            count = int(np.count_nonzero(weights[answered]))
            truth = logit_of((truth * count + 0.5) / (count + 1.0))
            for state in passed:
                if state.n_scored in found[name]:
                    value, sd, position = predictors[name].logit_by_curves(state.responses, unknown)
                    found[name][state.n_scored].append((value - truth, sd, position))
    return {
        name: [_seen(rows) for rows in by_look.values() if rows] for name, by_look in found.items()
    }


def _evenly(rows: IntArray, most: int) -> IntArray:
    chosen: IntArray = rows[np.linspace(0, rows.size - 1, min(rows.size, most)).astype(np.intp)]
    return chosen


def _seen(rows: list[tuple[float, float, float]]) -> Seen:
    error, sd, position = np.array(rows).T
    open_ = sd > _SURE
    return Seen(error[open_], sd[open_], position[open_])


class _OfNothing(GridEstimator):
    """Learns nothing of theta: tests that are for a score alone need not wait for it."""

    @override
    def update(
        self,
        bank: ItemBank,
        belief: GridBelief,
        *responses: Response,
    ) -> GridBelief:
        """The belief given."""
        del bank, responses  # of an answer nothing is taken in
        return belief


def score_test(
    explanations: Explanations,
    weights: FloatArray,
    length: int,
    active: BoolArray,
    costs: FloatArray | None = None,
) -> AdaptiveTest:
    """The test for a score by so many items, as a bank with these curves gives it.

    Args:
        explanations: Of the answers.
        weights: Of the items in the score, shape (n_items,).
        length: Number of items.
        active: Mask of the items that may be asked, shape (n_items,).
        costs: Of the items where tests choose by gain per cost, shape (n_items,).
    """
    curves = explanations.curves
    bank = ItemBank.from_intercepts(
        a=np.ones(weights.size), intercept=curves.intercept, item_ids=None
    )
    criterion: Criterion = CurveVariance(curves=curves, weights=weights)
    if costs is not None:
        criterion = PerCost(criterion=criterion, costs=costs, weight=1.0)
    estimator = ScoreEstimator(explanations, weights, ModelError(), active)
    return AdaptiveTest(
        pool=Pool(index=index_of(bank), active=active),
        estimator=_OfNothing(),
        selector=WantedOrSampled(
            estimator=estimator,
            wanted=Randomesque(criterion=criterion),
            sampled=Sampled.of(curves, weights, costs),
        ),
        stopping=AnyOf(goals=(), limits=(MaxItems(items=length),), min_items=0),
        predictor=estimator,
    )
