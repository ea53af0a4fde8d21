"""Marginal maximum likelihood by accelerated EM, whole bank at once."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from app.calibration.logistic.curves import INTERCEPT, SLOPE, Curves, bounds
from app.calibration.logistic.expectation import Expectation, LatentDensity, expect
from app.calibration.logistic.maximization import (
    START_DAMPING,
    Climb,
    Problem,
    climb,
    distance_left,
    first_counts,
    leave_poor_optima,
    search,
)
from app.calibration.matrix import ScoreMatrix
from app.engine.models.base import FloatArray

_FIRST_STEPS = 5
_STEPS = 2  # damped steps per cycle: more steps cost time and bring EM no further
_LOOK_AROUND = (1, 3, 6, 10, 20, 40)  # before these cycles every item is searched globally
_LAST_LOOKS = 4  # most global searches after convergence; EM ends at the first without a find
_OFF_SCALE = 0.5  # least error of mean or log sd, in standard errors, for `_rescaled` to act
_STILL_CYCLES = 25  # EM stands still if so many cycles together gain < a tenth of the tolerance
_STILL_DISTANCE = 10  # at a standstill, times the gradient tolerance: steps on a grid are rough
_MIXED = 8  # most steps that are mixed
_KEPT = 3  # steps kept after a refusal: without any, EM is slow along the scale of theta
_RIDGE = 1e-8  # relative ridge, as the last steps of EM are nearly parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class EmSettings:
    """When EM stops, and what it estimates of the population.

    Attributes:
        max_cycles: Largest number of E-steps.
        tolerance: First criterion of convergence: a cycle gains less log-posterior than this.
        gradient_tolerance: Second criterion: `distance_left`, the distance to a zero gradient in
            standard errors, is below this; ten times as much is allowed once EM stands still for
            25 cycles.
        estimate_density: Estimate the weights of the latent density (empirical histogram) instead
            of using N(0, 1).
        estimate_population: Estimate mean and sd of a normal density. The scale must then be held
            by fixed items or by priors of each item.
    """

    max_cycles: int = 2000
    tolerance: float = 1e-3
    gradient_tolerance: float = 0.05
    estimate_density: bool = False
    estimate_population: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """One line of progress."""

    cycle: int
    log_posterior: float
    gain: float
    distance: float
    """Distance to the optimum before the cycle, in standard errors."""


@dataclass(frozen=True, eq=False, slots=True)
class EmResult:
    """The estimates at which EM ended.

    Attributes:
        log_likelihood: Marginal log-likelihood of the estimates, without the prior.
        converged: Both criteria of `EmSettings` hold.
        gain: Log-posterior gained by the last cycle.
        distance: Remaining distance to a zero gradient, in standard errors.
    """

    curves: Curves
    density: LatentDensity
    log_likelihood: float
    converged: bool
    cycles: int
    gain: float
    distance: float


def maximise(
    matrix: ScoreMatrix,
    problem: Problem,
    density: LatentDensity,
    settings: EmSettings,
    *,
    start: Curves | None = None,
    early_looks: bool = True,
    watch: Callable[[Progress], None] | None = None,
) -> EmResult:
    """Climb to a maximum of the marginal log-posterior, which no accepted cycle lowers.

    Args:
        matrix: Answers.
        problem: The estimation problem.
        density: Latent density, or its starting value if it is estimated.
        settings: When to stop.
        start: Curves to start from, required with fixed items and with priors of each item.
            Without it, each item starts from a global search.
        early_looks: Repeat the global search in some early cycles, not only at the end.
        watch: Called after each cycle; an exception from it ends the calibration.

    Source: Bock & Aitkin (1981), Psychometrika 46; accelerated as in `Anderson`.
    """
    run = _Run(matrix, problem, settings)
    state = run.first(density, start)
    damping = np.full(matrix.n_items, START_DAMPING)
    accelerate = Anderson()
    gain, cycle, last_looks = np.inf, 0, _LAST_LOOKS
    posteriors: list[float] = []
    while True:
        cycle += 1
        if early_looks and cycle in _LOOK_AROUND:
            state, jumped = run.look_around(state)
            if jumped:
                accelerate.forget()
                gain = np.inf
        settled = problem.settled(state.x)
        climbed = climb(settled, state.x, state.counts, state.density.nodes, damping, _STEPS)
        distance = distance_left(problem, state.x, climbed.before, matrix.n_examinees)
        posteriors.append(state.log_posterior)
        gained = posteriors[-1] - posteriors[-_STILL_CYCLES - 1 :][0]
        still = len(posteriors) > _STILL_CYCLES and gained < 0.1 * settings.tolerance
        reach = settings.gradient_tolerance * (_STILL_DISTANCE if still else 1)
        converged = gain < settings.tolerance and distance < reach
        if run.left == 0 or (still and not converged):
            break
        if converged:
            if last_looks == 0:
                break
            # Another curve may fit an item better now that the thetas are known.
            last_looks -= 1
            state, jumped = run.look_around(state)
            if not jumped:
                break
            accelerate.forget()
            posteriors.clear()
            gain = np.inf
            continue
        damping = climbed.damping
        previous = state.log_posterior
        state = run.advance(state, climbed, accelerate)
        gain = state.log_posterior - previous
        if watch is not None:
            watch(Progress(run.e_steps, state.log_posterior, gain, distance))
    curves = Curves(state.x, problem.log_slope)
    result = EmResult(
        curves=curves,
        density=state.density,
        log_likelihood=state.counts.log_likelihood,
        converged=converged,
        cycles=run.e_steps,
        gain=gain,
        distance=distance,
    )
    return _standardised(result) if settings.estimate_density and not problem.fixed else result


@dataclass(slots=True)
class Anderson:
    """Anderson acceleration of the EM map, with the last positions and EM steps as memory.

    EM's linear rate is the share of missing information, which is close to 1 for the scale of theta
    and for guessing. Mixing the last few steps removes those slow directions without an extra
    E-step. The caller keeps a mixed step only if the log-posterior rises.

    Source: Walker & Ni (2011), SIAM Journal on Numerical Analysis 49; Henderson & Varadhan (2019),
    Journal of Computational and Graphical Statistics 28 (with EM's monotonicity as safeguard).
    """

    _positions: list[FloatArray] = field(default_factory=list)
    _steps: list[FloatArray] = field(default_factory=list)

    def propose(self, x: FloatArray, mapped: FloatArray, weights: FloatArray) -> FloatArray | None:
        """Propose a mixed next position, or None while fewer than two steps are known.

        Args:
            x: Present position, shape (n,).
            mapped: Position after one EM step from `x`, shape (n,).
            weights: Root of the information of each coordinate, shape (n,). It compares steps in
                standard errors; otherwise a guessing parameter drifting to 0 would dominate.
        """
        self._positions.append(x)
        self._steps.append(mapped - x)
        del self._positions[: -_MIXED - 1], self._steps[: -_MIXED - 1]
        if len(self._steps) < 2:
            return None
        steps = np.stack(self._steps)
        turns = np.diff(steps * weights, axis=0)
        images = np.diff(np.stack(self._positions) + steps, axis=0)
        gram = turns @ turns.T
        gram += _RIDGE * np.trace(gram) * np.eye(len(gram)) + np.finfo(float).tiny
        mix = np.linalg.lstsq(gram, turns @ (steps[-1] * weights), rcond=None)[0]
        mixed: FloatArray = mapped - mix @ images
        return mixed

    def forget_oldest(self) -> None:
        """Drop older steps after a refused one: EM may not be linear that far back."""
        del self._positions[:-_KEPT], self._steps[:-_KEPT]

    def forget(self) -> None:
        """Drop all steps, after a jump of some items or a rescaling of all."""
        self._positions.clear()
        self._steps.clear()


@dataclass(frozen=True, eq=False, slots=True)
class _State:
    x: FloatArray
    density: LatentDensity
    counts: Expectation
    log_posterior: float


@dataclass(slots=True)
class _Run:
    """One maximisation: what stays the same, and the number of E-steps."""

    matrix: ScoreMatrix
    problem: Problem
    settings: EmSettings
    e_steps: int = 0

    @property
    def left(self) -> int:
        """Number of E-steps that may still be made."""
        return self.settings.max_cycles - self.e_steps

    def first(self, density: LatentDensity, start: Curves | None) -> _State:
        if start is not None:
            return self.at(start.x, density)
        counts = first_counts(self.matrix, density)
        x = search(self.problem, counts, density.nodes)
        damping = np.full(len(x), START_DAMPING)
        settled = self.problem.settled(x)
        climbed = climb(settled, x, counts, density.nodes, damping, _FIRST_STEPS)
        return self.at(climbed.x, density)

    def at(self, x: FloatArray, density: LatentDensity) -> _State:
        self.e_steps += 1
        curves = Curves(x, self.problem.log_slope)
        counts = expect(self.matrix, curves.natural(), density)
        return _State(x, density, counts, counts.log_likelihood + self.problem.log_prior(x))

    def look_around(self, state: _State) -> tuple[_State, bool]:
        """Leave optima that EM steps cannot leave; also returns whether anything moved or would."""
        if self.problem.priors.by_item:  # such priors place each item and hold the scale
            return state, False
        state, moved = self._rescaled(state)
        settled = self.problem.settled(state.x)
        x, jumps = leave_poor_optima(settled, state.x, state.counts, state.density.nodes)
        if not jumps or self.left == 0:
            return state, moved or bool(jumps)
        return self.at(x, self._next_density(state)), True

    def _rescaled(self, state: _State) -> tuple[_State, bool]:
        """Rescale all items to examinees of mean 0 and sd 1 if that raises the log-posterior.

        EM gets there slowly, and very steep items, which are steps between two nodes, block it.

        Source: the expanded parameters of Liu, Rubin & Wu (1998), Biometrika 85.
        """
        settings = self.settings
        if self.problem.fixed or settings.estimate_density or settings.estimate_population:
            return state, False
        moments = state.density.reweighted(state.counts.mass)
        off = max(abs(moments.mean), np.sqrt(2) * abs(np.log(moments.sd)))
        if off * np.sqrt(self.matrix.n_examinees) < _OFF_SCALE:
            return state, False
        if self.left == 0:
            return state, True
        x = _on_scale(state.x, moments, log_slope=self.problem.log_slope)
        trial = self.at(self._inside(x), state.density)
        if trial.log_posterior <= state.log_posterior:
            return state, False
        return trial, True

    def advance(self, state: _State, climbed: Climb, accelerate: Anderson) -> _State:
        """One cycle: the mixed step if it raises the log-posterior, otherwise EM's own step."""
        density = self._next_density(state)
        information = np.einsum("jaa->ja", climbed.before.information)
        mixed = accelerate.propose(
            np.concatenate([state.x.ravel(), self._shape(state.density)]),
            np.concatenate([climbed.x.ravel(), self._shape(density)]),
            # A coordinate without information still needs a scale.
            np.sqrt(np.concatenate([information.ravel(), self._shape_information(state)])) + 1e-3,
        )
        if mixed is not None and self.left > 1:  # a refused one needs another E-step
            x = self._inside(mixed[: state.x.size].reshape(state.x.shape))
            trial = self.at(x, self._of_shape(state.density, mixed[state.x.size :]))
            if trial.log_posterior > state.log_posterior:
                return trial
            accelerate.forget_oldest()
        return self.at(climbed.x, density)

    def _inside(self, x: FloatArray) -> FloatArray:
        low, high = bounds(log_slope=self.problem.log_slope)
        free = np.array([SLOPE, *self.problem.family.free])
        estimated = np.ix_(self.problem.movable(len(x)), free)
        x[estimated] = np.clip(x[estimated], low[free], high[free])
        return x

    def _next_density(self, state: _State) -> LatentDensity:
        """EM's own update of the density, from the counts at the present position."""
        moments = state.density.reweighted(state.counts.mass)
        if self.settings.estimate_density:
            return moments
        if self.settings.estimate_population:
            return state.density.reshaped(mean=moments.mean, sd=moments.sd)
        return state.density

    def _shape(self, density: LatentDensity) -> FloatArray:
        """Estimated parameters of the density, transformed to be unconstrained."""
        if self.settings.estimate_density:
            return np.log(density.weights)
        if self.settings.estimate_population:
            return np.array([density.mean, np.log(density.sd)])
        return np.empty(0)

    def _shape_information(self, state: _State) -> FloatArray:
        n = self.matrix.n_examinees
        if self.settings.estimate_density:
            return n * state.density.weights
        return np.array([n, 2 * n]) if self.settings.estimate_population else np.empty(0)

    def _of_shape(self, density: LatentDensity, shape: FloatArray) -> LatentDensity:
        if self.settings.estimate_density:
            return density.reweighted(np.exp(shape - shape.max()))
        if self.settings.estimate_population:
            return density.reshaped(mean=float(shape[0]), sd=float(np.exp(shape[1])))
        return density


def _standardised(result: EmResult) -> EmResult:
    """Scale theta to mean 0 and sd 1, which does not change the likelihood."""
    density, log_slope = result.density, result.curves.log_slope
    return replace(
        result,
        curves=Curves(_on_scale(result.curves.x, density, log_slope=log_slope), log_slope),
        density=LatentDensity((density.nodes - density.mean) / density.sd, density.weights),
    )


def _on_scale(x: FloatArray, density: LatentDensity, *, log_slope: bool) -> FloatArray:
    """Coordinates of the curves when theta is scaled to mean 0 and sd 1 under the density."""
    moved = x.copy()
    moved[:, INTERCEPT] += Curves(x, log_slope).a * density.mean
    if log_slope:
        moved[:, SLOPE] += np.log(density.sd)
    else:
        moved[:, SLOPE] *= density.sd
    return moved
