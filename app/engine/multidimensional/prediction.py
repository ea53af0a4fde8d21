"""p-IRT for a bank of several abilities: observed answers, and the expected score of the rest.

The score of a target is a weighted mean over items. The belief about the abilities is normal. The
expected score of the unanswered items rises fastest in one direction of the abilities. The belief
is summed over nodes along that direction; across it, each item's probability is averaged. The
interval includes this uncertainty and, as for one ability, that of the unseen answers.

The curves are those of the calibration: a task that shares no dimension with the items asked is
predicted by the general ability alone.

Source: Maia Polo et al. (2024), tinyBenchmarks, arXiv 2402.14992, section 3.2, for the estimate.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from app.engine.bank import FloatArray, ItemBank
from app.engine.models.multidimensional import Profile
from app.engine.multidimensional.belief import ProfileBelief, abilities_of
from app.engine.prediction.mixtures import mixture_interval
from app.engine.prediction.p_irt import P_IRT, Prediction, still_counted
from app.engine.state import Belief, Response
from app.errors import InvalidInputError

#: Number of nodes along the steepest direction, and their reach in standard deviations.
_NODES, _REACH = 61, 5.0
#: Gauss-Hermite nodes of each item's logit across that direction.
_ACROSS = 5


@dataclass(frozen=True, slots=True, eq=False)
class ProfilePIrt:
    """Predicts a target by the abilities alone; see `app.engine.prediction.p_irt.Predictor`.

    Attributes:
        weights: Weight of each item in the target, shape (n_items,), summing to 1.
    """

    weights: FloatArray

    @property
    def name(self) -> str:
        """Name in results."""
        return P_IRT

    def predict(
        self,
        bank: ItemBank,
        responses: Iterable[Response],
        belief: Belief,
        exclude: Sequence[int] = (),
    ) -> Prediction:
        """See `app.engine.prediction.p_irt.Predictor`."""
        if not isinstance(belief, ProfileBelief):
            raise InvalidInputError(
                "These answers were estimated for one ability; this prediction needs several."
            )
        weights = still_counted(self.weights, exclude)
        observed, unseen = 0.0, weights > 0.0
        for response in responses:
            observed += float(weights[response.item]) * response.score
            unseen[response.item] = False
        items = np.flatnonzero(unseen)
        if not items.size:
            return Prediction(value=observed, lo=observed, hi=observed, method=self.name)
        mass, expected = _expected(bank, belief.profile, items, weights[items])
        mean = expected @ weights[items]
        noise = np.sqrt((expected * (1.0 - expected)) @ weights[items] ** 2)
        rest = float(mass @ mean)
        (lo,), (hi,) = mixture_interval(mass[None, :], mean[None, :], noise[None, :])
        most = float(weights[items].sum())
        return Prediction(
            value=observed + rest,
            lo=observed + min(max(float(lo), 0.0), rest),
            hi=observed + max(min(float(hi), most), rest),
            method=self.name,
        )


def _expected(
    bank: ItemBank, profile: Profile, items: np.ndarray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Belief along the direction in which the items' score rises fastest, and expected scores.

    Returns:
        Mass of the nodes, shape (n_nodes,), and expected scores there, shape (n_nodes, n_items).
    """
    loadings = abilities_of(bank).items
    slopes = loadings.slopes[items]
    centre = slopes @ profile.mean + loadings.intercept[items]
    # Slopes in z, where the abilities are mean + root z and z is standard normal.
    turned = slopes @ np.linalg.cholesky(profile.covariance)
    steep = expit(centre) * expit(-centre)
    rise = (weights * steep) @ turned
    length = float(np.linalg.norm(rise))
    direction = rise / length if length > 0.0 else np.eye(rise.size)[0]
    along = turned @ direction
    across = np.sqrt(np.maximum((turned**2).sum(axis=1) - along**2, 0.0))
    z = np.linspace(-_REACH, _REACH, _NODES)
    mass = np.exp(-0.5 * z**2)
    logits = centre + z[:, None] * along
    points, shares = np.polynomial.hermite_e.hermegauss(_ACROSS)
    expected = np.zeros_like(logits)
    for point, share in zip(points.tolist(), (shares / shares.sum()).tolist(), strict=True):
        expected += share * expit(logits + point * across)
    return mass / mass.sum(), expected
