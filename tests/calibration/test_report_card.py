"""The report card: tests of held-out examinees, corrections learned from them, and warnings."""

from collections.abc import Callable

import numpy as np
import pytest

from app.calibration.fit.held_out import Blind, HeldOut, Records, held_out
from app.calibration.fit.report_card import DESIGNS, ReportCard, report_card
from app.calibration.fit.shifts import by_family, by_strength, tried
from app.calibration.matrix import split_by_strength
from app.calibration.multidimensional.score_model import learn_scores
from app.calibration.pipeline.calibrator import ExamineeAbilities, task_targets
from app.calibration.pipeline.fit import not_the_score
from app.calibration.pipeline.plan import CalibrationPlan
from app.engine.bank import FloatArray, IntArray, ItemBank
from app.engine.models.multidimensional import Loadings, MultidimensionalModel, Population
from app.engine.multidimensional import abilities_of
from app.engine.simulation.simulate import draw_scores
from app.errors import InvalidInputError
from tests.engine.random_banks import clean_bank
from tests.values import not_none

BANK = clean_bank(3, 130)
N_EXAMINEES = 44


def records(n_examinees: int) -> FloatArray:
    thetas = np.random.default_rng(4).normal(size=n_examinees)
    return np.array(list(draw_scores(BANK, thetas, np.random.default_rng(5))))


def of(scores: FloatArray, taught_by: Callable[[IntArray], Blind]) -> Records:
    return Records(
        scores_of=lambda rows: scores[rows],
        taught_by=taught_by,
        curves_by=lambda _: None,
        n_examinees=len(scores),
    )


def cross_validated(n_examinees: int, left_out: list[IntArray]) -> HeldOut:
    scores = records(n_examinees)

    def taught_by(known: IntArray) -> Blind:
        left_out.append(np.setdiff1d(np.arange(n_examinees), known))
        return Blind(bank=BANK)

    return held_out(of(scores, taught_by))


@pytest.mark.slow
def test_designs_are_compared_by_cross_validation() -> None:
    left_out: list[IntArray] = []
    held = cross_validated(N_EXAMINEES, left_out)
    card, correction = report_card(held), held.correction()
    assert sorted(np.concatenate(left_out).tolist()) == list(range(N_EXAMINEES))
    assert card.n_folds == len(left_out) == len(held.folds) == 5
    assert not_none(correction.theta.reference).spread == pytest.approx(1.0, abs=0.3)
    assert correction.n_examinees == N_EXAMINEES

    assert [row.design for row in card.rows] == list(DESIGNS)
    score, ability, loose, _, tight, random = (row.summary for row in card.rows)
    assert loose.items_mean < tight.items_mean
    assert tight.theta_mae < loose.theta_mae
    assert ability.n_examinees == score.n_examinees == card.n_examinees == N_EXAMINEES
    assert random.items_mean == 100
    document = card.to_dict()
    assert document["rows"][2]["coverage95_raw"] == loose.coverage95_raw
    assert document["rows"][2]["se_target"] == 0.3

    # Selected items are worth more than random ones.
    by_design = {row.design: row for row in card.rows}
    ies = not_none(by_design["ability"].theta_ies)
    assert ies < 1
    assert ies == pytest.approx(ability.theta_mae / random.theta_mae * ability.items_mean / 100)
    worth = score.accuracy_mae / random.accuracy_mae * score.items_mean / 100
    assert by_design["score"].accuracy_ies == pytest.approx(worth)
    assert by_design["random"].theta_ies is None


def test_too_few_examinees_for_a_card_still_correct_intervals() -> None:
    held = cross_validated(20, [])
    correction = held.correction()
    assert correction.n_examinees == 20
    last = {one.row: one for fold in held.folds for one in fold.seen}.values()
    told = [correction.of_estimate(one.estimate, one.state.n_scored) for one in last]
    # The largest factor of so few examinees is their 95 % quantile.
    assert all(one.lo <= seen.theta <= one.hi for one, seen in zip(told, last, strict=True))
    with pytest.raises(InvalidInputError, match="at least 40 examinees, got 20"):
        report_card(held)


def test_fewer_than_twenty_examinees_give_no_correction() -> None:
    with pytest.raises(InvalidInputError, match="at least 20 examinees, got 19"):
        cross_validated(19, [])


def several(n_items: int, seed: int) -> ItemBank:
    """Return a nested bank of two tasks, each with its own ability."""
    rng = np.random.default_rng(seed)
    task = np.arange(n_items) % 2
    loadings = np.column_stack([task == 0, task == 1]) * 0.8
    items = Loadings(np.full(n_items, 1.5), rng.normal(size=n_items), loadings, nested=True)
    population = Population(np.zeros(3), np.eye(3))
    keys = [f"{'maths' if t else 'law'}/{j}" for j, t in enumerate(task)]
    return ItemBank.from_abilities(MultidimensionalModel(items, population), keys)


@pytest.fixture(scope="module")
def several_card() -> ReportCard:
    bank, rng = several(40, 1), np.random.default_rng(2)
    expected = abilities_of(bank).items.expected_score(rng.normal(size=(140, 3)))
    scores = (rng.random(expected.shape) < expected).astype(float)
    scores[::7, :5] = np.nan
    rest, tested = scores[:100], scores[100:]
    learned = learn_scores(rest, task_targets(bank.item_ids), np.random.default_rng(3))
    blind = Blind(bank=bank, targets=learned.targets)
    return report_card(held_out(of(tested, lambda _: blind)))


def test_several_abilities_are_tried_at_a_few_lengths(several_card: ReportCard) -> None:
    assert [row.design for row in several_card.rows] == [
        *("score_8", "score_16", "score_32", "ability", "random")
    ]
    rows = {row.design: row for row in several_card.rows}
    assert rows["score_8"].summary.items_mean == 8
    assert rows["score_32"].summary.items_mean == 32
    errors = [rows[f"score_{n}"].summary.accuracy_mae for n in (8, 16, 32)]
    assert errors == sorted(errors, reverse=True)
    assert rows["random"].summary.accuracy_mae == pytest.approx(0.0, abs=1e-9)  # all 40 items
    assert all(row.summary.accuracy_coverage95 > 0.85 for row in several_card.rows)
    assert all(row.summary.coverage95 > 0.85 for row in several_card.rows)
    document = several_card.to_dict()
    assert document["reference"] == "whole-bank map"
    assert document["rows"][0]["se_target"] is None


def test_the_score_of_each_task_is_evaluated(several_card: ReportCard) -> None:
    for row in several_card.rows:
        assert set(row.tasks) == {"law", "maths"}
        for task in row.tasks.values():
            assert task.n_examinees == 40
            assert task.coverage95 > 0.85
    short, long = several_card.rows[0].tasks["law"], several_card.rows[2].tasks["law"]
    assert long.mae < short.mae < 0.2


DRAWS = np.random.default_rng(1).random((60, 40))
ANSWERS = (np.linspace(0.2, 0.8, 60)[:, None] > DRAWS).astype(np.float64)


def found(theta: FloatArray, answers: FloatArray = ANSWERS) -> list[str]:
    score = np.nanmean(answers, axis=1)
    return not_the_score(ExamineeAbilities(theta, np.ones_like(theta), score), answers)


def test_an_ability_unrelated_to_the_score_is_reported() -> None:
    score = ANSWERS.mean(axis=1)
    apart = np.where(np.arange(60) % 2, 1.0, -1.0)  # a style of answering, unrelated to ability
    assert found(score) == found(2.0 * score - 1.0) == []
    for theta in (apart, -score, apart + score):
        (warning,) = found(theta)
        assert "is not the score" in warning
        assert f"correlate by {np.corrcoef(theta, score)[0, 1]:.2f}." in warning


@pytest.mark.parametrize("answered", [19, 0])
def test_scores_on_parts_of_a_bank_do_not_compare(answered: int) -> None:
    answers = ANSWERS.copy()
    answers[answered:, 3:] = np.nan
    assert found(np.where(np.arange(60) % 2, 1.0, -1.0), answers) == []
    assert found(np.ones(60)) == []  # all items alike


SMALL = clean_bank(3, 60)


def noted(thetas: FloatArray, seen: list[set[int]]) -> Records:
    """Return records with these abilities; note who the banks and curves are learned from."""
    scores = np.array(list(draw_scores(SMALL, thetas, np.random.default_rng(5))))

    def taught_by(known: IntArray) -> Blind:
        seen.append(set(known.tolist()))
        return Blind(bank=SMALL)

    return Records(
        scores_of=lambda rows: scores[rows],
        taught_by=taught_by,
        curves_by=lambda known: seen.append(set(known.tolist())),
        n_examinees=len(scores),
    )


def test_the_strongest_are_held_out_from_bank_and_curves() -> None:
    thetas = np.linspace(-2.0, 2.0, 80)
    seen: list[set[int]] = []
    fifth, third = by_strength(np.argsort(-thetas))
    for plan, n_learned, n_rest, tested in (
        (fifth, 64, 43, range(64, 80)),
        (third, 40, 20, range(56, 80)),
    ):
        seen.clear()
        document = tried(plan, noted(thetas, seen), seed=0)
        assert (document["n_learned"], document["n_examinees"]) == (n_learned, len(tested))
        # The bank, the curves, and the bank for learning how wide intervals must be.
        assert [len(known) for known in seen] == [n_learned, n_learned, n_rest]
        assert all(known.isdisjoint(tested) for known in seen)
        (figures,) = document["rows"]
        assert (figures["design"], figures["n_examinees"]) == ("ability", len(tested))
        assert figures["accuracy_mae"] > 0
        assert document["reason"] is None


def test_the_strongest_are_split_off_by_rank() -> None:
    splits = split_by_strength(np.arange(10))
    assert {held.name: (held.known.tolist(), held.tested.tolist()) for held in splits} == {
        "strongest_fifth": ([2, 3, 4, 5, 6, 7, 8, 9], [0, 1]),
        "strongest_from_weakest": ([5, 6, 7, 8, 9], [0, 1, 2]),
    }


def test_families_are_held_out_in_turn_and_reported_together() -> None:
    thetas = np.random.default_rng(1).normal(size=60)
    families = ["a"] * 20 + ["b"] * 6 + ["c"] * 5 + ["d"] * 4 + ["e"] * 2 + [None] * 23
    plan = by_family(families)
    assert [(held.name, held.tested.size) for held in plan.hold_outs] == [
        ("a", 20),
        ("b", 6),
        ("c", 5),
    ]
    seen: list[set[int]] = []
    document = tried(plan, noted(thetas, seen), seed=0)
    assert document["families"] == ["a", "b", "c"]
    assert (document["n_learned"], document["n_examinees"]) == (40, 24)  # a part of the largest
    assert all(known.isdisjoint(range(20)) for known in seen[:3])


def test_too_few_examinees_are_reported() -> None:
    few = by_strength(np.arange(30))
    assert [plan.hold_outs for plan in few] == [(), ()]
    assert "24 to learn from (at least 20 needed) and 6 to test (at least 10 needed)" in (
        few[0].reason or ""
    )
    assert "15 to learn from" in (few[1].reason or "")
    assert "No families are known" in (by_family([None] * 60).reason or "")
    assert "No family can be held out" in (by_family(["one"] * 60).reason or "")
    assert "9 to test" in (by_family(["a"] * 9 + [None] * 60).reason or "")
    missing = tried(few[0], noted(np.zeros(30), []), seed=0)
    assert (missing["rows"], missing["reason"]) == ([], few[0].reason)


def test_a_family_is_given_or_read_before_the_first_slash() -> None:
    by_name = CalibrationPlan()
    assert by_name.family_of("org/model/7b") == "org"
    assert by_name.family_of("model-7b") is None
    assert by_name.family_of("/model") is None
    told = CalibrationPlan(families={"model-7b": "mine"})
    assert (told.family_of("model-7b"), told.family_of("org/model")) == ("mine", None)
    assert CalibrationPlan.from_dict(told.to_dict()) == told
