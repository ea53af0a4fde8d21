"""Theta and SE of each step of the published tests (catR: EAP on 33 nodes over [-4, 4])."""

from pathlib import Path

import pytest

from app.engine.estimation.estimators import GridEstimator, SeKind
from app.engine.estimation.posterior import FixedGrid
from tests.published.atlas import BENCHMARKS, read_bank, read_traces, responses_of

PUBLISHED = GridEstimator(grid=FixedGrid(n_nodes=33, lo=-4, hi=4), se=SeKind.INFORMATION_WITH_PRIOR)


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_step_by_step_updates_agree_on_every_row(shared_data: Path, benchmark: str) -> None:
    bank = read_bank(shared_data, benchmark)
    n_rows = 0
    for steps in read_traces(shared_data, benchmark).values():
        belief = PUBLISHED.start(bank)
        for step, response in zip(steps, responses_of(bank, steps), strict=True):
            belief = PUBLISHED.update(bank, belief, response)
            assert belief.theta == pytest.approx(step.theta, abs=1e-10)
            assert belief.se == pytest.approx(step.se, abs=1e-10)
            n_rows += 1
    assert n_rows > 5_000
