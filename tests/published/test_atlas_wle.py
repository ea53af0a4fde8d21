"""Whole-bank WLE of 160 models compared with mirt."""

import csv
from pathlib import Path

import numpy as np

from app.cli.lab.estimate import estimate_rows
from app.engine.estimation.estimators import EstimatorName, GridEstimator
from app.exchange.names import align
from app.exchange.parameters import read_parameters
from app.exchange.responses import read_responses


def test_wle_agrees_with_mirt(shared_data: Path) -> None:
    folder = shared_data / "arc_mixtral"
    bank = read_parameters((folder / "bank.csv").read_bytes())
    table = read_responses((folder / "responses.csv.gz").read_bytes())
    aligned = align(table, bank)
    assert len(aligned.match.found) == 734
    rows = estimate_rows(
        bank, aligned.scores, table.examinees, GridEstimator(method=EstimatorName.WLE)
    )
    with (folder / "wle.csv").open() as lines:
        published = {
            row["model"]: float(row["theta_wle_whole_bank"]) for row in csv.DictReader(lines)
        }
    assert len(rows) == 160
    # The published theta also uses 106 items that the matrix lacks, so the two differ.
    differences = [abs((row.theta or 0.0) - published[row.examinee]) for row in rows]
    assert np.mean(differences) <= 0.004
