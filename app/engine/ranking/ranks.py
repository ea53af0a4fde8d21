"""Ranks, pairs and ties of examinees, from their stated abilities alone.

    measured = (Ability(theta=theta, se=0.2, n_items=30) for theta in (0.4, 1.2, 0.5))
    ranks = ranks_of([ability.stated() for ability in measured])
    ranks.order        # (1, 2, 0): positions, best first
    ranks.groups       # ((1,), (2, 0)): the last two cannot be separated
    ranks.rank_ranges  # ((2, 3), (1, 1), (2, 3)): best and worst rank of each position

The order is that of the reported estimates. Their bias beyond the calibrated range
(`app.engine.prediction.ability`) makes pairs less certain, and never reverses them.

A pair is decided when its order is wrong with probability at most `1 - confidence`: if the two were
equal, the upper one would lead by so much no more often than that. Two equals are therefore
separated, in either direction, with at most twice that probability. Holm's correction is stricter:
over all pairs together, any difference among equals is found with probability at most
`1 - confidence`.

If estimates are compared several times while answers arrive, each look has a share of that
probability; the shares sum to at most 1. The p-value of a pair is the smallest p / share over its
looks. For two equals it is p or less with probability at most p, whatever the dependence of the
looks and whatever the reason for asking further items after a look.

Sources: Holm (1979), Scandinavian Journal of Statistics 6, section 5 for the shares; Pocock (1977),
Biometrika 64, for tests in groups of answers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, groupby, pairwise
from statistics import NormalDist

import numpy as np

from app.engine.models.base import BoolArray
from app.engine.prediction.ability import Stated
from app.errors import InvalidInputError

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Look:
    """The evidence of one comparison of all examinees.

    Attributes:
        evidence: Stated ability of each examinee; None if it has not reached this look.
        share: Share of the error probability that this look has, in (0, 1].
    """

    evidence: Sequence[Stated | None]
    share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two examinees by position, the one with the higher theta first.

    Attributes:
        above: Position with the higher theta (the lower position if they are equal).
        z: Largest difference at any look, in standard errors; 0 without evidence, or if its sign
            is opposite to that of the thetas.
        p_above: Posterior probability that `above` is truly above, from normal posteriors.
        p_value: Upper bound of the probability that two equals differ by so much, in either
            direction, at any look.
        decided: Whether the order is settled, by this pair or through a third examinee.
    """

    above: int
    below: int
    z: float
    p_above: float
    p_value: float
    decided: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WeakOrder:
    """An order that admits ties: a weak order.

    Attributes:
        order: Positions by falling theta or score.
        groups: Tie groups: `order`, cut where it is decided.
        rank_ranges: Best and worst rank (1 is best) of each position that the decided pairs allow.
    """

    order: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    rank_ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks(WeakOrder):
    """An order with all its pairs. Groups are cut between neighbours whose order is decided."""

    pairs: tuple[Pair, ...]

    @property
    def ties(self) -> tuple[tuple[int, ...], ...]:
        """Tie groups of more than one examinee."""
        return tuple(group for group in self.groups if len(group) > 1)

    @property
    def neighbours(self) -> tuple[Pair, ...]:
        """The pairs of examinees next to each other in `order`."""
        adjacent = set(pairwise(self.order))
        return tuple(pair for pair in self.pairs if (pair.above, pair.below) in adjacent)


def ranks_of(
    abilities: Sequence[Stated],
    *,
    looks: Sequence[Look] | None = None,
    confidence: float = 0.95,
    holm: bool = False,
    either_way: bool = False,
) -> Ranks:
    """Order, pairs, tie groups and rank ranges of examinees on one scale.

    The abilities, with an infinite error for an examinee without answers, give the order and its
    posterior probability; the looks decide, by default one at these abilities. The order of a pair
    is wrong with probability 1 - confidence at most. By Holm's correction, the confidence holds for
    all pairs together. `either_way` bounds both directions together by 1 - confidence: equals are
    separated with at most that probability.

    Raises:
        InvalidInputError: There is no examinee, or a number is not finite.
    """
    if not abilities:
        raise InvalidInputError("A standing needs at least one examinee, got none.")
    for stated in abilities:
        if not (math.isfinite(stated.theta) and math.isfinite(stated.middle) and stated.own >= 0):
            raise InvalidInputError(
                f"A standing needs finite thetas and standard errors of at least 0, got {stated}."
            )
    n_examinees, looks = len(abilities), [Look(abilities)] if looks is None else looks
    order = sorted(range(n_examinees), key=lambda i: -abilities[i].theta)
    compared = list(combinations(order, 2))
    evidence = [_seen(looks, above, below) for above, below in compared]
    p_values = [p for _, p in evidence]
    alpha = 1.0 - confidence
    least = alpha if either_way else 2 * alpha
    settled = _holm(p_values, alpha) if holm else [p <= least for p in p_values]
    is_above = np.zeros((n_examinees, n_examinees), dtype=np.bool_)
    for (above, below), decided in zip(compared, settled, strict=True):
        is_above[above, below] = decided
    is_above = _closed(is_above)
    pairs = tuple(
        Pair(
            above=above,
            below=below,
            z=z,
            p_above=_NORMAL.cdf(abilities[above].minus(abilities[below]).z),
            p_value=p_value,
            decided=bool(is_above[above, below]),
        )
        for (above, below), (z, p_value) in zip(compared, evidence, strict=True)
    )
    return Ranks(
        order=tuple(order),
        pairs=pairs,
        groups=_groups(order, is_above),
        rank_ranges=_rank_ranges(is_above),
    )


def weak_order(values: Sequence[float], is_above: BoolArray) -> WeakOrder:
    """Order, tie groups and rank ranges where it is known which pairs are decided.

    Pairs that are decided through a third examinee alone stay open. Examinees of different groups
    are all told apart; within a group some are not.

    `is_above` says whether the examinee of a row is decided to be above that of a column.
    """
    order = sorted(range(len(values)), key=lambda i: -values[i])
    sorted_ = is_above[np.ix_(order, order)]
    # A cut needs every pair across it: for each row, where its undecided columns end.
    last_open = np.where(sorted_, -1, np.arange(len(order))).max(axis=1)
    starts = np.flatnonzero(np.maximum.accumulate(last_open) < np.arange(1, len(order) + 1))
    return WeakOrder(
        order=tuple(order),
        groups=tuple(tuple(order[a:b]) for a, b in pairwise([0, *(starts + 1).tolist()])),
        rank_ranges=_rank_ranges(is_above),
    )


def _rank_ranges(is_above: BoolArray) -> tuple[tuple[int, int], ...]:
    """Best and worst rank of each position."""
    better, worse = is_above.sum(axis=0).tolist(), is_above.sum(axis=1).tolist()
    return tuple(
        (1 + above, len(is_above) - below) for above, below in zip(better, worse, strict=True)
    )


def _seen(looks: Sequence[Look], above: int, below: int) -> tuple[float, float]:
    """The largest z of a pair over its looks, and the p-value of the pair."""
    z, p_value = 0.0, 1.0
    for look in looks:
        first, second = look.evidence[above], look.evidence[below]
        if first is not None and second is not None:
            distance = max(first.minus(second).least_z, 0.0)
            z = max(z, distance)
            p_value = min(p_value, math.erfc(distance / math.sqrt(2)) / look.share)
    return z, p_value


def _holm(p_values: Sequence[float], alpha: float) -> list[bool]:
    """Whether Holm's step-down procedure rejects each hypothesis."""
    rejected = [False] * len(p_values)
    for step, position in enumerate(sorted(range(len(p_values)), key=lambda k: p_values[k])):
        if p_values[position] > alpha / (len(p_values) - step):
            break
        rejected[position] = True
    return rejected


def _closed(is_above: BoolArray) -> BoolArray:
    """Transitive closure of the relation (Warshall 1962)."""
    for k in range(len(is_above)):
        is_above = is_above | (is_above[:, k, None] & is_above[None, k, :])
    return is_above


def _groups(order: Sequence[int], is_above: BoolArray) -> tuple[tuple[int, ...], ...]:
    cuts = np.cumsum([0, *(is_above[a, b] for a, b in pairwise(order))])
    grouped = groupby(zip(cuts.tolist(), order, strict=True), key=lambda pair: pair[0])
    return tuple(tuple(position for _, position in group) for _, group in grouped)
