from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from app.engine.bank import FloatArray, ItemBank
from app.engine.simulation.simulate import draw_scores
from tests.cli.shell import done, refused, told, write_scores

THETAS = {"low": -1.8, "middle": 0.0, "high": 1.8}
BANK = ItemBank.from_difficulties(a=np.full(150, 1.2), b=np.random.default_rng(4).normal(size=150))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    rows = list(draw_scores(BANK, THETAS.values(), rng))
    write_scores(tmp_path / "answers.csv", rows, names=list(THETAS))
    others = list(draw_scores(BANK, rng.normal(size=16), rng))
    write_scores(tmp_path / "others.csv", others, names="other-")
    return tmp_path


BASE = ("rank-simulate", "--responses", "answers.csv", "--train", "others.csv")
rank = partial(told, *BASE)


def grades(thetas: Sequence[float], seed: int) -> list[FloatArray]:
    """Return grades of a judge, whole numbers from 1 to 10."""
    rng = np.random.default_rng(seed)
    quality = 1 / (1 + np.exp(-(0.5 * np.array(thetas)[:, None] - BANK.b)))
    noisy = np.clip(quality + rng.normal(0, 0.1, quality.shape), 0, 1)
    return list(1 + np.rint(9 * noisy))


def test_grades_on_any_scale_are_ranked_by_the_continuous_model(files: Path) -> None:
    rng = np.random.default_rng(8)
    write_scores(files / "others.csv", grades(list(rng.normal(size=8)), 1))
    ranked = grades(list(THETAS.values()), 2)
    ranked[1][::7] = np.nan
    write_scores(files / "answers.csv", ranked, names=list(THETAS))

    document = rank()

    assert document["ranking"] == ["high", "middle", "low"]
    assert document["tau"] == 1.0
    assert document["items_total"] < 150
    assert rank("--scale", "0", "11")["ranking"] == document["ranking"]
    assert "Expected scores from 1 to 9, got 10" in refused(*BASE, "--scale", "1", "9")


def test_scores_on_another_scale_than_those_of_the_training_models_are_refused(files: Path) -> None:
    write_scores(files / "others.csv", grades([0.0] * 8, 1))
    tenfold = [10 * row for row in grades([0.0] * 3, 2)]
    write_scores(files / "answers.csv", tenfold, names=list(THETAS))
    assert "lie outside 1 to 10" in refused(*BASE)


def test_the_true_order_is_that_of_the_recorded_scores(files: Path) -> None:
    write_scores(files / "others.csv", grades([0.0] * 8, 1))
    ranked = grades(list(THETAS.values()), 2)
    ranked[2][:3] = 100.0
    write_scores(files / "answers.csv", ranked, names=list(THETAS))
    short = rank("--budget-items", "45", "--max-items", "15")
    full = {entry["examinee"]: entry["full_score"] for entry in short["order"]}
    assert full["high"] == pytest.approx((ranked[2].mean() - 1) / 9)


def test_items_without_a_score_are_never_asked_of_that_model(files: Path) -> None:
    rows = list(draw_scores(BANK, THETAS.values(), np.random.default_rng(3)))
    rows[1][14:] = np.nan
    write_scores(files / "answers.csv", rows, names=list(THETAS))
    assert rank()["items_per_examinee"]["middle"] <= 14


def test_the_published_ranking_is_chosen_by_name_and_ends_at_its_budget(files: Path) -> None:
    (files / "costs.csv").write_text("model,cost\nlow,0.5\nmiddle,1\nhigh,2\n")
    flags = ("--preset", "continuous-paper", "--costs", "costs.csv")
    document = rank(*flags)
    assert document["rules"]["decision"] == "one_look"
    assert document["rules"]["shared_items"] is False
    cut = rank(*flags, "--budget-usd", "20", "--min-items", "4", "--confidence", "0.99999")
    assert cut["stop_reason"] == "budget_exhausted"
    assert 15 < cut["cost_total"] <= 20
    small = ("--costs", "costs.csv", "--budget-usd", "-3")
    assert "-3 usd is too small for the warm-up: 10 items of each model cost 35" in refused(
        *BASE, *small
    )


def test_ranked_models_are_excluded_from_the_training_models(files: Path) -> None:
    rng = np.random.default_rng(6)
    rows = list(draw_scores(BANK, rng.normal(size=4), rng))
    write_scores(files / "others.csv", rows, names=["high", "a", "b", "c"])
    assert "1 models of --train are ranked" in done(*BASE).stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--confidence", "1"), "between 0.5 and 1"),
        (("--scale", "2", "2"), "needs lo < hi"),
        (("--scale", "0", "0.5"), "Expected scores from 0 to 0.5, got 1"),
        (("--selector", "fisher"), "or random, got 'fisher'"),
        (("--budget-usd", "3"), "--budget-usd needs --costs"),
        (("--costs", "few.csv"), "expected a cost of every examinee, got none of 'middle'"),
    ],
)
def test_an_impossible_ranking_is_refused_in_one_sentence(
    files: Path, flags: tuple[str, ...], message: str
) -> None:
    (files / "few.csv").write_text("model,cost\nlow,1\n")
    assert message in refused(*BASE, *flags)
