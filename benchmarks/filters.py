"""Effects of a calibration's filters on theta and on the score of the whole benchmark.

    uv run python benchmarks/filters.py [--data ../shared/data/transfer] [--only NAME ...]

Every matrix of the folder is split as in `benchmarks/transfer.py`, and the reference models are
calibrated four times:

| filters | what they do |
|---|---|
| default | items go with an estimated point-biserial below 0.1, or over 95 % right answers |
| kept | the same items stay, for the score only |
| sure | items go where it is 95 % sure that the point-biserial is below 0.1, or as above |
| sure, kept | these stay, for the score only |

Each tested model takes two tests of 50 items, answered from its own row: an ordinary one, and one
for the score. Columns per split and filters: questions in the bank; for the ordinary test the error
of theta against the weighted likelihood estimate from the whole row on the same bank (root mean
square), coverage of the corrected 95 % intervals, and the correlation of theta with the score; for
both tests the mean absolute error of the predicted score from the share of *all* questions that the
model has right, and the coverage of its intervals.
"""

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from transfer import matrices, splits

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
from app.engine.responses import ResponseTable
from app.engine.simulation.simulate import take

SURE = FilterSettings(point_biserial_confidence=0.95)
FILTERS = {
    "default": FilterSettings(),
    "kept": FilterSettings(keep_for_score=True),
    "sure": SURE,
    "sure, kept": replace(SURE, keep_for_score=True),
}
STOPPING = {"preset": "ability", "stopping": {"se": None, "min_items": 50, "max_items": 50}}
FOR_SCORE = {**STOPPING, "selection": {"criterion": "v_optimal"}}


def calibrated(known, filters):
    """Return the knowledge of a published version of these models, and the items it has."""
    models, columns = known.shape
    table = ResponseTable(
        tuple(f"m{i}" for i in range(models)), tuple(f"i{j}" for j in range(columns)), known
    )
    plan = CalibrationPlan(filters=filters)
    matrix = prepared(table, plan).matrix
    plan = decided(matrix, plan)
    fitted = fit(matrix, plan, lambda _: None)
    found = with_card(matrix, plan, fitted, lambda _: None, clock=time.perf_counter)
    bank = ItemBank.from_columns(matrix.items, found.columns)
    shifted = CALIBRATORS[plan.model].shifted(matrix)
    records = records_of(matrix, plan, found, bank)
    learned = held_out(records, shifted=shifted, seed=plan.seed).correction()
    return bank, learned, curves_of(bank, found.knowledge), [int(i[1:]) for i in matrix.items]


def holds(told, truth):
    return told.lo - 1e-12 <= truth <= told.hi + 1e-12


def one_bank(known, tested, filters):
    """Return the number of questions, and per model theta, its truth, holds, error, holds, ..."""
    bank, learned, curves, kept = calibrated(known, filters)
    inside = tested[:, kept]
    truth, _ = whole_bank_abilities(bank, inside)
    test, for_score = (
        Design.from_dict(design).build(bank, correction=learned, curves=curves)
        for design in (STOPPING, FOR_SCORE)
    )
    rows = []
    for i, row in enumerate(inside):
        state, scored = (take(one, row, seed=[i])[0] for one in (test, for_score))
        theta = test.estimate(state)
        told = (test.predict(state), for_score.predict(scored))
        whole = tested[i].mean()
        scores = [figure for one in told for figure in (abs(one.value - whole), holds(one, whole))]
        rows.append([theta.theta, truth[i], holds(theta, truth[i]), *scores])
    return len(kept), np.array(rows, dtype=float)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/transfer"))
    parser.add_argument("--only", nargs="*", default=(), help="names of matrices; all by default")
    parser.add_argument("--filters", nargs="*", default=tuple(FILTERS), choices=tuple(FILTERS))
    parser.add_argument("--splits", nargs="*", default=(), help="beginnings of their names")
    parser.add_argument("--models", type=int, default=12, help="most models tested of a split")
    arguments = parser.parse_args()
    for name, scores in matrices(arguments.data, arguments.only):
        for split, (known, tested) in list(splits(scores).items())[:3]:
            if arguments.splits and not split.startswith(tuple(arguments.splits)):
                continue
            most = min(len(tested), arguments.models)
            some = scores[tested][np.linspace(0, len(tested) - 1, most).astype(int)]
            for filters in arguments.filters:
                began = time.perf_counter()
                kept, found = one_bank(scores[known], some, FILTERS[filters])
                off = np.sqrt(np.mean((found[:, 0] - found[:, 1]) ** 2))
                together = np.corrcoef(found[:, 0], some.mean(axis=1))[0, 1]
                mean = found.mean(axis=0)
                print(
                    f"{name}, {split}, {most} models, {filters}: {kept} of {scores.shape[1]} "
                    f"questions; theta {off:.3f}, {mean[2]:.0%}, with the score {together:.2f}; "
                    f"score {mean[3]:.3f} ({mean[4]:.0%}), by a test for it {mean[5]:.3f} "
                    f"({mean[6]:.0%}); {time.perf_counter() - began:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
