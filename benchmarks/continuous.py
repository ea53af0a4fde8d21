"""Accuracy of tests with continuous scores, on simulated examinees.

    .venv/bin/python benchmarks/continuous.py

Adaptive tests of 30 items by the default design, on a bank of 500 items. Examinees are drawn from
N(0, 1); their scores have the mean and variance of the model and one of three shapes: beta, grades
in steps (a judge's marks), or normal scores cut off at 0 and 1, which the model does not have. Then
the same on banks calibrated from a few examinees.
"""

import argparse
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from app.calibration.continuous.calibrate import calibrate_continuous
from app.calibration.continuous.moments import calibrate_by_moments
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.estimation.batch import estimate_many
from app.engine.estimation.estimators import EstimatorName, GridEstimator
from app.engine.models.continuous import CONTINUOUS
from app.engine.responses import ResponseTable
from app.engine.simulation.simulate import simulate, summarise

N_ITEMS, LENGTH = 500, 30

Draw = Callable[[ItemBank, FloatArray, np.random.Generator], FloatArray]


def make_bank(seed: int) -> ItemBank:
    rng = np.random.default_rng(seed)
    return ItemBank.from_difficulties(
        a=rng.lognormal(0.0, 0.3, N_ITEMS),
        b=rng.normal(0.0, 1.0, N_ITEMS),
        k=1 / rng.integers(4, 15, N_ITEMS),
    )


def beta(bank: ItemBank, thetas: FloatArray, rng: np.random.Generator) -> FloatArray:
    return np.array([CONTINUOUS.draw_scores(bank.parameters, theta, rng) for theta in thetas])


def grades(bank: ItemBank, thetas: FloatArray, rng: np.random.Generator) -> FloatArray:
    steps = np.round(1 / bank.k).astype(int)
    shares: FloatArray = rng.binomial(steps, bank.expected_score(thetas)) / steps
    return shares


def cut_normal(bank: ItemBank, thetas: FloatArray, rng: np.random.Generator) -> FloatArray:
    mean = bank.expected_score(thetas)
    sd = np.sqrt(CONTINUOUS.score_moments(bank.parameters, thetas[:, None])[1])
    return np.clip(rng.normal(mean, sd), 0.0, 1.0)


SHAPES: dict[str, Draw] = {"beta": beta, "grades": grades, "cut normal": cut_normal}


def tested(bank: ItemBank, scores: FloatArray, thetas: FloatArray) -> list[str]:
    design = Design.from_dict(
        {"preset": "ability", "stopping": {"se": None, "min_items": 1, "max_items": LENGTH}}
    )
    test = design.build(bank)
    summary = summarise(simulate(test, scores, seed=1), thetas, test)
    return [
        f"{summary.theta_bias:+.4f}",
        f"{summary.theta_rmse:.4f}",
        f"{summary.coverage95:.1%}",
        f"{summary.accuracy_mae:.4f}",
        f"{summary.accuracy_coverage95:.1%}",
    ]


def inverse_variance(bank: ItemBank, draw: Draw, n: int, rng: np.random.Generator) -> str:
    """Return variance of the MLE at theta 0.5 times information, over the 40 nearest items."""
    nearest = np.argsort(np.abs(bank.b - 0.5))[:40]
    p = bank.parameters.take(nearest)
    part = ItemBank.from_intercepts(a=p.a, intercept=p.intercept, k=p.k)
    scores = draw(part, np.full(n, 0.5), rng)
    found = [
        belief.theta
        for block in estimate_many(part, scores, GridEstimator(method=EstimatorName.MLE))
        for belief in block.beliefs
    ]
    return f"{np.var(found) * float(part.information(0.5).sum()):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examinees", type=int, default=2_000)
    n = parser.parse_args().examinees
    console = Console()
    bank, rng = make_bank(1), np.random.default_rng(2)
    thetas = rng.normal(size=n)
    columns = ("bias", "RMSE", "coverage", "score MAE", "score coverage")
    table = Table("scores", *columns, "variance x information", title=f"{n} tests, known items")
    for name, draw in SHAPES.items():
        row = tested(bank, draw(bank, thetas, rng), thetas)
        table.add_row(name, *row, inverse_variance(bank, draw, n, rng))
    console.print(table)
    table = Table("calibrated from", "by", *columns, title="calibrated items, beta scores")
    for n_examinees in (8, 30, 100, 400):
        sample = rng.normal(size=n_examinees)
        sample = (sample - sample.mean()) / sample.std()  # without the sampling error of the scale
        names = tuple(map(str, range(n_examinees)))
        answers = ResponseTable(names, bank.item_ids, beta(bank, sample, rng))
        scores = beta(bank, thetas, rng)
        for by, found in (
            ("likelihood", calibrate_continuous(answers)),
            ("moments", calibrate_by_moments(answers)),
        ):
            table.add_row(str(n_examinees), by, *tested(found.bank, scores, thetas))
    console.print(table)


if __name__ == "__main__":
    main()
