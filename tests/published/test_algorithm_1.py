"""The preset of ATLAS, compared with its Algorithm 1 coded directly."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.simulation.simulate import draw_scores, take
from app.engine.state import CatState

N_ITEMS, N_EXAMINEES = 300, 50
NODES = np.linspace(-8.0, 8.0, 4001)
PRIOR = np.exp(-0.5 * NODES**2)


def drawn() -> tuple[FloatArray, FloatArray, FloatArray]:
    """Draw slopes, difficulties and guessing of a 3PL bank with some negative slopes."""
    rng = np.random.default_rng(5)
    a = rng.lognormal(0.2, 0.4, N_ITEMS) * np.where(rng.random(N_ITEMS) < 0.05, -1.0, 1.0)
    return a, rng.normal(size=N_ITEMS), rng.uniform(0.0, 0.3, N_ITEMS)


A, B, C = drawn()
BANK = ItemBank.from_difficulties(a=A, b=B, c=C)


def chance(theta: FloatArray | float) -> FloatArray:
    """Return P_i(theta) of eq. 1, shape (n_items, n_thetas)."""
    logit = A[:, None] * (np.atleast_1d(theta) - B[:, None])
    p: FloatArray = C[:, None] + (1.0 - C[:, None]) / (1.0 + np.exp(-logit))
    return p


def information(theta: float, form: str) -> FloatArray:
    """Return 3PL information (P')^2 / (P (1 - P)), or a^2 P (1 - P) as eq. 2 is printed."""
    p = chance(theta)[:, 0]
    if form == "printed":
        return A**2 * p * (1.0 - p)
    slope = A * (p - C) * (1.0 - p) / (1.0 - C)
    return slope**2 / (p * (1.0 - p))


AT_NODES = chance(NODES)


def algorithm_1(
    answers: FloatArray, seed: tuple[int, int], tau: float, form: str
) -> tuple[list[int], list[float], float]:
    """Return the items asked, theta after each, and the last standard error."""
    record: list[int] = []
    thetas, theta, se = [], 0.0, np.inf
    likelihood = PRIOR.copy()
    while len(record) < 500 and not (len(record) >= 30 and se <= tau):
        left = np.setdiff1d(np.arange(N_ITEMS), record)
        if not left.size:
            break
        if not record:
            item = left[np.abs(B[left] - 0.0).argmin()]
        else:
            best = left[np.argsort(-information(theta, form)[left], kind="stable")[:5]]
            rng = np.random.default_rng([*seed, len(record) + 1])
            item = best[rng.integers(len(best))]
        record.append(int(item))
        likelihood *= AT_NODES[item] if answers[item] else 1.0 - AT_NODES[item]
        theta = float(likelihood @ NODES / likelihood.sum())
        thetas.append(theta)
        se = 1.0 / np.sqrt(information(theta, form)[record].sum())
    return record, thetas, float(se)


def noted(thetas: list[float], state: CatState) -> None:
    thetas.append(state.belief.theta)


@pytest.mark.parametrize("form", ["model", "printed"])
def test_the_preset_selects_and_estimates_as_the_algorithm(form: str) -> None:
    design: dict[str, Any] = {
        "preset": "atlas",
        "stopping": {"se": 0.2},
        "estimator": {"information": form},
    }
    test = Design.from_dict(design).build(BANK)
    abilities = np.random.default_rng(1).normal(size=N_EXAMINEES)
    rows = draw_scores(BANK, abilities, np.random.default_rng(2))
    lengths = set()
    for row, scores in enumerate(rows):
        thetas: list[float] = []
        state, _ = take(
            test,
            scores,
            seed=[7, row],
            watch=partial(noted, thetas),
        )
        items, by_hand, se = algorithm_1(scores, (7, row), 0.2, form)
        assert [one.item for one in state.responses] == items
        assert thetas == pytest.approx(by_hand, abs=1e-9)
        assert state.belief.se == pytest.approx(se, abs=1e-9)
        lengths.add(len(items))
    assert len(lengths) > 1  # the tests end at more than the minimum number of items


def test_the_published_rule_predicts_falling_items_by_their_guessing() -> None:
    design = {"preset": "atlas", "stopping": {"max_items": 30}}
    published = Design.from_dict({**design, "prediction": {"method": "p-irt-c"}}).build(BANK)
    scores = next(iter(draw_scores(BANK, np.array([0.7]), np.random.default_rng(3))))
    state, _ = take(published, scores, seed=[1, 0])
    asked = [one.item for one in state.responses]
    expected = np.where(A > 0, chance(state.belief.theta)[:, 0], C)
    expected[asked] = scores[asked]
    assert published.predict(state).value == pytest.approx(expected.mean(), abs=1e-12)
