"""A named result that gates compare with, and which tolerances it can decide."""

from datetime import datetime

from sextant_client.models import Interval, Model


class Baseline(Model):
    """A result by name."""

    name: str
    session_id: str
    examinee: str
    bank: str
    score: float | None
    score_interval: Interval | None
    n_items: int
    set_at: datetime

    @property
    def passes(self) -> float | None:
        """Tolerance, points, that a release as good passes four times out of five."""
        known = self.score_interval
        if known is None or known.lo is None or known.hi is None:
            return None
        # The difference of two such scores has the standard error 2^0.5 se. Between equal models
        # its interval ends above -2^0.5 (1.96 + 0.84) se with a chance of 0.8: about the width
        # 2 * 1.96 se.
        return 100.0 * (known.hi - known.lo)

    @property
    def certainty(self) -> str | None:
        """Say how exactly the score is known, and which tolerance that allows."""
        if self.passes is None:
            return None
        return (
            f"known to ±{self.passes / 2:.1f} points by {self.n_items} questions: a release as "
            f"good passes a tolerance of {self.passes:.0f} points four times out of five"
        )
