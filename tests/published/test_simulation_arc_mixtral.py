"""Adaptive tests of 160 real models, simulated from their recorded answers to ARC."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from app.cli.lab.simulate import command

DATA = Path(__file__).parents[2].parent / "shared" / "data" / "arc_mixtral"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason=f"real response data is not at {DATA}"),
]

app = typer.Typer()
app.command()(command)


def simulate(out: Path, *flags: str, responses: Path | None = None) -> dict[str, Any]:
    files = ["--bank", str(DATA / "bank.csv")]
    files += ["--responses", str(responses or DATA / "responses.csv.gz")]
    result = CliRunner().invoke(app, [*files, *flags, "--json", str(out)])
    assert result.exit_code == 0, result.output
    summary: dict[str, Any] = json.loads(out.read_text())["summary"]
    return summary


def test_the_traced_procedure_gives_its_published_error_and_length(tmp_path: Path) -> None:
    """Compare with ATLAS, tables 2 and 3, on ARC, for the procedure that made its traces."""
    summary = simulate(tmp_path / "out.json", "--preset", "atlas-traces", "--se-target", "0.1")
    assert summary["n_examinees"] == 160
    # The published models are others. Random items change the mean error by some 0.005.
    assert summary["items_mean"] == pytest.approx(49.0, abs=4)
    assert summary["theta_mae"] == pytest.approx(0.0905, abs=0.015)
    assert summary["accuracy_mae"] == pytest.approx(0.032, abs=0.005)


def test_the_test_for_theta_is_closer_with_fewer_items(tmp_path: Path) -> None:
    reference = ("--reference", str(DATA / "wle.csv"))
    summary = simulate(tmp_path / "out.json", "--preset", "ability", *reference)
    assert summary["theta_mae"] <= 0.080
    assert summary["items_mean"] <= 50


def test_intervals_hold_on_models_that_were_not_learned_from(tmp_path: Path) -> None:
    """Each half is tested with the corrections of the other; for theta one half suffices."""
    header, *rows = gzip.decompress((DATA / "responses.csv.gz").read_bytes()).decode().splitlines()
    halves = [tmp_path / "even.csv", tmp_path / "odd.csv"]
    for start, half in enumerate(halves):
        half.write_text("\n".join([header, *rows[start::2]]))
    short = ("--max-items", "30", "--concurrency", "1")
    plain = simulate(tmp_path / "p.json", "--preset", "ability", "--prediction", "p-irt", *short)

    def taught(preset: str, half: Path, other: Path) -> dict[str, float]:
        flags = ("--preset", preset, *short, "--train", str(other))
        return simulate(tmp_path / "out.json", *flags, responses=half)

    learned = taught("ability", *halves)
    folds = [taught("score", *pair) for pair in (halves, halves[::-1])]
    score = {name: (folds[0][name] + folds[1][name]) / 2 for name in folds[0]}
    assert plain["coverage95"] == plain["coverage95_raw"] < 0.91
    assert plain["accuracy_coverage95"] == plain["accuracy_coverage95_raw"] < 0.6
    # Two standard errors of a share of 0.95 in 80, with a quantile learned from as many.
    assert learned["coverage95"] == pytest.approx(0.95, abs=0.05)
    assert score["accuracy_coverage95"] >= 0.93
    assert score["accuracy_mae"] < 0.85 * plain["accuracy_mae"]
    assert learned["accuracy_coverage95"] >= 0.9
