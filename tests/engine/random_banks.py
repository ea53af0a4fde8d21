"""Banks for tests of the adaptive engine."""

from typing import Literal

import numpy as np

from app.engine.bank import FloatArray, ItemBank

Kind = Literal["logistic", "continuous"]
KINDS: tuple[Kind, ...] = ("logistic", "continuous")


def random_bank(
    seed: int, n_items: int, *, steepness: float = 0.4, kind: Kind = "logistic"
) -> ItemBank:
    """A bank with a tenth of its slopes negative and some items exactly alike.

    Logistic ones are 4PL; continuous ones have ranges and dispersions of their own.
    """
    rng = np.random.default_rng(seed)
    a = rng.lognormal(0.2, steepness, n_items) * rng.choice([1.0, -1.0], n_items, p=[0.9, 0.1])
    c = rng.uniform(0.0, 0.4, n_items) * rng.integers(0, 2, n_items)
    d = 1.0 - rng.uniform(0.0, 0.3, n_items) * rng.integers(0, 2, n_items)
    b = rng.normal(0.0, 1.5, n_items)
    twins = rng.integers(0, n_items, n_items // 5)
    for values in (a, b, c, d):
        values[: twins.size] = values[twins]
    return ItemBank.from_difficulties(a=a, b=b, c=c, d=d, k=_dispersions(a, kind))


def clean_bank(seed: int, n_items: int, *, kind: Kind = "logistic") -> ItemBank:
    """A 2PL bank as one would wish it, or one of continuous scores in [0, 1]."""
    rng = np.random.default_rng(seed)
    a, b = rng.lognormal(0.1, 0.3, n_items), rng.normal(0.0, 1.0, n_items)
    return ItemBank.from_difficulties(a=a, b=b, k=_dispersions(a, kind))


def _dispersions(a: FloatArray, kind: Kind) -> FloatArray | None:
    """Dispersions from 0.05 to 0.4; items with the same slope have the same."""
    return None if kind == "logistic" else 0.05 + 0.35 * np.modf(1e3 * np.abs(a))[0]
