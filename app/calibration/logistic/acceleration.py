"""Anderson acceleration of the EM map.

EM's linear rate is the share of missing information, which is close to 1 for the scale of theta and
for guessing. Mixing the last few steps removes those slow directions at the price of no extra
E-step; the caller keeps a mixed step only if the likelihood rose.

Source: Walker & Ni (2011), SIAM Journal on Numerical Analysis 49; Henderson & Varadhan (2019),
Journal of Computational and Graphical Statistics 28 (with EM's monotonicity as safeguard).
"""

from dataclasses import dataclass, field

import numpy as np

from app.engine.models.base import FloatArray

_KEPT = 3  # all forgotten, EM creeps along the scale of theta in a long test
_RIDGE = 1e-8  # relative; the last steps of EM are nearly parallel


@dataclass(slots=True)
class Anderson:
    """Memory of the last positions and EM steps.

    Attributes:
        depth: Steps mixed at most.
    """

    depth: int = 8
    _positions: list[FloatArray] = field(default_factory=list)
    _steps: list[FloatArray] = field(default_factory=list)

    def propose(self, x: FloatArray, mapped: FloatArray, weights: FloatArray) -> FloatArray | None:
        """Mixed next position, or None while there is nothing to mix.

        Args:
            x: Present position, shape (n,).
            mapped: EM's image of it.
            weights: Scale of each coordinate (root of its information): steps are compared in
                standard errors, or a guessing parameter that drifts to 0 would outweigh the rest.
        """
        self._positions.append(x)
        self._steps.append(mapped - x)
        del self._positions[: -self.depth - 1], self._steps[: -self.depth - 1]
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
        """After a refused step: what lies further back may no longer be linear."""
        del self._positions[:-_KEPT], self._steps[:-_KEPT]

    def forget(self) -> None:
        """Start anew, after a jump."""
        self._positions.clear()
        self._steps.clear()
