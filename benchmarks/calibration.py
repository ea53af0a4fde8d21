"""Time for a whole 3PL bank, its growth, and the time of girth and py-irt in the same run.

Every line is a separate process, so that its peak memory is its own. The peers get a size they can
handle; all parameters are compared by one marginal log-likelihood, on 61 nodes over [-6, 6].

    uv run python benchmarks/calibration.py [--examinees 3467] [--items 5600] [--peer 1000 200]
        [--growth/--no-growth] [--full/--no-full]
"""

import argparse
import importlib.util
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit

from app.calibration.logistic.calibrate import CalibrationSettings, calibrate
from app.calibration.logistic.curves import Family
from app.calibration.logistic.expectation import LatentDensity, expect
from app.calibration.logistic.priors import Priors
from app.calibration.matrix import ScoreMatrix
from app.engine.models.base import ItemParameters

ROWS_AT_ONCE = 256
Row = dict[str, Any]


def simulated(n_examinees: int, n_items: int) -> tuple[ScoreMatrix, ItemParameters, Any]:
    """Simulate answers to a 3PL bank without constant or nearly constant items."""
    rng = np.random.default_rng(20260101)
    a = rng.lognormal(0.2, 0.4, n_items)
    b = np.clip(rng.normal(0.0, 1.2, n_items), -2.5, 2.5)
    c = rng.beta(6, 20, n_items)
    items = ItemParameters(a, -a * b, c, np.ones(n_items))
    theta = rng.normal(size=n_examinees)
    scores = np.empty((n_examinees, n_items), dtype=np.uint8)
    for start in range(0, n_examinees, ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        p = c + (1 - c) * expit(theta[rows, None] * a + items.intercept)
        scores[rows] = rng.random(p.shape) < p
    return ScoreMatrix.of(scores), items, theta


def sextant(n_examinees: int, n_items: int, for_peers: str = "") -> Row:
    """Run Sextant with its defaults; beside the peers without standard errors, which they lack."""
    matrix, truth, theta = simulated(n_examinees, n_items)
    settings = CalibrationSettings(
        family=Family.THREE_PL,
        priors=Priors.none() if for_peers == "maximum likelihood" else None,
        with_errors=not for_peers,
    )
    started = time.perf_counter()
    result = calibrate(matrix, settings)
    seconds = time.perf_counter() - started
    estimated = result.thetas(matrix)
    return {
        "what": f"sextant, {for_peers}" if for_peers else "sextant",
        "seconds": seconds,
        "cycles": result.cycles,
        "nodes": len(result.density.nodes),
        "converged": result.converged,
        "log_likelihood": _log_likelihood(matrix, result.items),
        "r_a": float(np.corrcoef(np.log(result.items.a), np.log(truth.a))[0, 1]),
        "r_b": float(np.corrcoef(result.b, -truth.intercept / truth.a)[0, 1]),
        "r_theta": float(np.corrcoef(estimated, theta)[0, 1]),
    }


def girth(n_examinees: int, n_items: int) -> Row:
    from girth import threepl_mml
    from scipy.optimize import fminbound

    # By its full name, since the package also has a function called rasch_mml.
    rasch_mml = sys.modules["girth.unidimensional.dichotomous.rasch_mml"]

    # girth puts one-element arrays into array cells, which numpy refuses since 2.4.
    rasch_mml.fminbound = lambda f, *rest, **options: float(
        np.squeeze(fminbound(lambda x: float(np.squeeze(f(x))), *rest, **options))
    )
    matrix, truth, _ = simulated(n_examinees, n_items)
    started = time.perf_counter()
    found = threepl_mml(matrix.scores.T.astype(bool))
    seconds = time.perf_counter() - started
    a, b, c = found["Discrimination"], found["Difficulty"], found["Guessing"]
    items = ItemParameters(a, -a * b, c, np.ones_like(a))
    return {
        "what": "girth",
        "seconds": seconds,
        "log_likelihood": _log_likelihood(matrix, items),
        "r_a": float(np.corrcoef(np.log(a), np.log(truth.a))[0, 1]),
        "r_b": float(np.corrcoef(b, -truth.intercept / truth.a)[0, 1]),
    }


def py_irt(n_examinees: int, n_items: int) -> Row:
    import tempfile

    from py_irt.config import IrtConfig
    from py_irt.dataset import Dataset
    from py_irt.training import IrtModelTrainer

    matrix, truth, _ = simulated(n_examinees, n_items)
    with tempfile.NamedTemporaryFile("w", suffix=".jsonlines") as file:
        for i, row in enumerate(matrix.scores):
            answers = ", ".join(f'"{j}": {score}' for j, score in enumerate(row))
            file.write(f'{{"subject_id": "{i}", "responses": {{{answers}}}}}\n')
        file.flush()
        dataset = Dataset.from_jsonlines(file.name)
    trainer = IrtModelTrainer(
        config=IrtConfig(model_type="3pl", epochs=2000), data_path=None, dataset=dataset
    )
    started = time.perf_counter()
    trainer.train(device="cpu")
    seconds = time.perf_counter() - started
    best = trainer.best_params
    order = np.argsort([int(best["item_ids"][k]) for k in range(n_items)])
    a, b, c = (np.array(best[key])[order] for key in ("disc", "diff", "lambdas"))
    items = ItemParameters(a, -a * b, c, np.ones_like(a))
    return {
        "what": "py-irt",
        "seconds": seconds,
        "log_likelihood": _log_likelihood(matrix, items),
        "r_b": float(np.corrcoef(b, -truth.intercept / truth.a)[0, 1]),
    }


def _log_likelihood(matrix: ScoreMatrix, items: ItemParameters) -> float:
    return expect(matrix, items, LatentDensity.normal()).log_likelihood


def measured(task: Callable[..., Row], *arguments: object) -> Row:
    """Run a task in a new process; return its row with its peak memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_with_memory, (task, arguments))


def _with_memory(task: Callable[..., Row], arguments: tuple[object, ...]) -> Row:
    row = task(*arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"size": " x ".join(str(n) for n in arguments[:2]), **row, "peak_mb": peak}


def show(row: Row) -> None:
    parts = [
        f"{row['size']:>12}  {row['what']:<27} {row['seconds']:8.1f} s {row['peak_mb']:6.0f} MB"
    ]
    parts += [
        f"{name} {row[name]:.4g}" if name != "log_likelihood" else f"logL {row[name]:.1f}"
        for name in ("log_likelihood", "r_a", "r_b", "r_theta")
        if name in row
    ]
    if "cycles" in row:
        end = "" if row["converged"] else ", NOT converged"
        parts.append(f"{row['cycles']} cycles, {row['nodes']} nodes{end}")
    print("  ".join(parts), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examinees", type=int, default=3467)
    parser.add_argument("--items", type=int, default=5600)
    parser.add_argument("--peer", type=int, nargs=2, default=(1000, 200))
    parser.add_argument("--growth", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--full", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    n_examinees, n_items = options.examinees, options.items

    print("A size the peers can do")
    for estimator in ("weak priors", "maximum likelihood"):
        show(measured(sextant, *options.peer, estimator))
    for name, module, task in (("girth", "girth", girth), ("py-irt", "py_irt", py_irt)):
        if importlib.util.find_spec(module) is None:
            print(f"{name} is not installed")
        else:
            show(measured(task, *options.peer))
    if options.growth:
        print("Growth with items, then with examinees")
        for part in (8, 4, 2):
            show(measured(sextant, n_examinees // 4, n_items // part))
        for part in (8, 4, 2):
            show(measured(sextant, n_examinees // part, n_items // 4))
    if options.full:
        print("The whole matrix")
        show(measured(sextant, n_examinees, n_items))


if __name__ == "__main__":
    main()
