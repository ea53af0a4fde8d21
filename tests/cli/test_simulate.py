from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.engine.bank import ItemBank
from app.engine.simulation.simulate import draw_scores
from tests.cli.shell import done, refused, told, write_scores


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    n_items = 40
    bank = ItemBank.from_difficulties(
        a=rng.lognormal(0.4, 0.3, n_items), b=rng.normal(size=n_items)
    )
    lines = ["item,a,b,c,d"]
    lines += [f"i{j},{bank.a[j]},{bank.b[j]},0,1" for j in range(n_items)]
    (tmp_path / "bank.csv").write_text("\n".join(lines))
    for name, n_examinees in (("answers", 12), ("others", 30)):
        rows = draw_scores(bank, rng.normal(size=n_examinees), rng)
        write_scores(tmp_path / f"{name}.csv", rows, names=f"{name}-")
    return tmp_path


BASE = ("simulate", "--bank", "bank.csv", "--responses", "answers.csv")
simulate = partial(told, *BASE)

pytestmark = pytest.mark.usefixtures("files")


def test_flags_become_the_design(files: Path) -> None:
    flags = (
        "--preset", "atlas", "--selector", "mutual-information", "--randomesque", "3",
        "--se-target", "0.4", "--min-items", "4", "--max-items", "15", "--concurrency", "2",
        "--prediction", "p-irt",
    )  # fmt: skip
    document = simulate(*flags)
    design = document["design"]
    assert design["preset"] == "atlas"
    assert design["selection"]["criterion"] == "mutual_information"
    assert design["selection"]["top_k"] == 3
    assert (design["stopping"]["se"], design["stopping"]["min_items"]) == (0.4, 4)
    assert design["concurrency"] == 2
    assert design["prediction"] == {"method": "p-irt"}
    assert document["summary"]["items_max"] <= 15


def test_a_summary_in_words_says_whether_the_goal_was_met(files: Path) -> None:
    limits = ("--min-items", "6", "--max-items", "6")
    words = [done(*BASE, *limits, "--se-target", goal).stdout for goal in ("0.01", "9")]
    assert "6 of 40 questions a model: the score is off by " in words[0]
    assert "0 of 12 reach their goal; 12 ended by max_items." in words[0]
    assert "12 of 12 reach their goal." in words[1]


def test_baselines_are_compared_with_the_design(files: Path) -> None:
    (files / "short.csv").write_text("item\ni3\ni7\n\ni20\n")
    train = ("--train", "others.csv", "--max-items", "10")
    document = simulate(*train, "--fixed", "short.csv")
    found = {one["name"]: one for one in document["baselines"]}
    assert {"random", "stratified", "ridge", "anchors", "gp-irt", "fixed"} <= found.keys()
    assert "tasks" not in found  # the ids contain none
    assert found["fixed"]["items"] == 3
    assert found["random"]["items"] == round(document["summary"]["items_mean"])


def test_baselines_need_reference_models(files: Path) -> None:
    needed = "Baselines need --bank, --responses and --train"
    assert needed in refused(*BASE, "--baselines")
    several = ("--train", "others.csv", "--dimensions", "2")
    assert "are for tests of one ability" in refused(*BASE, "--baselines", *several)
    tested = ("--train", "answers.csv")
    assert "at least 2 examinees of --train" in refused(*BASE, "--baselines", *tested)


def test_tested_models_are_not_learned_from(files: Path) -> None:
    others = (files / "others.csv").read_text().splitlines()
    (files / "both.csv").write_text(
        "\n".join(others + (files / "answers.csv").read_text().splitlines()[1:])
    )
    short = ("--max-items", "3", "--train")
    learned = simulate(*short, "both.csv")["learned"]
    assert learned["interval_correction"]["n_examinees"] == 30
    # Few models may remain, or none.
    (files / "few.csv").write_text("\n".join(others[:4]))
    learned = simulate(*short, "few.csv")["learned"]
    assert list(learned) == ["curves"]
    assert learned["curves"]["n_reference"] == 3
    assert simulate(*short, "answers.csv")["learned"] is None


def test_thetas_may_come_from_a_file(files: Path) -> None:
    rows = [f"answers-{k},{k / 10},9" for k in range(12)]
    (files / "thetas.csv").write_text("\n".join(["model,theta_wle,se", *rows]))
    document = simulate("--reference", "thetas.csv")
    assert [one["reference"] for one in document["examinees"]] == [k / 10 for k in range(12)]


def test_an_item_without_an_answer_is_not_asked(files: Path) -> None:
    lines = (files / "answers.csv").read_text().splitlines()
    cells = lines[1].split(",")
    lines[1] = ",".join([cells[0], *cells[1:6], *[""] * 35])
    lines[2] = lines[2].split(",")[0] + "," * 40
    (files / "answers.csv").write_text("\n".join(lines))
    examinees = {one["examinee"]: one for one in simulate()["examinees"]}
    assert examinees["answers-0"]["n_items"] == 5
    assert examinees["answers-0"]["stop_reason"] == "bank_exhausted"
    assert "answers-1" not in examinees


@pytest.mark.parametrize(
    ("text", "flags", "words"),
    [
        ("", ("--selector", "v-optimaal"), "got 'v-optimaal'. Did you mean 'v-optimal'?"),
        ("", ("--concurrency", "0"), "/concurrency"),
        ("", ("--reference", "nowhere.csv"), "expected wle or a file"),
        ("model,ability\nx,1", ("--reference", "bad.csv"), "a column theta"),
        ("model,theta\nanswers-0,high", ("--reference", "bad.csv"), "bad.csv:2"),
        (
            "model,theta\nanswers-0,1.0",
            ("--reference", "bad.csv"),
            "expected a theta of every examinee, got none of 'answers-1'",
        ),
        (
            "i3\nnobody\n",
            ("--train", "others.csv", "--fixed", "bad.csv"),
            "bad.csv:2: expected an item of the bank, got 'nobody'",
        ),
        (
            "i3\ni3\n",
            ("--train", "others.csv", "--fixed", "bad.csv"),
            "bad.csv:2: expected each item once, got 'i3' again",
        ),
        (
            "item\n",
            ("--train", "others.csv", "--fixed", "bad.csv"),
            "expected item ids, one a line, got none",
        ),
    ],
)
def test_a_bad_flag_or_file_is_named(
    files: Path, text: str, flags: tuple[str, ...], words: str
) -> None:
    (files / "bad.csv").write_text(text)
    assert words in refused(*BASE, *flags)


def forecast(*flags: str) -> dict[str, Any]:
    found: dict[str, Any] = told("simulate", "--bank", "bank.csv", "--examinees", "20", *flags)[
        "forecast"
    ]
    return found


def test_without_answers_it_forecasts_items_cost_and_time(files: Path) -> None:
    flags = ("--max-items", "10", "--min-items", "1", "--concurrency", "2")
    priced = ("--tokens-in", "90", "--tokens-out", "10", "--price-in", "2", "--latency", "1")
    found = forecast(*flags, *priced)
    assert (found["n_examinees"], found["items"]["hi"]) == (20, 10)
    assert found["tokens"]["median"] == 100 * found["items"]["median"]
    assert found["usd"]["median"] == pytest.approx(90 * 2e-6 * found["items"]["median"])
    assert found["seconds"]["median"] == pytest.approx(found["items"]["median"] / 2)
    assert forecast(*flags)["usd"] is None
    assert forecast(*flags) == forecast(*flags)


def test_a_forecast_takes_no_training_records() -> None:
    trained = refused("simulate", "--bank", "bank.csv", "--train", "others.csv")
    assert "give --responses, too" in trained
    unsaved = refused("simulate", "--bank", "demo")
    assert "sextant banks export demo --bundle --out demo.bundle" in unsaved
    assert "needs --bank" in refused("simulate", "--se-target", "0.3")
