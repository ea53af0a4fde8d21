"""From a response matrix to a bank of a 1PL to 4PL; compares these models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.calibration.estimation import Estimation
from app.calibration.logistic.curves import MAX_SLOPE, Curves, Family
from app.calibration.logistic.em import EmResult, EmSettings, Progress, maximise
from app.calibration.logistic.expectation import DEFAULT_NODES, LatentDensity, expect, posteriors
from app.calibration.logistic.maximization import Problem, guessing_prior
from app.calibration.logistic.priors import Normal, Priors
from app.calibration.logistic.scale_linking import Linking
from app.calibration.logistic.uncertainty import ParameterErrors, parameter_errors
from app.calibration.matrix import ScoreMatrix
from app.engine.bank import DEFAULT_SCALE, ItemBank
from app.engine.models.base import FloatArray, ItemParameters
from app.engine.models.logistic import LOGISTIC
from app.errors import InvalidInputError
from app.printable import percent

LEAST_ANSWERS: Mapping[Family, int] = {
    Family.RASCH: 100,  # Linacre (1994), Rasch Measurement Transactions 7
    Family.TWO_PL: 250,  # Drasgow (1989), Applied Psychological Measurement 13: 200 at the least
    Family.THREE_PL: 1000,  # Hulin, Lissak & Drasgow (1982), Applied Psychological Measurement 6
    Family.FOUR_PL: 2500,  # Loken & Rulison (2010), BJMSP 63: wide posteriors even at 1,000
}
"""Least answers of an item; with fewer its parameters are hardly identified without priors."""

MAX_NODES = 401
_ROUGH = 1.0  # the first stage ends when a cycle gains less log-posterior than this
_WIDE_GUESSING = Normal(None, 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSettings:
    """How a bank is calibrated.

    Attributes:
        priors: Priors. None means `Priors.default` with the spread of guessing learned from the
            answers; `Priors.none()` means maximum likelihood.
        negative_slopes: Slopes may be negative, as in mirt. An item that becomes harder with
            ability then keeps its best-fitting curve instead of a slope near 0.
        estimate_density: Estimate the weights of the latent density instead of using N(0, 1).
        n_nodes: Quadrature nodes over [-6, 6]. None means 61 at first, and then as many as the
            posteriors need: on a long test they are narrower than the spacing of 61 nodes.
        max_cycles: Largest number of E-steps; at least two are made.
        scale: Name of the theta scale that this calibration defines.

    Raises:
        InvalidInputError: Priors that need positive slopes with `negative_slopes`, a prior on a
            itself without it, a 1PL with negative slopes or a prior on its slope, or no cycles.
    """

    family: Family = Family.TWO_PL
    priors: Priors | None = None
    negative_slopes: bool = False
    estimate_density: bool = False
    n_nodes: int | None = None
    max_cycles: int = 2000
    with_errors: bool = True
    scale: str = DEFAULT_SCALE

    def __post_init__(self) -> None:
        if self.max_cycles < 1:
            raise InvalidInputError(f"max_cycles must be at least 1, got {self.max_cycles}.")
        if self.family is Family.RASCH and self.negative_slopes:
            raise InvalidInputError("The 1PL has one common, positive slope.")
        if self.priors is None:
            return
        if self.negative_slopes and self.priors.need_positive_slopes:
            raise InvalidInputError(
                "Priors on log a and b need positive slopes; leave them out or disallow negative "
                "slopes."
            )
        if not self.negative_slopes and self.priors.slope is not None:
            raise InvalidInputError("The prior on a itself is for slopes that may be negative.")
        if self.family is Family.RASCH and self.priors.log_slope is not None:
            raise InvalidInputError("The 1PL's common slope takes no prior.")

    def problem(self, fixed: tuple[int, ...] = ()) -> Problem:
        """The estimation problem these settings describe."""
        priors = self.priors
        if priors is None:
            priors = Priors.default(self.family, negative_slopes=self.negative_slopes)
        return Problem(
            family=self.family,
            log_slope=not self.negative_slopes,
            priors=priors,
            fixed=fixed,
        )


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Calibration(Estimation):
    """Item parameters estimated from a response matrix; converged if `EmSettings` says so.

    Attributes:
        items: Item parameters, in the order of `item_ids`.
        density: Latent density of the calibration population.
        errors: Standard errors of the item parameters, or None if they were not computed.
        guessing_sd: Standard deviation of the prior on logit c, or None without a common prior.
        free_density: The weights of the latent density were estimated.
    """

    family: Family
    items: ItemParameters
    item_ids: tuple[str, ...]
    density: LatentDensity
    errors: ParameterErrors | None
    guessing_sd: float | None
    free_density: bool = False
    scale: str = DEFAULT_SCALE

    @property
    def b(self) -> FloatArray:
        """Difficulties, logits."""
        difficulties: FloatArray = -self.items.intercept / self.items.a
        return difficulties

    @property
    def known_errors(self) -> ParameterErrors:
        """The standard errors, where the settings asked for them."""
        if self.errors is None:
            raise RuntimeError("a calibration without standard errors")
        return self.errors

    def bank(self) -> ItemBank:
        """The items as a bank."""
        return ItemBank.from_intercepts(
            a=self.items.a,
            intercept=self.items.intercept,
            c=self.items.c,
            d=self.items.d,
            item_ids=self.item_ids,
            scale=self.scale,
        )

    def moved(self, linking: Linking) -> "Calibration":
        """Convert to the linking's target scale; the linking's own error is not added.

        Raises:
            ScaleMismatchError: The linking does not start from this scale.
        """
        nodes = np.asarray(linking.theta(self.density.nodes, scale=self.scale), dtype=np.float64)
        return replace(
            self,
            items=linking.items(self.items),
            density=LatentDensity(nodes, self.density.weights),
            errors=self.errors and self.errors.moved(linking),
            scale=linking.target,
        )

    def thetas(self, matrix: ScoreMatrix) -> FloatArray:
        """EAP of each examinee on this scale; columns must be in the order of `item_ids`.

        Source: Bock & Mislevy (1982), Applied Psychological Measurement 6.
        """
        blocks = posteriors(matrix, self.items, self.density)
        return np.concatenate([block.weights @ self.density.nodes for block in blocks])


def calibrate(
    matrix: ScoreMatrix,
    settings: CalibrationSettings | None = None,
    *,
    watch: Callable[[Progress], None] | None = None,
) -> Calibration:
    """Marginal maximum likelihood, or maximum a posteriori, for a whole bank at once.

    The default is a 2PL with weak priors. An exception from `watch` ends the calibration.

    Raises:
        CalibrationError: A matrix without information (`ScoreMatrix.require_calibratable`).
    """
    settings = settings or CalibrationSettings()
    matrix.require_calibratable()
    return estimated(matrix, settings, settings.problem(), watch=watch)


def compare_families(
    matrix: ScoreMatrix, families: Sequence[Family], settings: CalibrationSettings
) -> tuple[Calibration, ...]:
    """Calibrate the same answers by several families; the result is sorted, lowest BIC first.

    Maximum likelihood is used throughout: a prior would lower the log-likelihood of the larger
    families, which AIC and BIC already penalise for their size.
    """
    fits = [
        calibrate(
            matrix,
            replace(
                settings,
                family=family,
                priors=Priors.none(),
                negative_slopes=settings.negative_slopes and family is not Family.RASCH,
                with_errors=False,
            ),
        )
        for family in families
    ]
    return tuple(sorted(fits, key=lambda fit: fit.bic))


def estimated(
    matrix: ScoreMatrix,
    settings: CalibrationSettings,
    problem: Problem,
    *,
    start: Curves | None = None,
    watch: Callable[[Progress], None] | None = None,
) -> Calibration:
    """Maximise roughly, set the prior of guessing and the grid by the result, and maximise.

    Where items are fixed, they hold the scale, and the mean and sd of the examinees are estimated.
    """
    em = EmSettings(
        max_cycles=max(settings.max_cycles - 1, 1),  # one is left for the second stage
        estimate_density=settings.estimate_density and not problem.fixed,
        estimate_population=bool(problem.fixed),
    )
    # The prior of guessing is wide at first, so that its spread can be learned from the answers.
    learns_guessing = settings.priors is None and problem.priors.guessing is not None
    rough = maximise(
        matrix,
        _guessing(problem, _WIDE_GUESSING) if learns_guessing else problem,
        LatentDensity.normal(n_nodes=settings.n_nodes or DEFAULT_NODES),
        replace(em, tolerance=_ROUGH, gradient_tolerance=np.inf),
        start=start,
        watch=watch,
    )
    if learns_guessing and problem.movable(matrix.n_items).size:
        counts = expect(matrix, rough.curves.natural(), rough.density)
        learned = guessing_prior(problem, rough.curves, counts, rough.density.nodes)
        problem = _guessing(problem, learned)
    # The fineness that the grid needs depends on the items, which are now known roughly.
    finer = None if em.estimate_population else _fine_enough(rough, settings)
    result = maximise(
        matrix,
        problem,
        finer or rough.density,
        replace(em, max_cycles=max(settings.max_cycles - rough.cycles, 1)),
        start=rough.curves,
        early_looks=finer is None,
        watch=watch,
    )
    result = replace(result, cycles=rough.cycles + result.cycles)
    return finished(matrix, settings, problem, result)


def _guessing(problem: Problem, prior: Normal) -> Problem:
    return replace(problem, priors=replace(problem.priors, guessing=prior))


def _fine_enough(result: EmResult, settings: CalibrationSettings) -> LatentDensity | None:
    """Density on a grid fine enough for the posteriors, or None if the present grid is."""
    if settings.n_nodes is not None or settings.estimate_density:
        return None
    at_node = LOGISTIC.information(result.curves.natural().column(), result.density.nodes)
    return result.density.refined(at_node.sum(axis=0), MAX_NODES)


def finished(
    matrix: ScoreMatrix, settings: CalibrationSettings, problem: Problem, result: EmResult
) -> Calibration:
    """Make a calibration of an EM result, with standard errors if the settings ask for them."""
    errors, guessing = None, problem.priors.guessing
    if settings.with_errors:
        errors = parameter_errors(matrix, problem, result.curves, result.density)
    n_free_items = matrix.n_items - len(problem.fixed)
    n_parameters = settings.family.n_parameters(n_free_items)
    if problem.fixed:
        n_parameters += 2 - (1 if settings.family is Family.RASCH else 0)
    elif settings.estimate_density:
        n_parameters += len(result.density.nodes) - 3  # weights sum to 1, mean 0 and sd 1 are fixed
    return Calibration(
        family=settings.family,
        items=result.curves.natural(),
        item_ids=matrix.items,
        density=result.density,
        log_likelihood=result.log_likelihood,
        n_parameters=n_parameters,
        n_examinees=matrix.n_examinees,
        n_answers=int(matrix.answers_per_item().sum()),
        converged=result.converged,
        cycles=result.cycles,
        errors=errors,
        guessing_sd=None if guessing is None or guessing.by_item else float(guessing.sd),
        free_density=settings.estimate_density and not problem.fixed,
        warnings=_warnings(matrix, settings, result),
        scale=settings.scale,
    )


def _warnings(
    matrix: ScoreMatrix, settings: CalibrationSettings, result: EmResult
) -> tuple[str, ...]:
    found = []
    if not result.converged:
        found.append(
            f"Not converged after {result.cycles} cycles: the last gained {result.gain:.2g}, and "
            f"{result.distance:.2g} standard errors are left."
        )
    least = LEAST_ANSWERS[settings.family]
    few = int((matrix.answers_per_item() < least).sum())
    if few:
        found.append(
            f"{few} of {matrix.n_items} items have fewer than {least} answers, too few to "
            f"identify a {settings.family.value} item well: its parameters lean on the priors."
        )
    steep = int((np.abs(result.curves.a) >= MAX_SLOPE * 0.999).sum())
    if steep:
        found.append(f"{steep} items ended at the largest slope, {MAX_SLOPE:g}.")
    falling = int((result.curves.a < 0).sum())
    if falling:
        found.append(f"{falling} items have a negative slope.")
    edge = float(result.density.weights[[0, -1]].sum())
    if edge > 1e-3:
        found.append(f"{percent(edge, 1)} of the population lies at the ends of the quadrature.")
    return tuple(found)
