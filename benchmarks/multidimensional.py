"""Time to fit several abilities to few examinees and very many items, and to select an item.

    python benchmarks/multidimensional.py [--examinees 65] [--items 109564] [--dimensions 4]

Simulates answers of the nested model, fits it, and times one choice of an item: by the abilities'
covariance, and by the covariance of the scores.
"""

import argparse
import os
import resource
import sys
import time

# As on servers: for small products threads wait for each other longer than they work.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from app.calibration.multidimensional.fit import fit_multidimensional
from app.calibration.multidimensional.score_model import covariance_model
from app.calibration.multidimensional.settings import MultidimensionalSettings
from app.engine.adaptive import AdaptiveTest
from app.engine.bank import ItemBank, ItemIndex
from app.engine.design.design import Design
from app.engine.models.multidimensional import MultidimensionalModel
from app.engine.prediction.score_model import Target
from app.engine.state import Response

STEPS = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--examinees", type=int, default=65)
    parser.add_argument("--items", type=int, default=109_564)
    parser.add_argument("--dimensions", type=int, default=4)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    n, j, k = arguments.examinees, arguments.items, arguments.dimensions
    general, special = rng.normal(size=(n, 1)), rng.normal(size=(n, k))
    loadings = rng.normal(size=(j, k)) * (rng.random((j, k)) < 0.4)
    logit = rng.lognormal(0.0, 0.3, j) * (general + special @ loadings.T - rng.normal(size=j))
    chance = 1 / (1 + np.exp(-logit))
    scores = (rng.random((n, j)) < chance).astype(np.float64)
    print(f"{n} x {j} answers, nested model, {k} dimensions")
    started = time.perf_counter()
    fit = fit_multidimensional(scores, MultidimensionalSettings(dimensions=k), rng)
    print(f"fit: {time.perf_counter() - started:.0f} s, {fit.iterations} iterations, {fit.method}")
    print(f"held-out log-likelihood of an answer: {fit.compared}")
    left = np.linalg.qr(fit.abilities - fit.abilities.mean(axis=0))[0]
    truth = np.column_stack([general, special])
    right = np.linalg.qr(truth - truth.mean(axis=0))[0]
    agreement = np.linalg.svd(left.T @ right, compute_uv=False)
    print(f"canonical correlations with the true abilities: {np.round(agreement, 3)}")
    ids = [str(i) for i in range(j)]
    bank = ItemBank.from_abilities(MultidimensionalModel(fit.items, fit.population), ids)
    started = time.perf_counter()
    model = covariance_model(scores, 0.2)
    target = Target(model, np.full(j, 1 / j))
    print(f"covariance of the scores: {time.perf_counter() - started:.1f} s")
    design = Design.from_dict(
        {"selection": {"criterion": "v_optimal"}, "stopping": {"score_margin": None}}
    )
    report("abilities' covariance", design.build(bank), scores[0])
    report("scores' covariance", design.build(bank, targets={"all": target}), scores[0])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"peak memory: {peak / (2**20 if sys.platform == 'darwin' else 2**10):.0f} MB")


def report(what: str, test: AdaptiveTest, row: np.ndarray) -> None:
    state = test.start()
    asking, telling = [], []
    for step in range(STEPS):
        started = time.perf_counter()
        item = test.selector.select(test.pool, state, np.random.default_rng(step))
        asking.append(time.perf_counter() - started)
        if item is None:
            break
        started = time.perf_counter()
        state = state.with_pending(ItemIndex(item))
        state = test.tell(state, Response(ItemIndex(item), float(row[item])))
        telling.append(time.perf_counter() - started)
    print(
        f"{what}: choosing {1000 * np.median(asking):.2f} ms (median of {STEPS}), "
        f"updating {1000 * np.median(telling):.2f} ms"
    )


if __name__ == "__main__":
    main()
