"""3PL fit of real answers compared with mirt's fit of the same matrix."""

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from app.calibration.logistic.calibrate import CalibrationSettings, calibrate
from app.calibration.logistic.curves import Family
from app.calibration.logistic.expectation import LatentDensity, expect
from app.calibration.logistic.priors import Priors
from app.calibration.matrix import ScoreMatrix
from app.exchange.parameters import read_parameters

#: mirt's parameters on 61 nodes over [-6, 6]: marginal log-likelihood in the data's README.
PUBLISHED = {"arc": -107113.8, "gsm8k": -154794.1, "winogrande": -151621.4}


def _matrix(shared_data: Path, name: str) -> ScoreMatrix:
    with gzip.open(shared_data / "tiny" / f"{name}.csv.gz", "rt") as file:
        header, *rows = csv.reader(file)
    scores = np.array([[float(cell or "nan") for cell in row[1:]] for row in rows])
    return ScoreMatrix.of(scores, items=header[1:])


@pytest.mark.parametrize(
    ("name", "priors"),
    [
        ("arc", None),
        pytest.param("winogrande", None, marks=pytest.mark.slow),
        ("gsm8k", Priors.none()),
    ],
    ids=["arc", "winogrande", "gsm8k by maximum likelihood"],
)
def test_a_whole_bank_reaches_at_least_the_log_likelihood_of_mirt(
    shared_data: Path, name: str, priors: Priors | None
) -> None:
    matrix = _matrix(shared_data, name)
    bank = read_parameters((shared_data / "tiny" / f"{name}_mirt_3pl.csv").read_bytes())
    order = [bank.index_of(item) for item in matrix.items]
    mirt = expect(matrix, bank.parameters.take(np.array(order)), LatentDensity.normal())
    assert mirt.log_likelihood == pytest.approx(PUBLISHED[name], abs=0.05)
    settings = CalibrationSettings(
        family=Family.THREE_PL, priors=priors, negative_slopes=True, n_nodes=61, with_errors=False
    )
    result = calibrate(matrix, settings)
    assert result.converged
    assert result.log_likelihood >= mirt.log_likelihood - 1.0
