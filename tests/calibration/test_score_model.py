import numpy as np

from app.calibration.score_model import learn_scores
from app.engine.bank import FloatArray, ItemBank
from app.engine.simulation import draw_scores

N_ITEMS, N_EXAMINEES = 80, 60
TARGET = {"all": np.full(N_ITEMS, 1.0 / N_ITEMS)}


def records() -> FloatArray:
    rng = np.random.default_rng(5)
    bank = ItemBank.from_difficulties(a=np.full(N_ITEMS, 1.2), b=rng.normal(size=N_ITEMS))
    return np.array(list(draw_scores(bank, rng.normal(size=N_EXAMINEES), rng)))


def test_widths_and_errors_are_learned_from_records_with_gaps() -> None:
    whole = records()
    gaps = whole.copy()
    gaps[np.random.default_rng(6).random(gaps.shape) < 0.15] = np.nan

    complete = learn_scores(whole, TARGET, np.random.default_rng(0))
    partial = learn_scores(gaps, TARGET, np.random.default_rng(0))

    for count in (8, 16, 32):
        error = complete.errors["all"][count]
        assert 0.7 * error < partial.errors["all"][count] < 2.0 * error
        width = complete.targets["all"].widths.at(count)
        assert 0.6 * width < partial.targets["all"].widths.at(count) < 2.0 * width


def test_an_item_that_nobody_answered_does_not_undo_what_the_others_tell() -> None:
    scores = records()
    scores[:, 3] = np.nan
    errors = learn_scores(scores, TARGET, np.random.default_rng(0)).errors["all"]
    assert errors[32] < errors[8] < 0.2


def test_records_that_miss_most_of_the_target_give_no_error_rather_than_nan() -> None:
    scores = records()
    scores[:, N_ITEMS // 3 :] = np.nan
    assert learn_scores(scores, TARGET, np.random.default_rng(0)).errors["all"] == {}
