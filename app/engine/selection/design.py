"""Optimal design: items whose answers, whatever they are, make a covariance V small.

| criterion | minimises |
|---|---|
| V-optimality | the variance of a predicted score (the target) |
| V-optimality of loadings | the mean variance of the logits of the target's items |
| D-optimality | det V: the volume of the abilities' joint interval |
| A-optimality | trace V: the sum of the abilities' variances |
| trace | nothing: it maximises the trace of the Fisher information |

An item with slopes s and weight w = P Q turns V into V - V s s' V w / (1 + w s' V s). Each
criterion therefore needs one product of V with the slopes of the bank. Pending items count as
answered, in V and in the target's variance, because any answer will shrink both.

Sources: Segall (1996), Psychometrika 61, for D; van der Linden (1999), Journal of Educational and
Behavioral Statistics 24, for A; Atkinson, Donev & Tobias (2007), Optimum Experimental Designs,
chapter 10, for V; eq. 6 and 14 of the WILD study for V of loadings.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from app.engine.bank import FloatArray
from app.engine.models.base import sigmoids
from app.engine.models.multidimensional import with_answer
from app.engine.multidimensional import ProfileBelief, abilities_of
from app.engine.prediction.score_model import Target
from app.engine.selection.base import Pool
from app.engine.state import CatState
from app.errors import InvalidInputError

_BLOCK = 2**13  # columns whose products stay in the processor's cache


class Optimality(StrEnum):
    """The quantity that is minimised (or, for the trace, maximised)."""

    V = "v_optimal"
    V_LOADINGS = "v_optimal_loadings"
    D = "d_optimal"
    A = "a_optimal"
    TRACE = "trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetVariance:
    """V-optimality with a covariance of the scores that was learned from recorded answers.

    Attributes:
        target: The score that the test predicts.
    """

    target: Target

    def values(self, pool: Pool, state: CatState) -> FloatArray:  # noqa: ARG002  # see `Criterion`
        """Reduction of the target's variance by an answer to each item."""
        counted = [*(response.item for response in state.responses), *state.pending]
        return self.target.given(counted).gains()


@dataclass(frozen=True, slots=True, kw_only=True)
class AbilityDesign:
    """Optimality of the abilities' covariance at the current estimate.

    Attributes:
        optimality: The criterion.
        weights: Weight of each item in the target of either V-optimality, shape (n_items,).
    """

    optimality: Optimality
    weights: FloatArray

    def values(self, pool: Pool, state: CatState) -> FloatArray:
        """Worth of each item by the criterion."""
        bank, belief = pool.index.bank, state.belief
        if not isinstance(belief, ProfileBelief):
            raise InvalidInputError(
                f"{self.optimality} needs the abilities of a bank with loadings, and these "
                "answers were estimated for one ability."
            )
        items = abilities_of(bank).items
        slopes, across = items.slopes, items.across
        right, wrong = sigmoids(belief.profile.mean @ across + items.intercept)
        weight = right * wrong  # P Q, computed without cancellation
        if self.optimality is Optimality.TRACE:
            information: FloatArray = weight * (across * across).sum(axis=0)
            return information
        covariance = belief.profile.covariance
        for item in state.pending:
            covariance = with_answer(covariance, slopes[item], float(weight[item]))
        root = np.asarray(np.linalg.cholesky(covariance).T, dtype=np.float64)
        informed: FloatArray = weight * _squares(root, across)
        if self.optimality is Optimality.D:
            # log det falls by log(1 + w s' V s).
            return np.asarray(np.log1p(informed))
        if self.optimality is Optimality.A:
            along = _squares(covariance, across)
        elif self.optimality is Optimality.V_LOADINGS:
            # M of eq. 6 is the sum of s s' over the target's items, here their weighted mean.
            moment = (across * self.weights) @ slopes
            turned = (covariance @ moment @ covariance) @ across
            along = np.einsum("dj,dj->j", turned, across)
        else:
            along = ((covariance @ (across @ (self.weights * weight))) @ across) ** 2
        gain: FloatArray = weight * along / (1.0 + informed)
        return gain


def _squares(matrix: FloatArray, across: FloatArray) -> FloatArray:
    """Squared length of `matrix` times each column, shape (n_items,)."""
    lengths = np.empty(across.shape[1])
    for start in range(0, lengths.size, _BLOCK):
        turned = matrix @ across[:, start : start + _BLOCK]
        np.einsum("kj,kj->j", turned, turned, out=lengths[start : start + _BLOCK])
    return lengths
