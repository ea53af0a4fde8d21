"""Linking of theta scales: a scale is determined only up to theta -> A theta + B.

Source: Kolen & Brennan (2014), Test Equating, Scaling, and Linking, chapter 6.
"""

from dataclasses import dataclass

import numpy as np

from app.calibration.logistic.curves import probabilities
from app.calibration.logistic.expectation import LatentDensity
from app.engine.models.base import FloatArray, ItemParameters
from app.errors import CalibrationError, InvalidInputError, ScaleMismatchError


@dataclass(frozen=True, slots=True, kw_only=True)
class Linking:
    """Linear map between two named scales: theta_target = slope theta_source + intercept.

    Raises:
        InvalidInputError: A slope that is not positive, or a number that is not finite.
    """

    source: str
    target: str
    slope: float
    intercept: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.slope) and np.isfinite(self.intercept) and self.slope > 0):
            raise InvalidInputError(
                f"A linking needs a slope > 0 and finite numbers, got slope {self.slope}, "
                f"intercept {self.intercept}."
            )

    def theta(self, theta: FloatArray | float, *, scale: str) -> FloatArray | float:
        """Convert thetas from scale `source` to scale `target`.

        Raises:
            ScaleMismatchError: `scale` is not this linking's source.
        """
        if scale != self.source:
            raise ScaleMismatchError(
                f"This linking leads from scale {self.source!r} to {self.target!r}, got a theta "
                f"on scale {scale!r}."
            )
        return self.slope * theta + self.intercept

    def items(self, items: ItemParameters) -> ItemParameters:
        """Convert item parameters to the target scale; the curves stay the same.

        a* = a / A, b* = A b + B and therefore intercept* = intercept - a B / A. (The formula
        A intercept + B a, found in published linking code, holds only for A = 1 and B = 0.)
        """
        a = items.a / self.slope
        return items._replace(a=a, intercept=items.intercept - a * self.intercept)


def link_mean_sigma(
    moments_from: tuple[float, float], moments_to: tuple[float, float], *, source: str, target: str
) -> Linking:
    """Linking that matches the mean and standard deviation of common values on both scales.

    The values are difficulties of the same items, or latent thetas of the same examinees. Point
    estimates of theta shrink by their unreliability, which depends on the items; latent moments do
    not.

    Args:
        moments_from: Mean and standard deviation of the values on the source scale.
        moments_to: The same on the target scale.
        source: Name of the source scale.
        target: Name of the target scale.

    Raises:
        CalibrationError: No spread.

    Source: Marco (1977), Journal of Educational Measurement 14.
    """
    (mean_from, sd_from), (mean_to, sd_to) = moments_from, moments_to
    if not (sd_from > 0 and sd_to > 0):
        raise CalibrationError(
            f"Mean-sigma linking needs values that differ, got sd {sd_from} and {sd_to}."
        )
    slope = sd_to / sd_from
    return Linking(source=source, target=target, slope=slope, intercept=mean_to - slope * mean_from)


def link_stocking_lord(
    items_from: ItemParameters, items_to: ItemParameters, *, source: str, target: str
) -> Linking:
    """Linking that minimises the difference of the anchors' test characteristic curves.

    The thetas of the comparison come from N(0, 1) on the target scale.

    Source: Stocking & Lord (1983), Applied Psychological Measurement 7, eq. 7.
    """
    at = LatentDensity.normal()
    wanted = probabilities(items_to, at.nodes)[0].sum(axis=0)

    def loss(x: FloatArray) -> float:
        moved = Linking(
            source=source, target=target, slope=float(np.exp(x[0])), intercept=float(x[1])
        ).items(items_from)
        gap = probabilities(moved, at.nodes)[0].sum(axis=0) - wanted
        return float(at.weights @ gap**2)

    # A grid first: the loss has plateaus where all curves are flat.
    starts = [
        np.array([log_slope, intercept])
        for log_slope in np.log([0.4, 0.65, 1.0, 1.5, 2.5])
        for intercept in (-2.0, -1.0, 0.0, 1.0, 2.0)
    ]
    from scipy.optimize import minimize

    best = minimize(
        loss,
        min(starts, key=loss),
        method="Nelder-Mead",
        options={"xatol": 1e-8, "fatol": 1e-14, "maxiter": 2000},
    )
    return Linking(
        source=source, target=target, slope=float(np.exp(best.x[0])), intercept=float(best.x[1])
    )
