"""`sextant simulate` with optimal design, and `sextant compose`: fixed short forms."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.engine.bank import FloatArray
from tests.cli.shell import done, refused, told, write_scores

N_TESTED = 30
ITEMS = [f"{'maths' if j % 2 else 'law'}/{j}" for j in range(40)]


def records(n: int, seed: int) -> FloatArray:
    """Return answers to two tasks of 20 items, each with its own ability beside a common one."""
    rng, items = np.random.default_rng(seed), np.random.default_rng(0)
    difficulty, task = items.normal(size=40), np.arange(40) % 2
    general, special = rng.normal(size=(n, 1)), rng.normal(size=(n, 2))
    logit = 1.5 * general + 0.8 * special[:, task] - difficulty
    scores: FloatArray = (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(float)
    return scores


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("design")
    paths = {}
    for what, n, seed in (("train", 150, 1), ("tested", N_TESTED, 2)):
        paths[what] = str(write_scores(folder / f"{what}.csv", records(n, seed), ITEMS, what))
    costs = np.random.default_rng(3).lognormal(5.0, 1.5, 40)
    for what, kept in (("costs", 40), ("few_costs", 39)):
        path = folder / f"{what}.csv"
        lines = [f"{name},{cost:.3f}" for name, cost in zip(ITEMS, costs, strict=True)]
        path.write_text("\n".join(["item,cost", *lines[:kept]]))
        paths[what] = str(path)
    bank = folder / "bank.csv"
    bank.write_text("\n".join(["item,a,b", *(f"{name},1.0,0.0" for name in ITEMS)]))
    return paths | {"bank": str(bank)}


_known: dict[tuple[str, ...], dict[str, Any]] = {}


def simulated(files: dict[str, str], *flags: str) -> dict[str, Any]:
    """Return the output of the command; each command runs only once."""
    command = (
        *("simulate", "--selector", "v-optimal"),
        *("--responses", files["tested"], "--train", files["train"]),
        *("--dimensions", "2", "--min-items", "8", "--max-items", "8", *flags),
    )
    if command not in _known:
        _known[command] = told(*command)
    return _known[command]


def test_a_task_that_is_never_asked_is_predicted_from_another(files: dict[str, str]) -> None:
    summary = simulated(files, "--target", "maths", "--ask", "law")["summary"]
    truth = records(N_TESTED, 2)[:, 1::2].mean(axis=1)
    assert summary["accuracy_mae"] < 0.8 * np.abs(truth - truth.mean()).mean()
    assert summary["accuracy_coverage95"] > 0.85


def test_models_without_target_answers_are_left_out(files: dict[str, str], tmp_path: Path) -> None:
    header, first, *others = Path(files["tested"]).read_text().splitlines()
    name, *scores = first.split(",")
    law_only = ["" if j % 2 else score for j, score in enumerate(scores)]
    gaps = tmp_path / "gaps.csv"
    gaps.write_text("\n".join([header, ",".join([name, *law_only]), *others[:9]]))
    files = files | {"tested": str(gaps)}
    flags = ("--target", "maths", "--min-items", "5", "--max-items", "5")
    found = simulated(files, *flags)
    assert found["summary"]["n_examinees"] == 9


def test_costs_turn_the_choice_to_cheap_items(files: dict[str, str]) -> None:
    costly = simulated(files)
    cheap = simulated(files, "--item-costs", files["costs"])
    assert "cost_mean" not in costly["summary"]
    # No more expensive than sampling in proportion to 1 / sqrt(cost), cheap items included.
    rows = Path(files["costs"]).read_text().split()[1:]
    price = np.array([float(row.split(",")[1]) for row in rows])
    assert cheap["summary"]["cost_mean"] < 8 * np.sqrt(price).sum() / (1 / np.sqrt(price)).sum()
    assert cheap["summary"]["cost_mean"] < 0.2 * cheap["summary"]["cost_mean_ignoring_costs"]


def test_the_cost_of_the_same_error_without_regard_to_costs_is_shown(
    files: dict[str, str],
) -> None:
    rows = Path(files["costs"]).read_text().split()[1:]
    price = {name: float(cost) for name, cost in (row.split(",") for row in rows)}
    summary = simulated(files, "--item-costs", files["costs"])["summary"]
    count = summary["items_ignoring_costs"]
    plain = simulated(files, "--min-items", str(count), "--max-items", str(count))
    assert plain["summary"]["accuracy_mae"] <= summary["accuracy_mae"] + 1e-9
    assert summary["cost_mean"] < summary["cost_mean_ignoring_costs"] < sum(price.values())
    assert summary["cost_saved"] == pytest.approx(
        1 - summary["cost_mean"] / summary["cost_mean_ignoring_costs"]
    )


def test_a_test_ends_when_the_predicted_score_is_known_well_enough(files: dict[str, str]) -> None:
    margin = ("--min-items", "1", "--max-items", "40", "--margin", "15")
    document = simulated(files, *margin)
    ends = [one["accuracy"] for one in document["examinees"]]
    assert all(one["hi"] - one["lo"] <= 0.3 for one in ends)
    assert document["examinees"][0]["stop_reason"] == "score_margin"
    assert document["summary"]["items_max"] < 40


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--dimensions", "400"], "400 dimensions are too many"),
        (["--target", "physics"], "The target 'physics' has no items; known tags: all, law, maths"),
        (["--ask", "physics"], "--ask: no item has the tag 'physics'; known tags: all, law, maths"),
        (["--tokens-in", "90"], "--tokens-in belongs to a forecast"),
        (["--item-costs", "few_costs"], "this item has no cost"),
        (["--item-costs", "bank"], "expected the header item,cost"),
    ],
)
def test_impossible_settings_are_refused_before_any_test(
    files: dict[str, str], flags: list[str], complaint: str
) -> None:
    given = ("--selector", "v-optimal", "--responses", files["tested"], "--train", files["train"])
    named = (files.get(flag, flag) for flag in flags)
    assert complaint in refused("simulate", *given, *named)


def test_optimal_design_needs_records_to_learn_from(files: dict[str, str]) -> None:
    given = ("simulate", "--responses", files["tested"])
    ready = (*given, "--bank", files["bank"])
    assert "needs --train" in refused(*ready, "--selector", "d-optimal")
    other = refused(*ready, "--selector", "random", "--target", "law")
    assert "--target belongs to the selectors" in other
    assert "needs --train" in refused(*given)


def test_scores_are_estimated_from_a_handful_of_records(
    files: dict[str, str], tmp_path: Path
) -> None:
    few = tmp_path / "few.csv"
    few.write_text("\n".join(Path(files["train"]).read_text().split("\n")[:20]))
    flags = ("--selector", "v-optimal", "--responses", files["tested"], "--train", few)
    assert told("simulate", *flags)["examinees"][0]["accuracy"]["value"] > 0.0


@pytest.fixture
def train(tmp_path: Path) -> Path:
    return write_scores(tmp_path / "train.csv", records(150, 1), ITEMS)


def test_a_form_predicts_the_score_of_new_examinees_by_its_weights(
    train: Path, tmp_path: Path
) -> None:
    form = tmp_path / "form.csv"
    document = told("compose", "--train", train, "--items", "8", "--out", form)
    rows = list(csv.DictReader(form.read_text().splitlines()))
    assert len(rows) == 9
    assert rows[0]["item"] == ""
    new = records(60, 2)
    value = float(rows[0]["weight"]) + sum(
        float(row["weight"]) * new[:, int(row["item"].split("/")[1])] for row in rows[1:]
    )
    truth = new.mean(axis=1)
    assert np.abs(value - truth).mean() < 0.5 * np.abs(truth - truth.mean()).mean()
    held = np.abs(value - truth) <= document["half_width95"]
    assert held.mean() > 0.85


def test_a_form_is_exported_to_lm_eval_with_its_documents(train: Path, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for task in ("maths", "law"):
        rows = [
            {"doc_id": 100 - j, "doc_hash": str(j), "resps": [["x"]], "exact_match": 1.0}
            for j in range(40)
            if (j % 2 == 1) == (task == "maths")
        ]
        path = tmp_path / f"samples_{task}_2026-11-20T10-00-00.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
    form = tmp_path / "form.csv"
    words = ("compose", "--train", train, "--items", "8", "--lm-eval", tmp_path)
    done(*words, "--out", form)
    items = [row["item"] for row in csv.DictReader(form.read_text().splitlines())][1:]
    run = json.loads((tmp_path / "form.yaml").read_text())
    asked = {(task, 100 - number) for task, chosen in run["samples"].items() for number in chosen}
    assert asked == {(task, int(j)) for task, _, j in (item.partition("/") for item in items)}
    assert run["tasks"] == sorted(run["samples"])

    path = tmp_path / "samples_law_2026-11-21T10-00-00.jsonl"
    path.write_text("\n".join(json.dumps({**row, "doc_id": 7}) for row in rows))
    assert "gives to the same document" in refused(*words, "--out", form)
    path.unlink()
    (tmp_path / "samples_law_2026-11-20T10-00-00.jsonl").unlink()
    assert "are in none of 1 files" in refused(*words, "--out", form)
    assert "give --out" in refused(*words)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--items", "41"], "expected 1 to 40 items, got 41"),
        (["--items", "21", "--ask", "law"], "at most 20"),
        (["--items", "5", "--target", "physics"], "'physics' has no items"),
    ],
)
def test_an_impossible_form_is_refused(train: Path, flags: list[str], complaint: str) -> None:
    assert complaint in refused("compose", "--train", train, *flags)


def test_a_form_from_a_server_has_no_cost_unless_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form = {"items": [{"key": "q", "weight": 1.0}], "constant": 0.0, "half_width95": 0.1}
    reply = {**form, "cost": None, "bank_version_id": "bkv_1"}
    monkeypatch.setattr("app.cli.lab.compose.asked", lambda *_: reply)
    assert told("compose", "--version", "sums", "--items", "1")["cost"] is None
