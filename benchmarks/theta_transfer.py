"""Accuracy of theta and the score in tests for theta, for models unlike the reference models.

    uv run python benchmarks/theta_transfer.py [--data ../shared/data/transfer] [--only NAME ...]

Every matrix of the folder is split as in `benchmarks/transfer.py`. The reference models are
calibrated as over REST, with a report card; each tested model takes the default test, answered from
its own row. Theta is compared with the weighted likelihood estimate from the whole row, on the same
bank. Items that all reference models have right, or all wrong, are left out.

Per split: coverage of the 95 % intervals of theta by the model, corrected without growth beyond the
reference models, and corrected, with their mean width in logits; mean absolute error, coverage and
width of the predicted score, by default, and by p-IRT and by score curves alone from the answers to
a test for theta, beside the width of the mean of as many random items (Wilson); and items to a
standard error of 0.3, which corrections do not change.

With --draws the bank is calibrated several times, from the second on without a random seventh of
the models. Figures are means over the draws of each tested model; the value after ± is their
standard error over the tested models, which are strongly correlated between draws.
"""

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from transfer import matrices, random_interval, splits

from app.calibration.filters import FilterSettings
from app.calibration.fit.held_out import held_out
from app.calibration.pipeline.fit import (
    CALIBRATORS,
    decided,
    fit,
    prepared,
    records_of,
    with_card,
)
from app.calibration.pipeline.plan import CalibrationPlan
from app.engine.bank import ItemBank
from app.engine.design.design import Design
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.knowledge import curves_of
from app.engine.prediction.correction import correction_in
from app.engine.prediction.score_estimate import Explanations, ScoreEstimator, prior_doubt
from app.engine.responses import ResponseTable
from app.engine.simulation.learning import LEAST_EXAMINEES
from app.engine.simulation.simulate import take

TO_TARGET = {"stopping": {"se": 0.3, "min_items": 5, "max_items": 160}}


def calibrated(known, model, *, card=True):
    """Return the knowledge of a published version of these models, and the items it has.

    Without the card it knows the same, but the card's designs are not simulated.
    """
    models, columns = known.shape
    examinees = tuple(f"m{i}" for i in range(models))
    plan = CalibrationPlan(model=model, filters=FilterSettings.none(), report_card=True)
    varied = [j for j in range(columns) if known[:, j].std() > 0.0]
    items = tuple(f"i{j}" for j in varied)
    matrix = prepared(ResponseTable(examinees, items, known[:, varied]), plan).matrix
    fitted = fit(matrix, plan, lambda _: None)
    plan = replace(plan, report_card=card)
    found = with_card(matrix, plan, fitted, lambda _: None, clock=time.perf_counter)
    bank = ItemBank.from_columns(matrix.items, found.columns)
    learned = correction_in(found.knowledge)
    if not card and len(known) >= LEAST_EXAMINEES:
        plan = decided(matrix, plan)
        shifted = CALIBRATORS[plan.model].shifted(matrix)
        records = records_of(matrix, plan, fitted, bank)
        learned = held_out(records, shifted=shifted, seed=plan.seed).correction()
    kept = [int(item[1:]) for item in matrix.items]
    return bank, learned, curves_of(bank, found.knowledge), kept


def holds(told, truth):
    return told.lo - 1e-12 <= truth <= told.hi + 1e-12


def one_draw(known, tested, model):
    """Return per tested model theta, score by method, length, and width for random items."""
    bank, learned, curves, kept = calibrated(known, model)
    tested = tested[:, kept]
    truth, _ = whole_bank_abilities(bank, tested)
    weights = np.full(bank.n_items, 1.0 / bank.n_items)
    level = learned
    level = replace(level, theta=replace(level.theta, beyond=None))
    plain = Design.from_dict({"prediction": {"method": "p-irt"}})
    tests = {
        "default": Design.from_dict({"preset": "ability"}).build(
            bank, correction=learned, curves=curves
        ),
        "p-irt": plain.build(bank, correction=learned, curves=curves),
    }
    explanations = Explanations(curves.curves, prior_doubt(curves.n_reference))
    alone = ScoreEstimator(explanations, weights)
    tests["curves"] = replace(tests["default"], predictor=alone)
    to_target = Design.from_dict(TO_TARGET).build(bank, correction=learned)
    thetas, scores, others = [], {name: [] for name in tests}, []
    for i, row in enumerate(tested):
        # Where answers cannot place a model, the default test continues with samples.
        state, plain_state = (take(tests[way], row, seed=[0, i])[0] for way in ("default", "p-irt"))
        length = take(to_target, row, seed=[1, i])[0].n_scored
        told = tests["default"].estimate(state)
        usual = level.of_estimate(state.belief.estimate(), state.n_scored)
        raw = replace(told, lo=told.raw[0], hi=told.raw[1])
        thetas.append([*(holds(one, truth[i]) for one in (raw, usual, told)), told.hi - told.lo])
        drawn = np.random.default_rng([2, i]).choice(row, state.n_scored, replace=False)
        _, lo, hi = random_interval(drawn[None])
        others.append([length, float((hi - lo)[0])])
        for name, test in tests.items():
            said, real = test.predict(state if name == "default" else plain_state), row.mean()
            scores[name].append((abs(said.value - real), holds(said, real), said.hi - said.lo))
    return np.hstack([thetas, *scores.values(), others]).astype(float)


def one_split(known, tested, model, draws):
    """Return means over the tested models, and standard errors; columns as of `one_draw`."""
    found = []
    for draw in range(draws):
        kept = np.arange(len(known))
        if draw:
            mixed = np.random.default_rng([3, draw]).permutation(kept)
            kept = np.sort(mixed[len(known) // 7 :])
        found.append(one_draw(known[kept], tested, model))
    of_each = np.mean(found, axis=0)
    return of_each.mean(axis=0), of_each.std(axis=0, ddof=1) / len(tested) ** 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/transfer"))
    parser.add_argument("--only", nargs="*", default=(), help="names of matrices; all by default")
    parser.add_argument("--splits", nargs="*", default=(), help="beginnings of their names")
    parser.add_argument("--models", type=int, default=1000, help="most models tested of a matrix")
    parser.add_argument("--model", default="2pl", help="response model")
    parser.add_argument("--draws", type=int, default=1, help="calibrations of each split")
    arguments = parser.parse_args()
    for name, scores in matrices(arguments.data, arguments.only):
        for split, (known, tested) in splits(scores).items():
            if arguments.splits and not split.startswith(tuple(arguments.splits)):
                continue
            most = min(len(tested), arguments.models)
            some = tested[np.linspace(0, len(tested) - 1, most).astype(int)]
            began = time.perf_counter()
            mean, error = one_split(scores[known], scores[some], arguments.model, arguments.draws)
            told = ", ".join(
                f"{way} {mean[at]:.3f} ({mean[at + 1]:.1%} ± {error[at + 1]:.1%}, "
                f"{mean[at + 2]:.2f})"
                for way, at in zip(("default", "p-irt", "curves"), (4, 7, 10), strict=True)
            )
            print(
                f"{name}, {split}, {most} models: theta {mean[0]:.0%} by the model, {mean[1]:.0%} "
                f"level, {mean[2]:.1%} ± {error[2]:.1%} corrected ({mean[3]:.2f}); score {told}, "
                f"random {mean[14]:.2f}; {mean[13]:.1f} items to SE 0.3; "
                f"{time.perf_counter() - began:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
