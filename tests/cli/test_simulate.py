import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from app.cli.lab.simulate import command
from app.engine.bank import ItemBank
from app.engine.simulation.simulate import draw_scores

app = typer.Typer()
app.command()(command)

SUMMARY = {
    "n_examinees", "items_mean", "items_max", "theta_mae", "theta_mae_se", "theta_bias",
    "theta_rmse", "accuracy_mae_se", "overlap_jaccard", "spearman", "kendall", "moved_ranks",
    "coverage95",
    "coverage95_raw", "accuracy_mae", "accuracy_coverage95",
    "accuracy_coverage95_raw", "exposure_mean", "exposure_max",
    "overlap", "seconds_per_step",
}  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    n_items = 40
    bank = ItemBank.from_difficulties(
        a=rng.lognormal(0.4, 0.3, n_items), b=rng.normal(size=n_items)
    )
    lines = ["item,a,b,c,d"]
    lines += [f"i{j},{bank.a[j]},{bank.b[j]},0,1" for j in range(n_items)]
    (tmp_path / "bank.csv").write_text("\n".join(lines))
    header = "model," + ",".join(f"i{j}" for j in range(n_items))
    for name, n_examinees in (("answers", 12), ("others", 30)):
        rows = [header]
        for k, row in enumerate(draw_scores(bank, rng.normal(size=n_examinees), rng)):
            rows.append(f"{name}-{k}," + ",".join("" if s is None else f"{s:.0f}" for s in row))
        (tmp_path / f"{name}.csv").write_text("\n".join(rows))
    return tmp_path


def simulate(files: Path, *flags: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*base(files), *flags, "--json", str(files / "out.json")])
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads((files / "out.json").read_text())
    return document


def base(files: Path) -> list[str]:
    return ["--bank", str(files / "bank.csv"), "--responses", str(files / "answers.csv")]


def refused(files: Path, *flags: str) -> str:
    result = CliRunner().invoke(app, [*base(files), *flags])
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


def test_one_json_object_with_a_summary_and_every_examinee(files: Path) -> None:
    document = simulate(files)
    assert set(document["summary"]) == SUMMARY
    assert document["summary"]["n_examinees"] == len(document["examinees"]) == 12
    first = document["examinees"][0]
    assert first["examinee"] == "answers-0"
    assert first["lo"] < first["theta"] < first["hi"]
    assert set(first["accuracy"]) == {"value", "lo", "hi", "raw", "actual"}
    assert first["raw"] is None
    piped = CliRunner().invoke(app, [*base(files), "--max-items", "2", "--json", "-"])
    assert json.loads(piped.stdout)["summary"]["n_examinees"] == 12


def test_flags_become_the_design(files: Path) -> None:
    flags = (
        "--preset", "atlas", "--selector", "mutual-information", "--randomesque", "3",
        "--se-target", "0.4", "--min-items", "4", "--max-items", "15", "--concurrency", "2",
        "--prediction", "p-irt",
    )  # fmt: skip
    document = simulate(files, *flags)
    design = document["design"]
    assert design["preset"] == "atlas"
    assert design["selection"]["criterion"] == "mutual_information"
    assert design["selection"]["top_k"] == 3
    assert (design["stopping"]["se"], design["stopping"]["min_items"]) == (0.4, 4)
    assert design["concurrency"] == 2
    assert design["prediction"] == {"method": "p-irt"}
    assert document["summary"]["items_max"] <= 15


def test_learning_from_others_changes_intervals_and_predictions(files: Path) -> None:
    flags = ("--preset", "ability", "--max-items", "10")
    plain = simulate(files, *flags)
    learned = simulate(files, *flags, "--train", str(files / "others.csv"))
    assert learned["learned"]["interval_correction"]["n_examinees"] == 30
    assert plain["learned"] is None
    pairs = list(zip(plain["examinees"], learned["examinees"], strict=True))
    assert all(p["lo"] != b["lo"] for p, b in pairs)
    assert all(b["raw"] is not None for _, b in pairs)
    assert learned["learned"]["curves"]["n_reference"] == 30
    assert "baselines" not in learned
    assert all(p["accuracy"]["value"] != b["accuracy"]["value"] for p, b in pairs)


def test_simpler_ways_are_held_beside_the_design(files: Path) -> None:
    (files / "short.csv").write_text("item\ni3\ni7\n\ni20\n")
    train = ("--train", str(files / "others.csv"), "--max-items", "10")
    document = simulate(files, *train, "--fixed", str(files / "short.csv"))
    found = {one["name"]: one for one in document["baselines"]}
    assert {"random", "stratified", "ridge", "anchors", "gp-irt", "fixed"} <= found.keys()
    assert "tasks" not in found  # the ids name none
    assert found["fixed"]["items"] == 3
    assert found["random"]["items"] == round(document["summary"]["items_mean"])
    names = [one["name"] for one in simulate(files, *train, "--baselines")["baselines"]]
    assert "fixed" not in names


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ("i3\nnobody\n", "short.csv:2: expected an item of the bank, got 'nobody'"),
        ("i3\ni3\n", "short.csv:2: 'i3' is listed twice"),
        ("item\n", "expected item ids, one a line, got none"),
    ],
)
def test_a_list_that_is_none_is_named(files: Path, listed: str, words: str) -> None:
    (files / "short.csv").write_text(listed)
    train = ("--train", str(files / "others.csv"))
    assert words in refused(files, *train, "--fixed", str(files / "short.csv"))


def test_baselines_need_somebody_to_learn_from(files: Path) -> None:
    needed = "Baselines need --bank, --responses and --train"
    assert needed in refused(files, "--baselines")
    several = ("--train", str(files / "others.csv"), "--dimensions", "2")
    assert "belong to tests of one ability" in refused(files, "--baselines", *several)
    tested = ("--train", str(files / "answers.csv"))
    assert "at least 2 examinees of --train" in refused(files, "--baselines", *tested)


def test_who_is_tested_is_not_learned_from(files: Path) -> None:
    both = files / "both.csv"
    others = (files / "others.csv").read_text().splitlines()
    both.write_text("\n".join(others + (files / "answers.csv").read_text().splitlines()[1:]))
    short = ("--max-items", "3", "--train")
    learned = simulate(files, *short, str(both))["learned"]
    assert learned["interval_correction"]["n_examinees"] == 30
    # Whoever is left may be few, or nobody.
    few = files / "few.csv"
    few.write_text("\n".join(others[:4]))
    learned = simulate(files, *short, str(few))["learned"]
    assert list(learned) == ["curves"]
    assert learned["curves"]["n_reference"] == 3
    assert simulate(files, *short, str(files / "answers.csv"))["learned"] is None


def test_thetas_may_come_from_a_file(files: Path) -> None:
    reference = files / "thetas.csv"
    rows = [f"answers-{k},{k / 10},9" for k in range(12)]
    reference.write_text("\n".join(["model,theta_wle,se", *rows]))
    document = simulate(files, "--reference", str(reference))
    assert [one["reference"] for one in document["examinees"]] == [k / 10 for k in range(12)]


def test_an_item_without_an_answer_is_not_asked(files: Path) -> None:
    lines = (files / "answers.csv").read_text().splitlines()
    cells = lines[1].split(",")
    lines[1] = ",".join([cells[0], *cells[1:6], *[""] * 35])
    lines[2] = lines[2].split(",")[0] + "," * 40
    (files / "answers.csv").write_text("\n".join(lines))
    examinees = {one["examinee"]: one for one in simulate(files)["examinees"]}
    assert examinees["answers-0"]["n_items"] == 5
    assert examinees["answers-0"]["stop_reason"] == "bank_exhausted"
    assert "answers-1" not in examinees


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--selector", "mfi"), "/selection/criterion"),
        (("--se-target", "0"), "/stopping/se"),
        (("--concurrency", "0"), "/concurrency"),
        (("--min-items", "9", "--max-items", "8"), "/stopping/min_items"),
        (("--reference", "nowhere.csv"), "expected wle or a file"),
    ],
)
def test_bad_flags_are_named(files: Path, flags: tuple[str, ...], words: str) -> None:
    assert words in refused(files, *flags)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model,ability\nx,1", "a column theta"),
        ("model,theta\nanswers-0,high", "bad.csv:2"),
        ("model,theta\nanswers-0,1.0", "no theta of examinee 'answers-1'"),
    ],
)
def test_a_bad_reference_file_is_named(files: Path, text: str, words: str) -> None:
    (files / "bad.csv").write_text(text)
    assert words in refused(files, "--reference", str(files / "bad.csv"))


def test_responses_to_another_bank_are_refused(files: Path) -> None:
    (files / "answers.csv").write_text("model,q1,q2\nx,1,0\n")
    assert "no item in common" in refused(files)


def forecast(files: Path, *flags: str) -> dict[str, Any]:
    out = files / "forecast.json"
    asked = ["--bank", str(files / "bank.csv"), "--examinees", "20", *flags, "--json", str(out)]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(out.read_text())["forecast"]
    return document


def test_without_answers_it_forecasts_items_cost_and_time(files: Path) -> None:
    flags = ("--max-items", "10", "--min-items", "1", "--concurrency", "2")
    priced = ("--tokens-in", "90", "--tokens-out", "10", "--price-in", "2", "--latency", "1")
    found = forecast(files, *flags, *priced)
    assert (found["n_examinees"], found["items"]["hi"]) == (20, 10)
    assert found["tokens"]["median"] == 100 * found["items"]["median"]
    assert found["usd"]["median"] == pytest.approx(90 * 2e-6 * found["items"]["median"])
    assert found["seconds"]["median"] == pytest.approx(found["items"]["median"] / 2)
    assert forecast(files, *flags)["usd"] is None
    assert forecast(files, *flags) == forecast(files, *flags)


def test_a_forecast_knows_no_recorded_answers(files: Path) -> None:
    flags = ["--bank", str(files / "bank.csv"), "--train", str(files / "others.csv")]
    result = CliRunner().invoke(app, flags)
    assert result.exit_code == 2
    assert "give --responses, too" in " ".join(result.output.split())
    result = CliRunner().invoke(app, ["--se-target", "0.3"])
    assert result.exit_code == 2
    assert "needs --bank" in " ".join(result.output.split())
