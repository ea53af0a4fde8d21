from typing import Any

import numpy as np
import pytest

from app.calibration.logistic.calibrate import calibrate
from app.calibration.matrix import MISSING, ScoreMatrix
from app.errors import CalibrationError, InvalidInputError

NAN = float("nan")


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
        assert seen is not None
        assert (seen == ~np.isnan(scores[rows])).all()


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
