"""Random item banks for tests of the adaptive engine."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from hypothesis import strategies as st

from app.engine.bank import FloatArray, ItemBank
from app.engine.models.base import ItemParameters
from app.engine.models.continuous import CONTINUOUS
from app.engine.models.logistic import LOGISTIC
from app.engine.models.multidimensional import Loadings, MultidimensionalModel, Population

Kind = Literal["logistic", "continuous"]
KINDS: tuple[Kind, ...] = ("logistic", "continuous")


def random_bank(
    seed: int, n_items: int, *, steepness: float = 0.4, kind: Kind = "logistic"
) -> ItemBank:
    """Return a bank where a tenth of the slopes are negative and some items are identical.

    Logistic banks are 4PL; continuous items have their own ranges and dispersions.
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
    """Return a well-behaved 2PL bank, or one of continuous scores in [0, 1]."""
    rng = np.random.default_rng(seed)
    a, b = rng.lognormal(0.1, 0.3, n_items), rng.normal(0.0, 1.0, n_items)
    return ItemBank.from_difficulties(a=a, b=b, k=_dispersions(a, kind))


def several(seed: int, *, n_items: int = 30, dimensions: int = 3, nested: bool = True) -> ItemBank:
    """Return a bank of several abilities, with their population."""
    rng = np.random.default_rng(seed)
    items = Loadings(
        rng.lognormal(0.0, 0.3, n_items),
        rng.normal(size=n_items),
        rng.normal(size=(n_items, dimensions)),
        nested,
    )
    d = items.n_abilities
    root = rng.normal(size=(d, d)) / d**0.5
    population = Population(0.3 * rng.normal(size=d), root @ root.T + 0.3 * np.eye(d))
    ids = [str(i) for i in range(n_items)]
    return ItemBank.from_abilities(MultidimensionalModel(items, population), ids)


def _dispersions(a: FloatArray, kind: Kind) -> FloatArray | None:
    """Return dispersions from 0.05 to 0.4; items with the same slope have the same dispersion."""
    return None if kind == "logistic" else 0.05 + 0.35 * np.modf(1e3 * np.abs(a))[0]


def parameters(*values: float) -> ItemParameters:
    """Return the parameters of one item."""
    return ItemParameters(*(np.float64(value) for value in values))  # type: ignore[arg-type]  # scalars broadcast


def slope_of(function: Callable[[float], Any], theta: float) -> float:
    """Return the numeric derivative at `theta` by central differences of fourth order."""
    h = 1e-4
    return float(
        (8 * (function(theta + h) - function(theta - h)) - function(theta + 2 * h))
        + function(theta - 2 * h)
    ) / (12 * h)


SLOPES = st.floats(-5, 5).filter(lambda a: abs(a) > 0.05)


@st.composite
def logistic_items(draw: st.DrawFn) -> ItemParameters:
    """Draw items of the 2PL, 3PL or 4PL model."""
    a = draw(SLOPES)
    c = draw(st.one_of(st.just(0.0), st.floats(0.001, 0.5)))
    d = draw(st.one_of(st.just(1.0), st.floats(0.6, 0.999)))
    return parameters(a, -a * draw(st.floats(-6, 6)), c, d)


@st.composite
def continuous_items(draw: st.DrawFn) -> ItemParameters:
    """Draw items with continuous scores."""
    a = draw(SLOPES)
    c, d = draw(st.floats(0.0, 0.4)), draw(st.floats(0.6, 1.0))
    return parameters(a, -a * draw(st.floats(-6, 6)), c, d, draw(st.floats(0.01, 1.5)))


#: A response model and an item of it.
ANY_ITEM = st.one_of(
    st.tuples(st.just(LOGISTIC), logistic_items()),
    st.tuples(st.just(CONTINUOUS), continuous_items()),
)
