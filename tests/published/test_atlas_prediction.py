"""Published whole-bank predictions (p-IRT) of the ATLAS tests, and their errors."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.engine.estimation.estimators import GridEstimator
from app.engine.prediction.p_irt import PREDICTORS
from tests.contracts.estimators import fold
from tests.published.atlas import BENCHMARKS, read_bank, read_ends, read_traces, responses_of


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_the_published_rule_gives_the_published_figures(shared_data: Path, benchmark: str) -> None:
    bank = read_bank(shared_data, benchmark)
    traces = read_traces(shared_data, benchmark)
    start = GridEstimator().start(bank)  # the published rule takes the published theta alone
    for name, end in read_ends(shared_data, benchmark).items():
        prediction = PREDICTORS["p-irt-c"].predict(
            bank, responses_of(bank, traces[name]), replace(start, theta=end.theta)
        )
        assert prediction.value == pytest.approx(end.pirt_accuracy, abs=1e-9)


def test_the_curve_of_the_model_predicts_arc_better(shared_data: Path) -> None:
    bank = read_bank(shared_data, "arc")
    traces = read_traces(shared_data, "arc")
    errors: dict[str, list[float]] = {"p-irt": [], "p-irt-c": []}
    for name, end in read_ends(shared_data, "arc").items():
        responses = responses_of(bank, traces[name])
        belief = fold(GridEstimator(), bank, responses)
        for method, found in errors.items():
            value = PREDICTORS[method].predict(bank, responses, belief).value
            found.append(abs(value - end.actual_accuracy))
    assert np.mean(errors["p-irt-c"]) == pytest.approx(0.034, abs=0.001)
    assert np.mean(errors["p-irt"]) == pytest.approx(0.026, abs=0.0005)
