"""Fits score curves to whole records, and measures their error on held-out examinees.

An examinee's general ability is the logit of its mean score. Given this ability, penalised
likelihood gives each item a slope and an intercept. The residual of each answer becomes a deviation
of its logit: one Newton step from 0 under a normal prior. The other abilities are the principal
components of these deviations. The fit assumes no population distribution of the abilities, so it
holds beyond the reference models as much as among them; see `app.engine.prediction.score_curves`.

Held out are random quarters, the strongest fifth, the weakest fifth, and the strongest 30 % while
curves are fitted to the weakest half. Each held-out examinee takes the test that the bank will
give, answered from its record; curves predict its score after 8, 16, 32 and 48 answers. The errors
of the score's logit tell how wide intervals must be at each distance from the reference models; see
`app.engine.prediction.model_error`. Tests cost more time than fits, so few examinees are tested.
"""

from collections.abc import Mapping

import numpy as np
from typing_extensions import override

from app.calibration.matrix import HoldOut, evenly, split_by_strength
from app.calibration.multidimensional.score_model import LEAST_ANSWERED, LEAST_EXAMINEES
from app.engine.adaptive import AdaptiveTest
from app.engine.bank import ItemBank
from app.engine.estimation.estimators import GridBelief, GridEstimator
from app.engine.information_index import index_of
from app.engine.models.base import BoolArray, FloatArray, IntArray
from app.engine.prediction.learned_curves import LearnedCurves, ReferencePopulation
from app.engine.prediction.model_error import SCORE, ModelError, Seen, model_error
from app.engine.prediction.score_curves import ScoreCurves
from app.engine.prediction.score_estimate import Explanations, ScoreEstimator, logit_of, prior_doubt
from app.engine.prediction.score_model import reduced
from app.engine.prediction.targets import WHOLE_BANK
from app.engine.selection.base import Criterion, Pool
from app.engine.selection.information import PerCost
from app.engine.selection.sampled import CurveVariance, Sampled, WantedOrSampled
from app.engine.selection.selectors import Randomesque
from app.engine.simulation.simulate import take
from app.engine.state import CatState, Response
from app.engine.stopping import AnyOf, MaxItems

#: Abilities beside the general one: one for every 8 examinees, from 4 to 16. Large banks get fewer,
#: at most 50,000 / n_items but at least 4, because each step of a test reads every slope.
_EXAMINEES_EACH, _FEWEST_ABILITIES, _MOST_ABILITIES, _MOST_NUMBERS = 8, 4, 16, 50_000
_MAX_EXAMINEES = 2000  # more would hardly change the principal components
_SLOPE_SD, _INTERCEPT_SD = 0.5, 3.2  # normal priors; that of slopes is about 1: theta is a logit
_DEVIATION_VARIANCE = 4.0  # prior variance of a logit's deviation from the general curve
_SPREAD = 2.0  # ratio of the deviations' variance to what shrinkage leaves of it
_LEAST_SLOPE, _MOST_SLOPE = 0.1, 4.0
_STEPS, _LONGEST = 25, (0.5, 1.0)
_SETTLED = 1e-6  # the fit ends at steps below this
_LEAST_SPREAD = 0.1  # least standard deviation of the general ability (logits), for equal records
#: Name of the random hold-outs.
RANDOM = "random"
#: Numbers of answers after which errors are measured.
LOOKS = (8, 16, 32, 48)
#: Most examinees tested in a hold-out, and in a random one; more would hardly change the three
#: numbers that are estimated.
_MOST_TESTED, _MOST_OF_A_PART = 16, 8
#: Number of random hold-outs.
_PARTS = 4
#: Most examinees that curves are fitted to in a hold-out; more hardly improve them.
_MOST_KNOWN = 500
_SURE = 1e-6  # a smaller standard deviation by the model means that nothing is left to predict


def fit_curves(scores: FloatArray, rng: np.random.Generator | None = None) -> ScoreCurves:
    """Fit score curves to records.

    Args:
        scores: Shape (n_examinees, n_items), in [0, 1], NaN where there is no answer.
        rng: Samples the examinees beyond 2,000 of them; None takes evenly spaced rows.
    """
    rows = evenly(np.arange(len(scores)), _MAX_EXAMINEES)
    if rng is not None and len(scores) > _MAX_EXAMINEES:
        rows = np.sort(rng.permutation(len(scores))[:_MAX_EXAMINEES])
    some = scores[rows]
    answered = ~np.isnan(some)
    known = np.where(answered, some, 0.0)
    theta = general_ability(some)
    slope, intercept = _general_curves(known, answered, theta)
    expected = _sigmoid(theta[:, None] * slope + intercept)
    variance = expected * (1.0 - expected)
    residual = np.where(answered, known - expected, 0.0)
    binary = bool(np.isin(known, (0.0, 1.0)).all())
    total = float(variance[answered].sum())
    dispersion = 1.0 if binary else min(max(float((residual**2).sum()) / total, 1e-3), 1.0)
    deviation = residual / (variance + dispersion / _DEVIATION_VARIANCE)
    seen = np.maximum(answered.sum(axis=0), 1)
    # The sign of a principal component is arbitrary: fix it, so that every machine agrees.
    factors = reduced(deviation * np.sqrt(_SPREAD / seen), _abilities(*some.shape))
    factors *= np.where(factors.sum(axis=1) < 0.0, -1.0, 1.0)[:, None]
    mean, sd = float(theta.mean()), max(float(theta.std()), _LEAST_SPREAD)
    return ScoreCurves(
        slopes=np.vstack([sd * slope, factors]),
        intercept=intercept + mean * slope,
        dispersion=dispersion,
    )


def general_ability(scores: FloatArray) -> FloatArray:
    """Logit of each examinee's mean score, shape (n_examinees,).

    The mean easiness of the items that an examinee answered, relative to all items, is subtracted.
    """
    answered = ~np.isnan(scores)
    known = np.where(answered, scores, 0.0)
    right = (known.sum(axis=0) + 0.5) / (answered.sum(axis=0) + 1.0)
    ease = np.log(right / (1.0 - right))
    count = answered.sum(axis=1)
    mean = (known.sum(axis=1) + 0.5) / (count + 1.0)
    easier = answered @ ease / np.maximum(count, 1) - ease.mean()
    theta: FloatArray = np.log(mean / (1.0 - mean)) - easier
    return theta


def strongest_first(scores: FloatArray) -> IntArray:
    """Row numbers of the examinees by general ability, the strongest first."""
    order: IntArray = np.argsort(-general_ability(scores), kind="stable")
    return order


def reference_population(scores: FloatArray) -> ReferencePopulation:
    """Distribution of the general ability of the examinees with these records."""
    theta = general_ability(scores)
    mean, sd = float(theta.mean()), max(float(theta.std()), _LEAST_SPREAD)
    quantiles = np.quantile((theta - mean) / sd, np.linspace(0.0, 1.0, 101))
    return ReferencePopulation(
        quantiles=tuple(quantiles.round(4).tolist()), mean=mean, sd=sd, n_items=scores.shape[1]
    )


def _general_curves(
    known: FloatArray, answered: BoolArray, theta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Slope and intercept of each item on the general ability, by Newton's method."""
    n_items = known.shape[1]
    slope, intercept = np.ones(n_items), np.zeros(n_items)
    for_slope, for_intercept = _SLOPE_SD**-2, _INTERCEPT_SD**-2
    counted = answered.astype(np.float64)
    for _ in range(_STEPS):
        expected = _sigmoid(theta[:, None] * slope + intercept)
        residual = (known - expected) * counted
        weight = expected * (1.0 - expected) * counted
        by_slope = theta @ residual - for_slope * (slope - 1.0)
        by_intercept = residual.sum(axis=0) - for_intercept * intercept
        aa = theta**2 @ weight + for_slope
        bb = weight.sum(axis=0) + for_intercept
        ab = theta @ weight
        determinant = aa * bb - ab**2
        turn = np.clip((bb * by_slope - ab * by_intercept) / determinant, -_LONGEST[0], _LONGEST[0])
        before, slope = slope, np.clip(slope + turn, _LEAST_SLOPE, _MOST_SLOPE)
        move = np.clip((aa * by_intercept - ab * by_slope) / determinant, -_LONGEST[1], _LONGEST[1])
        intercept = intercept + move
        if max(float(np.abs(slope - before).max()), float(np.abs(move).max())) < _SETTLED:
            break
    return slope, intercept


def _abilities(n_examinees: int, n_items: int) -> int:
    number = min(n_examinees // _EXAMINEES_EACH, _MOST_ABILITIES, _MOST_NUMBERS // n_items)
    return max(number, _FEWEST_ABILITIES)


def _sigmoid(logit: FloatArray) -> FloatArray:
    value: FloatArray = 1.0 / (1.0 + np.exp(-np.clip(logit, -30.0, 30.0)))
    return value


def hold_outs(scores: FloatArray, rng: np.random.Generator) -> list[HoldOut]:
    """All hold-outs: four random ones and three by strength."""
    mixed = rng.permutation(len(scores))
    parts = np.array_split(mixed, _PARTS)
    random = [HoldOut(RANDOM, np.setdiff1d(mixed, part), part) for part in parts]
    return [*random, *split_by_strength(strongest_first(scores))]


def learn_curves(
    scores: FloatArray,
    targets: Mapping[str, FloatArray],
    rng: np.random.Generator,
    *,
    askable: BoolArray | None = None,
    costs: FloatArray | None = None,
) -> LearnedCurves:
    """Fit score curves, and measure their error on each target.

    The tests aim at the whole bank's score, or at the first target if that is not among them.
    With fewer than 20 examinees nobody is held out, and the errors are those of the prior.

    Args:
        scores: Records in [0, 1], shape (n_examinees, n_items), NaN where there is no answer.
        targets: Weights by name, each of shape (n_items,), summing to 1.
        rng: Random generator for the hold-outs and the choice of examinees.
        askable: Mask of the items that tests may ask, shape (n_items,); all by default.
        costs: Cost of each item where tests choose by gain per cost, shape (n_items,).
    """
    if len(scores) < LEAST_EXAMINEES:
        return LearnedCurves(curves=fit_curves(scores, rng), n_reference=len(scores))
    seen: dict[str, list[Seen]] = {name: [] for name in targets}
    for hold_out in hold_outs(scores, rng):
        for name, errors in _errors(scores, hold_out, targets, askable, costs).items():
            seen[name] += errors
    return LearnedCurves(
        curves=fit_curves(scores, rng),
        n_reference=len(scores),
        errors={name: model_error(errors, len(LOOKS), SCORE) for name, errors in seen.items()},
        population=reference_population(scores),
    )


def _errors(
    scores: FloatArray,
    hold_out: HoldOut,
    targets: Mapping[str, FloatArray],
    askable: BoolArray | None,
    costs: FloatArray | None,
) -> dict[str, list[Seen]]:
    """Errors on one hold-out by target, one entry for each number of answers."""
    n_items = scores.shape[1]
    active = np.ones(n_items, dtype=np.bool_) if askable is None else askable
    fitted = fit_curves(scores[evenly(hold_out.known, _MOST_KNOWN)])
    aim = targets.get(WHOLE_BANK)
    if aim is None:
        aim = next(iter(targets.values()))
    curves = fitted.towards(aim, active)
    looks = sorted({min(look, int(active.sum())) for look in LOOKS})
    doubt = prior_doubt(hold_out.known.size)
    test = score_test(Explanations(curves, doubt), aim, looks[-1], active, costs)
    predictors = {
        name: ScoreEstimator(
            Explanations(fitted.towards(weights, active), doubt), weights, ModelError(), active
        )
        for name, weights in targets.items()
    }
    errors: dict[str, dict[int, list[tuple[float, float, float]]]] = {
        name: {look: [] for look in looks} for name in targets
    }
    most = _MOST_OF_A_PART if hold_out.name == RANDOM else _MOST_TESTED
    for row in evenly(hold_out.tested, most).tolist():
        answered = ~np.isnan(scores[row])
        if not (answered & active).any():
            continue
        states: list[CatState] = []
        take(test, scores[row], seed=[row], watch=states.append)
        unknown = np.flatnonzero(~answered).tolist()
        for name, weights in targets.items():
            share = float(weights[answered].sum())
            if share < LEAST_ANSWERED * float(weights.sum()):
                continue
            truth = float(weights[answered] @ scores[row, answered]) / share
            # All right and all wrong have no logit: the score stays half an answer away from both.
            count = int(np.count_nonzero(weights[answered]))
            truth = logit_of((truth * count + 0.5) / (count + 1.0))
            for state in states:
                if state.n_scored in errors[name]:
                    held = predictors[name].by_curves(state.responses, unknown)
                    (value, sd), position = held.on_logits(), held.at.position
                    errors[name][state.n_scored].append((value - truth, sd, position))
    return {
        name: [_seen(rows) for rows in by_look.values() if rows] for name, by_look in errors.items()
    }


def _seen(rows: list[tuple[float, float, float]]) -> Seen:
    error, sd, position = np.array(rows).T
    uncertain = sd > _SURE
    return Seen(error[uncertain], sd[uncertain], position[uncertain])


class _FixedTheta(GridEstimator):
    """Never updates theta, which a test for a score alone does not need: this saves time."""

    @override
    def update(
        self,
        bank: ItemBank,
        belief: GridBelief,
        *responses: Response,
    ) -> GridBelief:
        """Return the belief unchanged."""
        del bank, responses
        return belief


def score_test(
    explanations: Explanations,
    weights: FloatArray,
    length: int,
    active: BoolArray,
    costs: FloatArray | None = None,
) -> AdaptiveTest:
    """The fixed-length test for a score that a bank with these curves gives.

    Args:
        explanations: The two explanations of the answers, which hold the curves.
        weights: Weight of each item in the score, shape (n_items,).
        length: Number of items to ask.
        active: Mask of the items that may be asked, shape (n_items,).
        costs: Cost of each item where tests choose by gain per cost, shape (n_items,).
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
        estimator=_FixedTheta(),
        selector=WantedOrSampled(
            estimator=estimator,
            wanted=Randomesque(criterion=criterion),
            sampled=Sampled.of(curves, weights, costs),
        ),
        stopping=AnyOf(goals=(), limits=(MaxItems(items=length),), min_items=0),
        predictor=estimator,
    )
