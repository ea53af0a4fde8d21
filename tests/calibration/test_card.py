"""Warnings of the calibration card about the ability found."""

import numpy as np
import pytest

from app.calibration.pipeline.calibrator import ExamineeAbilities
from app.calibration.pipeline.card import not_the_score
from app.engine.bank import FloatArray

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
