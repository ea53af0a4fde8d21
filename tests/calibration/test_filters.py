"""The matrix of answers, and the filters of items and examinees."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.calibration.filters import (
    MEASURING,
    DropReason,
    FilterSettings,
    apply_filters,
    rest_correlations,
)
from app.calibration.logistic.calibrate import calibrate
from app.calibration.logistic.curves import Family
from app.calibration.matrix import MISSING, ScoreMatrix
from app.engine.responses import ResponseTable
from app.errors import CalibrationError, InvalidInputError
from app.printable import percent
from tests.calibration.simulated import simulate
from tests.values import not_none

NAN = float("nan")
#: Weakly informative items stay in the bank.
KEEPING = FilterSettings()


def published(**thresholds: Any) -> FilterSettings:
    """Drop weakly informative items."""
    return FilterSettings(keep_for_score=False, **thresholds)


#: Only items that surely correlate badly with the rest are found.
SURE = published(point_biserial_confidence=0.95)


def _with_odd_items() -> ScoreMatrix:
    data = simulate(1, Family.TWO_PL, 2000, 6)
    scores = data.matrix.scores.astype(float)
    scores[:, 0] = 1.0
    scores[:, 1] = 0.0
    scores[:, 2] = 1.0
    scores[:10, 2] = 0.0  # 99.5 % right
    scores[:, 3] = np.random.default_rng(2).integers(0, 2, 2000)  # noise
    return ScoreMatrix.of(scores, items=["always", "never", "easy", "noise", "good", "fine"])


def test_every_dropped_item_is_listed_with_reason_and_value() -> None:
    matrix = _with_odd_items()
    filtered = apply_filters(matrix, published())
    assert filtered.constants == {"always": 1.0, "never": 0.0}
    gone = matrix.n_items - filtered.matrix.n_items
    gone += matrix.n_examinees - filtered.matrix.n_examinees
    assert sum(filtered.counts.values()) == gone
    assert filtered.counts[DropReason.CONSTANT] == 2
    found = {item.name: item.reason for item in filtered.items}
    assert found == {
        "always": DropReason.CONSTANT,
        "never": DropReason.CONSTANT,
        "easy": DropReason.TOO_EASY,
        "noise": DropReason.LOW_POINT_BISERIAL,
    }
    assert filtered.matrix.items == ("good", "fine")
    values = {item.name: item.value for item in filtered.items}
    assert values["easy"] == pytest.approx(0.995, abs=1e-3)
    assert abs(values["noise"] or 0) < 0.1


def test_weakly_informative_items_can_stay_for_the_score() -> None:
    filtered = apply_filters(_with_odd_items(), KEEPING)
    assert [(item.name, item.reason) for item in filtered.score_only] == [
        ("always", DropReason.CONSTANT),
        ("never", DropReason.CONSTANT),
        ("easy", DropReason.TOO_EASY),
        ("noise", DropReason.LOW_POINT_BISERIAL),
    ]
    assert filtered.items == ()
    assert filtered.matrix.items == ("always", "never", "easy", "noise", "good", "fine")
    assert apply_filters(_with_odd_items(), published()).score_only == ()


def test_items_for_the_score_alone_make_no_bank() -> None:
    """A bank without measuring items gives the same error as when those are dropped."""
    few = _with_odd_items().select(items=np.array([1, 1, 1, 0, 0, 0]) > 0)
    with pytest.raises(CalibrationError, match="1 were dropped as too_easy"):
        apply_filters(few, KEEPING)


def test_scores_of_remaining_items_are_not_taken_for_all_items() -> None:
    """Two of six items are left; their scores are means over those items."""
    matrix = _with_odd_items()
    means = matrix.item_means()
    (warning,) = apply_filters(matrix, published()).warnings
    assert "cover 2 items, not all 6" in warning
    assert (
        f"{percent(means.mean(), 1)} on all and {percent(means[4:].mean(), 1)} on these" in warning
    )
    assert "--keep-for-score" in warning
    constant_alone = matrix.select(items=np.array([1, 0, 0, 0, 1, 1]) > 0)
    (warning,) = apply_filters(constant_alone, published()).warnings
    assert "--keep-for-score" in warning
    for keeping in (FilterSettings.none(), KEEPING):
        assert apply_filters(matrix, keeping).warnings == ()
        assert apply_filters(constant_alone, keeping).warnings == ()
    assert apply_filters(
        matrix.select(items=np.array([0, 0, 0, 1, 1, 1]) > 0), published()
    ).warnings
    assert not apply_filters(
        matrix.select(items=np.array([0, 0, 0, 0, 1, 1]) > 0), published()
    ).warnings


def test_without_filters_only_uncalibratable_items_are_dropped() -> None:
    nothing = replace(FilterSettings.none(), keep_for_score=False)
    filtered = apply_filters(_with_odd_items(), nothing)
    assert filtered.matrix.items == ("easy", "noise", "good", "fine")
    assert filtered.matrix.n_examinees == 2000


def test_hard_items_are_dropped_only_where_asked_for() -> None:
    scores = simulate(3, Family.TWO_PL, 1000, 6).matrix.scores.astype(float)
    order = np.argsort(-scores[:, 1:].sum(axis=1))
    scores[:, 0] = 0.0
    scores[order[:20], 0] = 1.0  # the best two percent
    matrix = ScoreMatrix.of(scores)
    assert "1" in apply_filters(matrix, published()).matrix.items
    hard = apply_filters(matrix, published(least_mean=0.05)).items
    assert [(item.name, item.reason) for item in hard] == [("1", DropReason.TOO_HARD)]


def test_a_small_spread_is_a_reason_of_its_own() -> None:
    scores = simulate(4, Family.TWO_PL, 20_000, 4).matrix.scores.astype(float)
    scores[:, 0] = 0.0
    scores[0, 0] = 1.0
    scores[10_000:, 0] = np.nan
    matrix = ScoreMatrix.of(scores)
    graded = ResponseTable(matrix.examinees, matrix.items, scores)
    binary = apply_filters(matrix, published()).items
    for dropped in (binary, apply_filters(graded, published()).items):
        assert dropped[0].reason is DropReason.LOW_SPREAD
        assert dropped[0].value == pytest.approx(np.sqrt(1 / 10_000), rel=1e-3)


def test_examinees_who_answered_dropped_items_alone_are_dropped() -> None:
    scores = simulate(4, Family.TWO_PL, 60, 6).matrix.answers()
    scores[:, 0] = 1.0
    scores[7, 1:] = np.nan
    matrix = ScoreMatrix.of(scores)
    binary = apply_filters(matrix, MEASURING)
    graded = ResponseTable(matrix.examinees, matrix.items, scores)
    for found in (binary, apply_filters(graded, MEASURING)):
        assert [(one.name, one.reason) for one in found.examinees] == [("8", DropReason.NO_ANSWERS)]
        assert found.matrix.examinees == (*matrix.examinees[:7], *matrix.examinees[8:])


def test_the_lowest_thousandth_of_examinees_is_dropped() -> None:
    data = simulate(5, Family.TWO_PL, 3000, 60)
    scores = data.matrix.scores.astype(float)
    scores[:2] = 0.0
    dropped = apply_filters(ScoreMatrix.of(scores), published()).examinees
    assert {"1", "2"} <= {examinee.name for examinee in dropped}
    assert len(dropped) <= 3
    assert {examinee.reason for examinee in dropped} == {DropReason.LOW_SCORE}


def test_a_small_group_keeps_all_examinees() -> None:
    assert apply_filters(simulate(6, Family.TWO_PL, 200, 20).matrix).examinees == ()


def test_examinees_without_answers_are_dropped() -> None:
    scores = simulate(6, Family.TWO_PL, 100, 5).matrix.scores.astype(float)
    scores[7] = NAN
    filtered = apply_filters(ScoreMatrix.of(scores), FilterSettings.none())
    assert [(e.name, e.reason) for e in filtered.examinees] == [("8", DropReason.NO_ANSWERS)]


@pytest.mark.parametrize("scores", [[[1.0, 1.0], [1.0, 1.0]], [[1.0, NAN], [NAN, 0.0]]])
def test_a_matrix_of_constants_leaves_nothing_and_says_why(scores: list[list[float]]) -> None:
    with pytest.raises(CalibrationError, match="2 were dropped as constant"):
        apply_filters(ScoreMatrix.of(scores), published())


@pytest.mark.parametrize(("n", "few"), [(9, True), (10, False)])
def test_fewer_than_ten_examinees_are_why_no_item_is_left(n: int, few: bool) -> None:
    with pytest.raises(CalibrationError) as refusal:
        apply_filters(ScoreMatrix.of(np.ones((n, 2))), published())
    assert ("record 30 or more" in refusal.value.detail) == few


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("cells", [2_000_000, 100])
def test_correlations_are_with_the_other_items(
    missing: float, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest score is the mean distance from the means of the other items that were seen."""
    monkeypatch.setattr("app.calibration.filters.BLOCK_CELLS", cells)
    matrix = simulate(7, Family.TWO_PL, 500, 12, missing=missing).matrix
    scores, expected = matrix.answers(), []
    apart = scores - np.nanmean(scores, axis=0)
    for item in range(12):
        seen = ~np.isnan(scores[:, item])
        rest = np.nanmean(np.delete(apart, item, axis=1)[seen], axis=1)
        expected.append(np.corrcoef(scores[seen, item], rest)[0, 1])
    graded = ResponseTable(matrix.examinees, matrix.items, scores)
    for found in (rest_correlations(matrix), rest_correlations(graded)):
        assert found == pytest.approx(np.array(expected), abs=1e-10)
    two = np.arange(2)
    assert np.isnan(rest_correlations(matrix.select(examinees=two))).all()
    assert np.isnan(rest_correlations(graded.select(examinees=two))).all()


def _with_wrong_keys(seed: int, n_examinees: int) -> ScoreMatrix:
    """Simulate 240 items of which the first 12 have wrong keys."""
    scores = simulate(seed, Family.TWO_PL, n_examinees, 240).matrix.scores.astype(float)
    scores[:, :12] = 1 - scores[:, :12]
    return ScoreMatrix.of(scores)


def _weak(matrix: ScoreMatrix, settings: FilterSettings) -> set[int]:
    """Return positions of items dropped for their correlation."""
    dropped = apply_filters(matrix, settings).items
    weak = DropReason.LOW_POINT_BISERIAL
    return {int(item.name) - 1 for item in dropped if item.reason is weak}


def test_few_examinees_drop_wrong_keys_and_hardly_a_sound_item() -> None:
    wrong = set(range(12))
    sound_before, sound_now, wrong_now = 0, 0, 0
    for seed in range(4):
        few = _with_wrong_keys(seed, 40)
        now = _weak(few, SURE)
        sound_before += len(_weak(few, published()) - wrong)
        sound_now += len(now - wrong)
        wrong_now += len(now & wrong)
    assert sound_before > 0.02 * 4 * 228
    assert sound_now < 0.002 * 4 * 228
    assert wrong_now > 0.8 * 4 * 12
    of_many = _weak(_with_wrong_keys(0, 500), SURE)
    assert of_many < wrong
    assert len(of_many) == 11  # almost nobody has the twelfth right


def test_an_item_with_few_answers_has_a_wider_margin() -> None:
    correlation, n_answers = np.array([-0.1, -0.1, np.nan]), np.array([20, 200, 200])
    assert SURE.too_weak(correlation, n_answers).tolist() == [False, True, False]
    assert published().too_weak(correlation, n_answers).tolist() == [True, True, False]


@pytest.mark.parametrize(
    "threshold",
    [
        {"least_sd": -1.0},
        {"greatest_mean": 1.5},
        {"least_percentile": 101.0},
        {"point_biserial_confidence": 0.4},
    ],
)
def test_thresholds_out_of_range_are_refused(threshold: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="must be from"):
        published(**threshold)


def test_examinees_without_an_item_in_common_are_warned_of() -> None:
    rng = np.random.default_rng(3)
    names, items = tuple(map(str, range(12))), tuple(map(str, range(40)))
    scores = np.full((12, 40), NAN)
    scores[:7, :20] = rng.integers(0, 2, (7, 20))
    scores[7:, 20:] = rng.integers(0, 2, (5, 20))

    def warnings() -> list[str]:
        both = ScoreMatrix.of(scores), ResponseTable(names, items, scores.copy())
        filtered = apply_filters(both[0]), apply_filters(both[1])
        return [*filtered[0].warnings, *filtered[1].warnings]

    assert ["5 of 12 examinees share no item" in told for told in warnings()] == [True, True]
    scores[0, 39] = 1.0  # joins the two groups
    assert warnings() == []


def test_missing_answers_are_neither_right_nor_wrong() -> None:
    matrix = ScoreMatrix.of([[1, 0, NAN], [NAN, 0, 1]], items=["x", "y", "z"])
    assert matrix.scores.tolist() == [[1, 0, MISSING], [MISSING, 0, 1]]
    assert matrix.item_means().tolist() == [1.0, 0.0, 1.0]
    assert matrix.examinee_means().tolist() == [0.5, 0.5]
    assert np.isnan(ScoreMatrix.of([[1, NAN], [0, NAN]]).item_means()[1])


def test_blocks_together_are_the_matrix() -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 2, (37, 11)).astype(float)
    scores[3, 4] = NAN
    matrix = ScoreMatrix.of(scores)
    for rows, right, seen in matrix.blocks():
        assert (right == (scores[rows] == 1)).all()
        assert (not_none(seen) == ~np.isnan(scores[rows])).all()


def test_selected_columns_keep_their_names() -> None:
    matrix = ScoreMatrix.of([[1, 0, 1], [0, 1, 1]], examinees=["p", "q"], items=["x", "y", "z"])
    part = matrix.select(items=np.array([2, 0]), examinees=np.array([False, True]))
    assert part.items == ("z", "x")
    assert part.examinees == ("q",)
    assert part.scores.tolist() == [[1, 0]]


def test_a_score_of_two_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidInputError, match=r"got 2\.0 for examinee 'q', item 'x'") as caught:
        ScoreMatrix.of([[1, 0], [2, 1]], examinees=["p", "q"], items=["x", "y"])
    assert caught.value.problems[0].pointer == "/q/x"


@pytest.mark.parametrize(
    ("scores", "names", "words"),
    [
        ([["yes", "no"], ["no", "yes"]], {}, "Expected a table of 0, 1 and missing"),
        ([], {}, "examinees x items"),
        ([[]], {}, "examinees x items"),
        ([1, 0], {}, "examinees x items"),
        ([[[1]]], {}, "examinees x items"),
        ([[1, 0], [0, 1]], {"items": ["x", "x"]}, "item 'x' occurs twice"),
        ([[1, 0], [0, 1]], {"examinees": ["p"]}, "Expected 2 examinee names, got 1"),
    ],
)
def test_anything_but_a_table_with_its_names_is_refused(
    scores: Any, names: dict[str, list[str]], words: str
) -> None:
    with pytest.raises(InvalidInputError, match=words):
        ScoreMatrix.of(scores, **names)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[1, 0, 1]], "at least 2 examinees"),
        ([[1], [0]], "at least 2 items"),
        ([[1, 0], [1, 1]], "1 of 2 items lack"),
        ([[1, 1], [1, 1]], "2 of 2 items lack"),
        ([[1, NAN], [NAN, 0]], "2 of 2 items lack"),
        ([[1, 0], [0, 1], [NAN, NAN]], "no answers"),
    ],
)
def test_a_matrix_without_information_is_refused(scores: list[list[float]], message: str) -> None:
    with pytest.raises(CalibrationError, match=message):
        calibrate(ScoreMatrix.of(scores))
