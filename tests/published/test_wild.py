"""Eq. 6, 9, 14 and 15 of the WILD study, coded directly to check criterion and baseline."""

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.special import expit

from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.models.multidimensional import Loadings, MultidimensionalModel, Population
from app.engine.multidimensional import ProfileBelief
from app.engine.selection.design import AbilityDesign, Optimality
from app.engine.simulation.simulate import draw_scores, take
from app.engine.state import CatState

N_ITEMS, N_ASKED = 90, 12
RNG = np.random.default_rng(3)
A = RNG.lognormal(0.1, 0.4, N_ITEMS)
DELTA = RNG.normal(size=N_ITEMS)
K = 0.8 * RNG.normal(size=(N_ITEMS, 2))
ROOT = RNG.normal(size=(3, 3)) / 2
MU, SIGMA = 0.2 * RNG.normal(size=3), ROOT @ ROOT.T + 0.4 * np.eye(3)
#: Eq. 7: the loading on the general ability is 1.
LOADINGS = np.column_stack([np.ones(N_ITEMS), K])
BANK = ItemBank.from_abilities(
    MultidimensionalModel(Loadings(A, -A * DELTA, K, nested=True), Population(MU, SIGMA)),
    [str(j) for j in range(N_ITEMS)],
)
IS_LAW = np.arange(N_ITEMS) % 3 == 0
TAGS = tuple(frozenset({"law" if law else "maths"}) for law in IS_LAW)


def map_abilities(asked: Sequence[int], scores: FloatArray) -> FloatArray:
    """Eq. 9: return the mode of the prior N(mu, Sigma) times the likelihood, by Newton steps."""
    theta, asked = MU.copy(), list(asked)
    slopes = A[asked, None] * LOADINGS[asked]
    precision = np.linalg.inv(SIGMA)
    for _ in range(50):
        p = expit(slopes @ theta - A[asked] * DELTA[asked])
        gradient = slopes.T @ (scores[asked] - p) - precision @ (theta - MU)
        hessian = precision + slopes.T @ ((p * (1 - p))[:, None] * slopes)
        theta = theta + np.linalg.solve(hessian, gradient)
    return np.asarray(theta)


def covariance(asked: Sequence[int], w: FloatArray) -> FloatArray:
    """Eq. 14: start from Sigma and update it for one answer after the other."""
    c = SIGMA.copy()
    for x in asked:
        k = LOADINGS[x]
        c = c - w[x] * A[x] ** 2 * np.outer(c @ k, k @ c) / (1 + w[x] * A[x] ** 2 * (k @ c @ k))
    return c


def eq_6(c: FloatArray, w: FloatArray, target: FloatArray) -> FloatArray:
    """Return s_x of each item, divided by the size of the target."""
    m = sum(A[t] ** 2 * np.outer(LOADINGS[t], LOADINGS[t]) for t in np.flatnonzero(target))
    found = np.empty(N_ITEMS)
    for x in range(N_ITEMS):
        c_x = c @ LOADINGS[x]
        worth = w[x] * A[x] ** 2 * (c_x @ m @ c_x)
        found[x] = worth / (1 + w[x] * A[x] ** 2 * (LOADINGS[x] @ c_x))
    return found / np.count_nonzero(target)


@pytest.mark.parametrize("is_asked", [True, False], ids=["a task asked", "a task never asked"])
def test_each_step_follows_eq_6(is_asked: bool) -> None:
    design = {
        "selection": {"criterion": "v_optimal_loadings", "target": {"law": 1.0}},
        "stopping": {"max_items": N_ASKED, "score_margin": None},
        "prediction": {"method": "p-irt"},
    }
    active = None if is_asked else ~IS_LAW
    test = Design.from_dict(design).build(BANK, tags=TAGS, active=active)
    criterion = AbilityDesign(optimality=Optimality.V_LOADINGS, weights=IS_LAW / IS_LAW.sum())
    rng = np.random.default_rng(8)
    asked_of: set[tuple[int, ...]] = set()
    for i, scores in enumerate(draw_scores(BANK, rng.normal(size=6), rng)):
        states: list[CatState] = [test.start()]
        state, _ = take(test, scores, seed=[i], watch=states.append)
        items = [one.item for one in state.responses]
        for before, item in zip(states, items, strict=False):
            asked = [one.item for one in before.responses]
            assert isinstance(before.belief, ProfileBelief)
            theta, c = before.belief.profile.mean, before.belief.profile.covariance
            p = expit(A * (LOADINGS @ theta - DELTA))
            # Rounding decides the last step, so it is not compared.
            assert theta == pytest.approx(map_abilities(asked, scores), abs=1e-7)
            assert c == pytest.approx(covariance(asked, p * (1 - p)), abs=1e-7)
            by_hand = eq_6(c, p * (1 - p), IS_LAW)
            assert criterion.values(test.pool, before) == pytest.approx(by_hand, abs=1e-9)
            open_to = np.ones(N_ITEMS, dtype=bool) if is_asked else ~IS_LAW
            open_to[asked] = False
            assert item == np.where(open_to, by_hand, -1.0).argmax()
        asked_of.add(tuple(items))
    assert len(asked_of) > 1  # the items depend on the answers
