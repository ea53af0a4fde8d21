import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.adaptive import step_rng
from app.engine.bank import ItemBank
from app.engine.design.design import Design, quarantined, stops_when
from app.engine.design.parts import PredictionMethod
from app.engine.design.selection import CriterionName
from app.engine.selection.base import Ask
from app.engine.selection.information import MaximumInformation, PerCost
from app.engine.selection.sampled import WantedOrSampled
from app.engine.selection.selectors import (
    AStratified,
    ContentBalanced,
    Randomesque,
    RandomStart,
    SympsonHetter,
)
from app.engine.state import Response
from app.errors import InvalidInputError
from tests.engine.random_banks import clean_bank

EVERYTHING: dict[str, Any] = {
    "preset": "atlas",
    "estimator": {
        "method": "map",
        "prior_mean": 0.5,
        "prior_sd": 1.5,
        "se": "information",
        "nodes": 61,
        "range": [-6, 6],
        "rule": "rectangle",
        "information": "model",
    },
    "selection": {
        "criterion": "mutual_information",
        "top_k": 3,
        "random_start": 2,
        "nearest_start": False,
        "strata": 5,
        "cost_weight": 0.5,
        "quarantine": False,
        "content": {"targets": {"algebra": 0.5, "a/b~c": 0.2}},
        "exposure": None,
        "target": None,
    },
    "stopping": {
        "se": 0.2,
        "min_items": 5,
        "max_items": 40,
        "theta_change": 0.01,
        "min_information": 0.1,
        "cut_score": {"theta": 0.3, "method": "sprt", "confidence": 0.9, "indifference": 0.1},
        "score_margin": 0.05,
        "any_of": [{"se": 0.1}, {"all_of": [{"se": 0.3}, {"theta_change": 0.02}]}],
        "all_of": [{"score_margin": 0.1, "min_items": 3}, {"cut_score": {"theta": 0.0}}],
    },
    "prediction": {"method": "p-irt"},
    "budget": {"usd": 1.5, "tokens": 1000, "seconds": 60},
    "concurrency": 4,
}


def problems(document: object) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as caught:
        Design.from_dict(document)
    assert len(caught.value.detail) < 300
    return {problem.pointer: problem.detail for problem in caught.value.problems}


@pytest.mark.parametrize("document", [{}, {"preset": "atlas"}, EVERYTHING])
def test_a_design_survives_json_and_back(document: dict[str, Any]) -> None:
    design = Design.from_dict(document)
    text = json.dumps(design.to_dict(), allow_nan=False)
    assert Design.from_dict(json.loads(text)) == design


def test_given_values_are_kept() -> None:
    written = Design.from_dict(EVERYTHING).to_dict()
    for section in ("estimator", "selection", "budget"):
        assert written[section] == EVERYTHING[section]
    assert written["stopping"]["cut_score"] == EVERYTHING["stopping"]["cut_score"]
    assert written["stopping"]["any_of"][1]["all_of"][1]["theta_change"] == 0.02


def test_presets_fill_in_missing_values_and_null_removes_them() -> None:
    atlas = Design.from_dict({"preset": "atlas", "stopping": {"se": 0.2}})
    assert (atlas.stopping.se, atlas.stopping.min_items, atlas.stopping.max_items) == (0.2, 30, 500)
    assert (atlas.selection.top_k, atlas.selection.nearest_start) == (5, True)
    traces = Design.from_dict({"preset": "atlas-traces"})
    for published in (Design.from_dict({"preset": "atlas"}), traces):
        stopping = published.stopping
        assert (stopping.se, stopping.min_items, stopping.max_items) == (0.1, 30, 500)
        assert (published.selection.quarantine, published.concurrency) == (False, 1)
    assert (traces.estimator.nodes, traces.estimator.range) == (33, (-4.0, 4.0))
    assert (traces.selection.top_k, traces.selection.random_start) == (5, 1)
    endless = Design.from_dict({"stopping": {"max_items": None}})
    assert endless.stopping.max_items is None
    assert endless.stopping.score_margin == Design.from_dict({}).stopping.score_margin


@pytest.mark.parametrize(
    ("document", "preset"),
    [
        ({}, "score"),
        ({"stopping": {"max_items": 30}}, "score"),
        ({"stopping": {"se": None, "score_margin": 0.03}}, "score"),
        ({"selection": {"criterion": "random"}}, "score"),
        ({"stopping": {"se": 0.3}}, "ability"),
        ({"stopping": {"cut_score": {"theta": 0.0}}}, "ability"),
        ({"stopping": {"all_of": [{"score_margin": 0.1}, {"any_of": [{"se": 1}]}]}}, "ability"),
        ({"stopping": {"theta_change": 0.1}}, "ability"),
        ({"stopping": {"min_information": 0.1}}, "ability"),
        ({"selection": {"criterion": "a_stratified"}}, "ability"),
        ({"selection": {"criterion": "maximum_information"}}, "ability"),
        ({"prediction": {"method": "p-irt"}}, "ability"),
        ({"prediction": {"method": "design"}}, "score"),
        ({"preset": "score", "stopping": {"se": 0.3}}, "score"),
    ],
)
def test_the_goal_decides_the_preset(document: dict[str, Any], preset: str) -> None:
    assert Design.from_dict(document).preset.value == preset


def test_an_empty_design_measures_the_score() -> None:
    design = Design.from_dict({})
    stopping = design.stopping
    assert (stopping.score_margin, stopping.min_items, stopping.max_items) == (0.04, 20, 60)
    assert (stopping.se, design.concurrency) == (None, 4)
    assert design.selection.criterion is CriterionName.V_OPTIMAL
    assert design.prediction.method is PredictionMethod.COMBINED
    assert (design.estimator.prior_mean, design.estimator.prior_sd) == (0.0, 1.0)
    assert (design.selection.top_k, design.selection.strata) == (1, 4)
    cut = Design.from_dict({"stopping": {"cut_score": {"theta": 0.5}}}).stopping.cut_score
    assert cut is not None
    assert (cut.confidence, cut.indifference) == (0.95, 0.2)


@pytest.mark.parametrize(
    ("document", "se", "margin"),
    [
        ({"preset": "ability", "stopping": {"score_margin": 0.03}}, None, 0.03),
        ({"preset": "score", "stopping": {"se": 0.3}}, 0.3, None),
        ({"stopping": {"all_of": [{"score_margin": 0.01}, {"score_margin": 0.02}]}}, None, None),
        ({"stopping": {"cut_score": {"theta": 0.0}}}, 0.05, None),
        ({"stopping": {"score_margin": None}}, None, None),
    ],
)
def test_a_given_precision_replaces_the_one_of_the_preset(
    document: dict[str, Any], se: float | None, margin: float | None
) -> None:
    stopping = Design.from_dict(document).stopping
    assert (stopping.se, stopping.score_margin) == (se, margin)


def test_another_method_takes_no_standard_error_or_grid_from_the_preset() -> None:
    estimator = Design.from_dict({"preset": "atlas", "estimator": {"method": "wle"}}).estimator
    assert (estimator.se, estimator.nodes) == (None, None)


@pytest.mark.parametrize(
    ("said", "least", "most"), [({"max_items": 12}, 12, 12), ({"min_items": 600}, 600, 600)]
)
def test_given_item_limits_override_the_preset(said: dict[str, int], least: int, most: int) -> None:
    stopping = Design.from_dict({"preset": "atlas", "stopping": said}).stopping
    assert (stopping.min_items, stopping.max_items) == (least, most)


@pytest.mark.parametrize(
    ("document", "pointer", "words"),
    [
        ({"presett": "atlas"}, "/presett", "preset"),
        ({"preset": "atlass"}, "/preset", "atlas"),
        ({"estimator": {"method": "eapp"}}, "/estimator/method", "eap"),
        ({"estimator": {"nodes": 1}}, "/estimator/nodes", ">= 2"),
        ({"estimator": {"range": [4, 4]}}, "/estimator/range", "lo < hi"),
        ({"estimator": {"prior_sd": 0}}, "/estimator/prior_sd", ">= 0.001"),
        ({"estimator": {"prior_sd": 20.5}}, "/estimator/prior_sd", "<= 20"),
        ({"selection": {"criterion": "mfi"}}, "/selection/criterion", "maximum_information"),
        ({"selection": {"top_k": 0}}, "/selection/top_k", ">= 1"),
        ({"selection": {"top_k": True}}, "/selection/top_k", "whole number"),
        ({"selection": {"cost_weight": 1.5}}, "/selection/cost_weight", "<= 1"),
        ({"selection": {"content": {}}}, "/selection/content/targets", "required"),
        (
            {"selection": {"content": {"targets": {"x/y": 2}}}},
            "/selection/content/targets/x~1y",
            "<= 1",
        ),
        ({"selection": {"exposure": {"max_rate": 0}}}, "/selection/exposure/max_rate", "> 0"),
        ({"selection": {"quarantine": "yes"}}, "/selection/quarantine", "true or false"),
        ({"stopping": {"se": "0.3"}}, "/stopping/se", "number"),
        ({"stopping": {"se": float("nan")}}, "/stopping/se", "number"),
        ({"stopping": {"score_margin": 0.6}}, "/stopping/score_margin", "<= 0.5"),
        ({"stopping": {"min_items": 9, "max_items": 8}}, "/stopping/min_items", "max_items"),
        ({"stopping": {"cut_score": {}}}, "/stopping/cut_score/theta", "required"),
        ({"stopping": {"any_of": {"se": 1}}}, "/stopping/any_of", "list"),
        ({"stopping": {"any_of": [{"see": 1}]}}, "/stopping/any_of/0/see", "se"),
        ({"stopping": {"all_of": [{"min_items": 3}]}}, "/stopping/all_of/0", "at least one"),
        ({"stopping": {"any_of": [{"se": 1}] * 11}}, "/stopping/any_of", "at most 10"),
        (
            {"stopping": {"any_of": [{"all_of": [{"any_of": [{"se": 1}]}]}]}},
            "/stopping/any_of",
            "at most 2 deep",
        ),
        ({"budget": {"usd": -1}}, "/budget/usd", "> 0"),
        ({"budget": {"usd": 10**400}}, "/budget/usd", "more than 60 digits"),
        ({"stopping": {"se": -(10**400)}}, "/stopping/se", "more than 60 digits"),
        ({"budget": {"eur": None}}, "/budget/eur", "usd"),
        ({"budget": dict.fromkeys(map(str, range(31)), 1)}, "/budget", "at most 30 fields"),
        ({"budget": []}, "/budget", "object"),
        ({"concurrency": 0}, "/concurrency", ">= 1"),
        ({"stopping": 3}, "/stopping", "object"),
    ],
)
def test_each_fault_is_named_by_its_pointer(
    document: dict[str, Any], pointer: str, words: str
) -> None:
    assert words in problems(document)[pointer]


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ({"range": [-1e308, 1e308]}, r"within \[-50, 50\]"),
        ({"range": [-4, 4], "nodes": 3}, "at least 17 nodes"),
    ],
)
def test_a_stored_grid_without_posterior_opens_but_cannot_start_a_test(
    grid: dict[str, Any], words: str
) -> None:
    estimator = Design.from_dict({"estimator": grid}).estimator
    assert estimator.build().grid is not None
    with pytest.raises(InvalidInputError, match=words) as caught:
        estimator.require_useful()
    assert [problem.pointer for problem in caught.value.problems] == ["/estimator/range"]


def test_a_number_of_items_that_is_none_is_the_only_fault() -> None:
    for most in (-3, 0, True, False):
        assert set(problems({"stopping": {"max_items": most}})) == {"/stopping/max_items"}


def test_all_faults_are_reported_at_once() -> None:
    faults = problems({"budget": {"usd": -1}, "stopping": {"se": 0}, "x": 1})
    assert set(faults) == {"/budget/usd", "/stopping/se", "/x"}
    both = problems({"stopping": {"se": 0, "min_items": 9, "max_items": 8}})
    assert set(both) == {"/stopping/se", "/stopping/min_items"}
    with pytest.raises(InvalidInputError, match=r"/budget/usd: .*, got -1; /x: no such field.*\.$"):
        Design.from_dict({"budget": {"usd": -1}, "x": 1})
    with pytest.raises(InvalidInputError, match=r"; and 2 more\.$"):
        Design.from_dict(dict.fromkeys("abcdefg", 1))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 99) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    section=st.sampled_from(["estimator", "selection", "stopping", "budget", "preset", "other"]),
    key=st.sampled_from(
        ["method", "range", "criterion", "content", "exposure", "se", "cut_score", "any_of", "usd"]
    ),
    value=json_values,
)
def test_any_input_gives_a_design_or_problems(section: str, key: str, value: Any) -> None:
    for document in ({section: {key: value}}, {section: value}, value):
        try:
            design = Design.from_dict(document)
        except InvalidInputError:
            continue
        assert Design.from_dict(design.to_dict()) == design


@pytest.mark.parametrize(
    ("selection", "pointer"),
    [
        ({"content": {"targets": {"algebra": 1.0}}}, "/selection/content"),
        ({"cost_weight": 1.0}, "/selection/cost_weight"),
        ({"exposure": {"max_rate": 0.2}}, "/selection/exposure"),
    ],
)
def test_a_bank_without_what_the_design_needs_is_refused(
    selection: dict[str, Any], pointer: str
) -> None:
    design = Design.from_dict({"preset": "ability", "selection": selection})
    with pytest.raises(InvalidInputError) as caught:
        design.build(clean_bank(1, 20))
    assert caught.value.problems[0].pointer == pointer


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_where_costs_count_expensive_questions_are_sampled_less(weight: float) -> None:
    """By Neyman's allocation, in inverse proportion to the root of the cost."""
    costs = np.geomspace(1.0, 100.0, 20)
    design = Design.from_dict({"selection": {"criterion": "v_optimal", "cost_weight": weight}})
    selector = design.build(clean_bank(1, 20), costs=costs).selector
    assert isinstance(selector, WantedOrSampled)
    width = costs**-0.5 if weight else np.ones(20)
    assert selector.sampled.width == pytest.approx(width / width.sum())


def test_a_target_tag_that_no_item_has_is_refused() -> None:
    design = Design.from_dict({"selection": {"content": {"targets": {"algebr": 1.0}}}})
    with pytest.raises(InvalidInputError, match="Did you mean 'algebra'"):
        design.build(clean_bank(1, 20), tags=[("algebra",)] * 20)


def test_shares_that_no_items_can_have_are_refused_by_their_sum() -> None:
    design = Design.from_dict({"selection": {"content": {"targets": {"a": 0.9, "b": 0.9}}}})
    with pytest.raises(InvalidInputError, match=r"at most 1, got a sum of 1\.8") as caught:
        design.build(clean_bank(1, 20), tags=[("a",), ("b",)] * 10)
    assert caught.value.problems[0].pointer == "/selection/content/targets"
    design.build(clean_bank(1, 20), tags=[("a", "b"), ("b",)] * 10)


@pytest.mark.parametrize(
    "facts",
    [
        {"active": np.ones(19, dtype=np.bool_)},
        {"active": np.zeros(20, dtype=np.bool_)},
        {"costs": np.zeros(20)},
        {"tags": [("x",)]},
    ],
)
def test_facts_that_do_not_fit_the_bank_are_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        Design.from_dict({}).build(clean_bank(1, 20), **facts)


def test_every_part_of_a_design_reaches_the_test() -> None:
    bank = clean_bank(1, 30)
    tags = [("algebra",)] * 15 + [("logic",)] * 15
    costs = np.ones(30)
    document = {
        "preset": "ability",
        "selection": {
            "random_start": 1,
            "cost_weight": 1.0,
            "content": {"targets": {"algebra": 0.5, "logic": 0.5}},
            "exposure": {"max_rate": 0.2},
        },
    }
    test = Design.from_dict(document).build(bank, tags=tags, costs=costs, exposure=np.ones(30))
    assert isinstance(test.selector, ContentBalanced)
    assert isinstance(test.selector.then, RandomStart)
    assert isinstance(test.selector.then.then, SympsonHetter)
    assert isinstance(test.selector.then.then.criterion, PerCost)
    assert isinstance(test.selector.then.then.criterion.criterion, MaximumInformation)
    stratified = Design.from_dict({"selection": {"criterion": "a_stratified"}}).build(bank)
    assert isinstance(stratified.selector, Randomesque)
    assert isinstance(stratified.selector.criterion, AStratified)


BY_CUT = {"cut_score": {"method": "ci", "theta": 0.0}, "min_items": 5, "max_items": 20}


@pytest.mark.parametrize(
    ("stopping", "asks_theta", "looks"),
    [
        ({"se": 0.3}, True, 1.0),
        (BY_CUT, True, 4.0),  # from 5 answers to 20
        ({**BY_CUT, "min_items": 20}, True, 1.0),
        ({"score_margin": 0.03}, False, 1.0),
        ({"all_of": [{"score_margin": 0.03}, BY_CUT]}, True, 4.0),
        ({"any_of": [{"score_margin": 0.03}, {"max_items": 9}]}, False, 1.0),
    ],
)
def test_requirements_of_nested_rules_are_found(
    stopping: Any, asks_theta: bool, looks: float
) -> None:
    read = Design.from_dict({"preset": "score", "stopping": stopping}).stopping
    assert (read.asks_theta, read.looks) == (asks_theta, looks)


def test_quarantined_items_are_skipped_unless_the_caller_gives_active_items() -> None:
    bank = ItemBank.from_difficulties(a=[1.0, -2.0, 1.5], b=[0.0, 0.0, 0.5])
    assert quarantined(bank).tolist() == [False, True, False]

    def asked(document: dict[str, Any], active: list[bool] | None = None) -> set[int]:
        mask = None if active is None else np.array(active)
        test = Design.from_dict(document).build(bank, active=mask)
        state = test.start()
        while isinstance(step := test.ask(state, step_rng(1, state)), Ask):
            state = test.tell(state.with_pending(step.item), Response(step.item, 1.0))
        return {int(item) for item in state.asked}

    assert asked({"preset": "ability"}) == {0, 2}
    assert asked({"preset": "ability", "selection": {"quarantine": False}}) == {0, 1, 2}
    assert asked({}) == {0, 1, 2}  # the item counts in the score
    assert asked({"preset": "atlas"}) == {0, 1, 2}
    assert asked({}, active=[False, True, True]) == {1, 2}


def test_tests_on_one_bank_share_its_index() -> None:
    bank = clean_bank(1, 30)
    first, second = (Design.from_dict({"preset": "ability"}).build(bank) for _ in range(2))
    assert first.pool.index is second.pool.index


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            {},
            "Stops when the score is known to ±4 points, with at least 20 scored answers "
            "(min_items); at the latest at 60 items asked.",
        ),
        (
            {"stopping": {"se": 0.3}},
            "Stops when SE <= 0.3, with at least 20 scored answers (min_items); "
            "at the latest at 50 items asked.",
        ),
        (
            {"stopping": {"se": 0.3, "max_items": 12}},
            "Stops when SE <= 0.3, with at least 12 scored answers (min_items); "
            "at the latest at 12 items asked.",
        ),
        (
            {"stopping": {"score_margin": None, "min_items": 1, "max_items": 3}},
            "Stops at 3 items asked. A result needs 5 scored answers.",
        ),
        (
            {
                "stopping": {"score_margin": None, "min_items": 0, "max_items": None},
                "budget": {"usd": 0.5, "tokens": 9000, "seconds": 60},
            },
            "Stops at 0.5 USD or 9000 tokens or 60 seconds.",
        ),
        (
            {
                "stopping": {
                    "min_items": 1,
                    "max_items": None,
                    "cut_score": {"theta": -0.5},
                    "all_of": [{"se": 0.4}, {"score_margin": 0.05, "min_items": 8}],
                }
            },
            "Stops when theta is above or below -0.5 with confidence 0.95 or (SE <= 0.4 and the "
            "score is known to ±5 points with at least 8 scored answers); "
            "at the latest at every item of the bank asked.",
        ),
    ],
)
def test_goals_and_limits_are_named(document: dict[str, Any], words: str) -> None:
    assert stops_when(Design.from_dict(document), reachable_se=0.01) == words


@pytest.mark.parametrize(
    ("n_items", "words"),
    [
        (50, "with at least 20 scored answers (min_items); at the latest at 50 items asked."),
        (
            30,
            "with at least 20 scored answers (min_items); "
            "at the latest at 30 items asked (all of the bank).",
        ),
        (
            15,
            "Stops at 15 items asked (all of the bank): "
            "no goal ends a test of fewer than 20 scored answers (min_items).",
        ),
    ],
)
def test_a_bank_of_fewer_items_than_the_limits_ends_the_test(n_items: int, words: str) -> None:
    design = Design.from_dict({"stopping": {"se": 0.3}})
    assert stops_when(design, 0.01, n_items).endswith(words)


def test_a_target_out_of_reach_is_named_as_such() -> None:
    said = stops_when(Design.from_dict({"preset": "ability"}), reachable_se=0.2134)
    assert "SE 0.05 cannot be reached" in said
    assert "0.213 at best" in said
