"""Several abilities of one examinee: their estimates, and p-IRT for a bank that measures them.

p-IRT counts the observed answers and adds the expected score of the rest. The score of a target is
a weighted mean over items. The belief about the abilities is normal. The expected score of the
unanswered items rises fastest in one direction of the abilities. The belief is summed over nodes
along that direction; across it, each item's probability is averaged. The interval includes this
uncertainty and, as for one ability, that of the unseen answers.

The curves are those of the calibration: a task that shares no dimension with the items asked is
predicted by the general ability alone.

Source: Maia Polo et al. (2024), tinyBenchmarks, arXiv 2402.14992, section 3.2, for the estimate.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import expit

from app.engine.bank import ItemBank, ItemIndex
from app.engine.models.base import FloatArray
from app.engine.models.multidimensional import MultidimensionalModel, Profile, estimate_profile
from app.engine.prediction.mixtures import mixture_interval
from app.engine.prediction.p_irt import P_IRT, Prediction, still_counted
from app.engine.state import Z_95, Belief, Estimate, Response, answered
from app.errors import InvalidInputError

#: Number of nodes of the normal belief about theta and of that along the steepest direction, and
#: their reach in standard errors.
_NODES, _STEEP_NODES, _REACH = 121, 61, 5.0
#: Gauss-Hermite nodes of each item's logit across that direction.
_ACROSS = 5


@dataclass(frozen=True, eq=False)
class ProfileBelief:
    """Normal belief about all abilities; its theta is the main ability.

    Attributes:
        profile: Posterior mode and covariance of the abilities.
        composite: Weights of the abilities in theta, shape (D,).
        responses: The answers so far; each update computes the mode from all of them.
    """

    profile: Profile
    composite: FloatArray
    responses: tuple[Response, ...] = ()

    @cached_property
    def theta(self) -> float:
        """General ability in a nested bank; else the ability that drives its mean score most."""
        return float(self.composite @ self.profile.mean)

    @cached_property
    def se(self) -> float:
        """Standard error of `theta`."""
        return float(np.sqrt(self.composite @ self.profile.covariance @ self.composite))

    @cached_property
    def nodes(self) -> FloatArray:
        """Values of theta that carry its normal belief, shape (n_nodes,)."""
        return self.theta + self.se * _standard_normal(_NODES)[0]

    @cached_property
    def weights(self) -> FloatArray:
        """Mass of the normal belief at `nodes`, shape (n_nodes,); sums to 1."""
        return _standard_normal(_NODES)[1]

    def estimate(self) -> Estimate:
        """Theta, standard error and interval."""
        half = Z_95 * self.se
        return Estimate(
            theta=self.theta,
            se=self.se,
            lo=self.theta - half,
            hi=self.theta + half,
            method=ProfileMap.name,
            at_bound=False,
        )


@dataclass(frozen=True, slots=True)
class ProfileMap:
    """MAP of all abilities; the prior is the population of the bank's calibration.

    Each update starts at the previous mode, so that few Newton steps are needed.
    """

    name = "profile-map"

    def start(self, bank: ItemBank) -> ProfileBelief:
        """The belief before any answer: the population."""
        abilities = abilities_of(bank)
        population = abilities.population
        return ProfileBelief(
            Profile(mean=population.mean, covariance=population.covariance), abilities.composite
        )

    def update(self, bank: ItemBank, belief: ProfileBelief, *responses: Response) -> ProfileBelief:
        """The belief after one or more further answers."""
        abilities = abilities_of(bank)
        answers = (*belief.responses, *responses)
        profile = estimate_profile(
            abilities.items,
            abilities.population,
            *answered(answers),
            start=belief.profile.mean,
        )
        return replace(belief, profile=profile, responses=answers)

    def expected_scores(
        self, bank: ItemBank, belief: ProfileBelief, items: Sequence[ItemIndex]
    ) -> FloatArray:
        """Expected scores at the mode of the abilities, shape (n,)."""
        asked = abilities_of(bank).items.take(np.asarray(items, dtype=np.intp))
        return asked.expected_score(belief.profile.mean)

    def prior_in(self, bank: ItemBank) -> tuple[float, float] | None:
        """Mean and standard deviation of theta in the population."""
        start = self.start(bank)
        return start.theta, start.se


def abilities_of(bank: ItemBank) -> MultidimensionalModel:
    """The abilities of a bank; without loadings, an `InvalidInputError`."""
    if bank.abilities is None:
        raise InvalidInputError(
            "This needs a bank with loadings, and this bank has none: calibrate with the model "
            "nested or mirt."
        )
    return bank.abilities


@dataclass(frozen=True, slots=True, eq=False)
class ProfilePIrt:
    """Predicts a target by the abilities alone; see `app.engine.prediction.p_irt.Predictor`.

    Attributes:
        weights: Weight of each item in the target, shape (n_items,), summing to 1.
    """

    weights: FloatArray

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
            return Prediction(value=observed, lo=observed, hi=observed, method=P_IRT)
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
            method=P_IRT,
        )


def _standard_normal(n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Nodes of the standard normal density, and their mass, which sums to 1."""
    z = np.linspace(-_REACH, _REACH, n_nodes)
    mass = np.exp(-0.5 * z**2)
    return z, mass / mass.sum()


def _expected(
    bank: ItemBank, profile: Profile, items: np.ndarray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Belief along the direction in which the items' score rises fastest, and expected scores.

    The mass of the nodes has shape (n_nodes,), the scores there have shape (n_nodes, n_items).
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
    z, mass = _standard_normal(_STEEP_NODES)
    logits = centre + z[:, None] * along
    points, shares = np.polynomial.hermite_e.hermegauss(_ACROSS)
    expected = np.zeros_like(logits)
    for point, share in zip(points.tolist(), (shares / shares.sum()).tolist(), strict=True):
        expected += share * expit(logits + point * across)
    return mass, expected
