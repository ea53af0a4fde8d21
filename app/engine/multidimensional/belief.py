"""Estimates of several abilities of one examinee from its answers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import expit

from app.engine.bank import ItemBank, ItemIndex
from app.engine.models.base import FloatArray
from app.engine.models.multidimensional import MultidimensionalModel, Profile, estimate_profile
from app.engine.state import Estimate, Response, answered
from app.errors import InvalidInputError

#: Number of nodes of the normal belief about theta, and their reach in standard errors.
_NODES, _REACH = 121, 5.0
_NORMAL_95 = 1.959964


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
        return self.theta + self.se * np.linspace(-_REACH, _REACH, _NODES)

    @cached_property
    def weights(self) -> FloatArray:
        """Mass of the normal belief at `nodes`, shape (n_nodes,); sums to 1."""
        density = np.exp(-0.5 * np.linspace(-_REACH, _REACH, _NODES) ** 2)
        mass: FloatArray = density / density.sum()
        return mass

    def estimate(self) -> Estimate:
        """Theta, standard error and interval."""
        half = _NORMAL_95 * self.se
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
        """The belief before any answer: the population.

        Raises:
            InvalidInputError: The bank has no loadings.
        """
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
        loadings = abilities_of(bank).items
        asked = np.asarray(items, dtype=np.intp)
        expected: FloatArray = expit(
            loadings.slopes[asked] @ belief.profile.mean + loadings.intercept[asked]
        )
        return expected

    def estimate(self, bank: ItemBank, responses: Iterable[Response]) -> Estimate:
        """The estimate after all answers, in order."""
        belief = self.start(bank)
        for response in responses:
            belief = self.update(bank, belief, response)
        return belief.estimate()

    def prior_in(self, bank: ItemBank) -> tuple[float, float] | None:
        """Mean and standard deviation of theta in the population."""
        start = self.start(bank)
        return start.theta, start.se


def abilities_of(bank: ItemBank) -> MultidimensionalModel:
    """The abilities of a bank that has loadings.

    Raises:
        InvalidInputError: The bank has no loadings.
    """
    if bank.abilities is None:
        raise InvalidInputError(
            "This needs a bank with loadings, and this bank has none: calibrate with the model "
            "nested or mirt."
        )
    return bank.abilities
