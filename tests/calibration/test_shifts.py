"""Report card rows for examinees unlike the reference models."""

import numpy as np

from app.calibration.fit.held_out import Blind, Records
from app.calibration.fit.shifts import by_family, by_strength, tried
from app.calibration.pipeline.plan import CalibrationPlan
from app.engine.bank import FloatArray, IntArray
from app.engine.simulation.simulate import draw_scores
from tests.engine.random_banks import clean_bank

BANK = clean_bank(3, 60)


def records(thetas: FloatArray, seen: list[set[int]]) -> Records:
    """Return records with these abilities; note who the banks and curves are learned from."""
    scores = np.array(list(draw_scores(BANK, thetas, np.random.default_rng(5))))
    everybody = set(range(len(scores)))

    def without(rows: IntArray) -> Blind:
        seen.append(everybody - set(rows.tolist()))
        return Blind(bank=BANK)

    def curves(rows: IntArray) -> None:
        seen.append(everybody - set(rows.tolist()))

    return Records(
        scores_of=lambda rows: scores[rows],
        without=without,
        curves_without=curves,
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
        shift = tried(plan, records(thetas, seen), seed=0)
        assert (shift.n_learned, shift.n_examinees) == (n_learned, len(tested))
        # The bank, the curves, and the bank for learning how wide intervals must be.
        assert [len(known) for known in seen] == [n_learned, n_learned, n_rest]
        assert all(known.isdisjoint(tested) for known in seen)
        ((design, figures),) = shift.rows
        assert design == "ability"
        assert figures.n_examinees == len(tested)
        document = shift.to_dict()
        assert document["reason"] is None
        assert document["rows"][0]["accuracy_mae"] == figures.accuracy_mae


def test_families_are_held_out_in_turn_and_reported_together() -> None:
    thetas = np.random.default_rng(1).normal(size=60)
    families = ["a"] * 20 + ["b"] * 6 + ["c"] * 5 + ["d"] * 4 + ["e"] * 2 + [None] * 23
    plan = by_family(families)
    assert [(held.family, held.tested.size) for held in plan.hold_outs] == [
        ("a", 20),
        ("b", 6),
        ("c", 5),
    ]
    seen: list[set[int]] = []
    shift = tried(plan, records(thetas, seen), seed=0)
    assert (shift.families, shift.n_learned, shift.n_examinees) == (
        ("a", "b", "c"),
        40,
        24,
    )  # a part of the largest
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
    missing = tried(few[0], records(np.zeros(30), []), seed=0)
    assert (missing.rows, missing.reason) == ((), few[0].reason)


def test_a_family_is_given_or_read_before_the_first_slash() -> None:
    by_name = CalibrationPlan()
    assert by_name.family_of("org/model/7b") == "org"
    assert by_name.family_of("model-7b") is None
    assert by_name.family_of("/model") is None
    told = CalibrationPlan(families={"model-7b": "mine"})
    assert (told.family_of("model-7b"), told.family_of("org/model")) == ("mine", None)
    assert CalibrationPlan.from_dict(told.to_dict()) == told
