"""Theta and SE of every step of the published tests (catR: EAP on 33 nodes over [-4, 4])."""

import csv
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from app.cli.lab import estimate
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


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_the_estimate_command_agrees_on_every_row(
    shared_data: Path, tmp_path: Path, benchmark: str
) -> None:
    # Every row is an examinee who has answered the items up to it.
    published: dict[str, tuple[float, float]] = {}
    with (tmp_path / "responses.csv").open("w", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(("examinee", "item", "score"))
        for name, steps in read_traces(shared_data, benchmark).items():
            for n, last in enumerate(steps, start=1):
                published[f"{name} #{n}"] = (last.theta, last.se)
                rows.writerows((f"{name} #{n}", step.item_id, step.score) for step in steps[:n])
    cli = typer.Typer()
    cli.command()(estimate.command)
    result = CliRunner().invoke(
        cli,
        [
            *("--bank", str(shared_data / "atlas" / benchmark / "bank.csv")),
            *("--responses", str(tmp_path / "responses.csv")),
            *("--estimator", "eap", "--se", "information-with-prior"),
            *("--nodes", "33", "--range", "-4", "4", "--rule", "trapezoid"),
            *("--json", str(tmp_path / "out.json")),
        ],
    )
    assert result.exit_code == 0, result.output
    examinees = json.loads((tmp_path / "out.json").read_text())["examinees"]
    assert len(examinees) == len(published)
    for row in examinees:
        assert (row["theta"], row["se"]) == pytest.approx(published[row["examinee"]], abs=1e-10)
