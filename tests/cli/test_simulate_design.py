"""`sextant simulate` with optimal design: several abilities learned from other examinees."""

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.calibration.multidimensional import curve_errors
from app.calibration.multidimensional.learned import LearnedAbilities, learn_abilities
from app.calibration.multidimensional.settings import MultidimensionalSettings
from app.cli.lab import simulate_design
from app.engine.bank import FloatArray
from tests.cli.shell import refused, told, write_scores

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


@pytest.fixture(autouse=True)
def _learned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache what is learned from the same records with the same settings.

    Errors of curves are learned from few held-out models, as this takes most of the time.
    """
    monkeypatch.setattr(simulate_design, "learn_abilities", _learn_once)
    monkeypatch.setattr(curve_errors, "_MOST_TESTED", 4)
    monkeypatch.setattr(curve_errors, "_MOST_OF_A_PART", 2)


_learned: dict[bytes, LearnedAbilities] = {}


def _learn_once(
    scores: FloatArray,
    item_ids: Sequence[str],
    settings: MultidimensionalSettings,
    targets: Mapping[str, FloatArray],
    rng: np.random.Generator,
    **others: Any,
) -> LearnedAbilities:
    given = (scores, tuple(item_ids), settings, dict(targets), rng.bit_generator.state, others)
    key = pickle.dumps(given)
    if key not in _learned:
        _learned[key] = learn_abilities(scores, item_ids, settings, targets, rng, **others)
    return _learned[key]


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
