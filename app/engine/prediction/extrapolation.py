"""How errors grow with the distance of an examinee from the reference models.

Parameters and curves describe the reference models. The farther an examinee is from their mean, the
more its ability and its score are extrapolated. One rule serves both. Up to one standard deviation
of the reference models errors are as stated. Beyond it their logarithm grows by a fifth for each
further one.
"""

import math

#: Distance from the reference models' mean, in their standard deviations, up to which errors are
#: as stated.
_WITHIN = 1.0
#: Largest distance: no examinee was seen farther away, so errors grow no more beyond it.
_FARTHEST = 6.0
#: Growth of an error's logarithm for each standard deviation. On eleven matrices, learned from the
#: others, theta's intervals hold for 94 to 100 % of the strongest and of the weakest models, and
#: for at least 80 % on each. With a growth and a bias learned from such models it was 57 % on one.
#: The score's intervals hold for 96 to 99 % in `benchmarks/transfer.py`.
_GROWTH = 0.2


def growth(position: float) -> float:
    """Factor, at least 1, on the error of an examinee at that position among the reference models.

    Args:
        position: Ability, in standard deviations of the reference models from their mean.
    """
    return math.exp(_GROWTH * min(max(abs(position) - _WITHIN, 0.0), _FARTHEST))
