"""Published whole-bank predictions (p-IRT) of the ATLAS tests, and their errors."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from app.engine.bank import FloatArray
from app.engine.estimation.estimators import GridBelief, GridEstimator
from app.engine.prediction.p_irt import PREDICTORS
from app.engine.state import Estimate
from tests.contracts.estimators import fold
from tests.published.atlas import BENCHMARKS, read_bank, read_ends, read_traces, responses_of


@dataclass(frozen=True, slots=True)
class PublishedBelief:
    """The posterior of this package with the published theta, which the published rule plugs in."""

    theta: float
    posterior: GridBelief

    @property
    def se(self) -> float:
        return self.posterior.se

    @property
    def nodes(self) -> FloatArray:
        return self.posterior.nodes

    @property
    def weights(self) -> FloatArray:
        return self.posterior.weights

    def estimate(self) -> Estimate:
        return self.posterior.estimate()


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_the_published_rule_gives_the_published_figures(shared_data: Path, benchmark: str) -> None:
    bank = read_bank(shared_data, benchmark)
    traces = read_traces(shared_data, benchmark)
    start = GridEstimator().start(bank)
    for name, end in read_ends(shared_data, benchmark).items():
        prediction = PREDICTORS["p-irt-c"].predict(
            bank, responses_of(bank, traces[name]), PublishedBelief(end.theta, start)
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
