"""Corrections of theta's intervals."""

from app.engine.prediction.correction import IntervalFactor, ReferenceThetas


def level_factor(factor: float, spread: float = 1.0) -> IntervalFactor:
    """Return a factor that only the distance from reference models of this spread changes."""
    reference = ReferenceThetas(centre=0.0, spread=spread)
    return IntervalFactor(
        answers=(1,), factor=(factor,), usual=(1.0,), power=0.0, reference=reference
    )
