"""Banks for tests of the adaptive engine."""

import numpy as np

from app.engine.bank import ItemBank


def random_bank(seed: int, n_items: int, *, steepness: float = 0.4) -> ItemBank:
    """A 4PL bank with a tenth of its slopes negative and some items exactly alike."""
    rng = np.random.default_rng(seed)
    a = rng.lognormal(0.2, steepness, n_items) * rng.choice([1.0, -1.0], n_items, p=[0.9, 0.1])
    c = rng.uniform(0.0, 0.4, n_items) * rng.integers(0, 2, n_items)
    d = 1.0 - rng.uniform(0.0, 0.3, n_items) * rng.integers(0, 2, n_items)
    b = rng.normal(0.0, 1.5, n_items)
    twins = rng.integers(0, n_items, n_items // 5)
    for values in (a, b, c, d):
        values[: twins.size] = values[twins]
    return ItemBank.from_difficulties(a=a, b=b, c=c, d=d)


def clean_bank(seed: int, n_items: int) -> ItemBank:
    """A 2PL bank as one would wish it."""
    rng = np.random.default_rng(seed)
    return ItemBank.from_difficulties(
        a=rng.lognormal(0.1, 0.3, n_items), b=rng.normal(0.0, 1.0, n_items)
    )
