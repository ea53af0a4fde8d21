"""The published tests of ATLAS: theta, its SE and predictions, and whole-bank WLE of mirt."""

import csv
import gzip
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from app.cli.lab.estimate import estimate_rows
from app.engine.bank import ItemBank
from app.engine.estimation.estimators import EstimatorName, GridEstimator, SeKind
from app.engine.estimation.posterior import FixedGrid
from app.engine.prediction.p_irt import PIrt
from app.engine.state import Response
from app.exchange.names import align
from app.exchange.parameters import read_parameters
from app.exchange.responses import read_responses
from tests.contracts.estimators import fold

BENCHMARKS = ("arc", "gsm8k")
#: As catR: EAP on 33 nodes over [-4, 4].
PUBLISHED = GridEstimator(grid=FixedGrid(n_nodes=33, lo=-4, hi=4), se=SeKind.INFORMATION_WITH_PRIOR)


@dataclass(frozen=True, slots=True)
class Step:
    """One administered item of a published test, and the theta and SE published after it."""

    item_id: str
    score: float
    theta: float
    se: float


@dataclass(frozen=True, slots=True)
class End:
    """Published results at the end of a test."""

    theta: float
    pirt_accuracy: float
    actual_accuracy: float


def read_bank(data: Path, benchmark: str) -> ItemBank:
    """Read the published bank."""
    return read_parameters((data / "atlas" / benchmark / "bank.csv").read_bytes())


def read_traces(data: Path, benchmark: str) -> dict[str, list[Step]]:
    """Read the steps of every test in order, by examinee and stopping rule."""
    traces: dict[str, list[Step]] = defaultdict(list)
    with gzip.open(data / "atlas" / benchmark / "traces.csv.gz", "rt") as lines:
        for row in csv.DictReader(lines):
            step = Step(row["item_id"], float(row["score"]), float(row["theta"]), float(row["se"]))
            traces[_name(row)].append(step)
            assert int(row["order"]) == len(traces[_name(row)])
    return dict(traces)


def read_ends(data: Path, benchmark: str) -> dict[str, End]:
    """Read the results at the end of the same tests."""
    with (data / "atlas" / benchmark / "expected.csv").open() as lines:
        return {
            _name(row): End(
                float(row["theta"]), float(row["pirt_accuracy"]), float(row["actual_accuracy"])
            )
            for row in csv.DictReader(lines)
        }


def responses_of(bank: ItemBank, steps: list[Step]) -> list[Response]:
    """Return the responses of a test."""
    return [Response(bank.index_of(step.item_id), step.score) for step in steps]


def _name(row: dict[str, str]) -> str:
    return f"{row['model']} to SE {row['se_threshold']}"


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


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_the_published_rule_gives_the_published_figures(shared_data: Path, benchmark: str) -> None:
    bank = read_bank(shared_data, benchmark)
    traces = read_traces(shared_data, benchmark)
    start = GridEstimator().start(bank)  # the published rule takes the published theta alone
    for name, end in read_ends(shared_data, benchmark).items():
        prediction = PIrt(method="p-irt-c").predict(
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
            value = PIrt(method=method).predict(bank, responses, belief).value
            found.append(abs(value - end.actual_accuracy))
    assert np.mean(errors["p-irt-c"]) == pytest.approx(0.034, abs=0.001)
    assert np.mean(errors["p-irt"]) == pytest.approx(0.026, abs=0.0005)


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
