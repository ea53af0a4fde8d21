"""`sextant compose`: fixed short forms."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.shell import done, refused, told, write_scores
from tests.cli.test_simulate_design import ITEMS, records


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
