"""Tests of held-out examinees, and what a version learns from them."""

import numpy as np
import pytest

from app.calibration.report_card import DESIGNS, ReportCard, report_card
from app.engine.bank import FloatArray, IntArray, ItemBank
from app.engine.simulation import draw_scores
from app.errors import InvalidInputError
from tests.engine.random_banks import clean_bank

BANK = clean_bank(3, 130)


def records(n_examinees: int) -> FloatArray:
    thetas = np.random.default_rng(4).normal(size=n_examinees)
    return np.array(list(draw_scores(BANK, thetas, np.random.default_rng(5))))


def card_of(n_examinees: int, held_out: list[IntArray]) -> ReportCard:
    scores = records(n_examinees)

    def bank_without(rows: IntArray) -> ItemBank:
        held_out.append(rows)
        return BANK

    return report_card(lambda rows: scores[rows], bank_without, n_examinees)


@pytest.fixture(scope="module")
def card() -> ReportCard:
    return card_of(60, [])


def test_every_design_has_its_row(card: ReportCard) -> None:
    assert [row.design for row in card.rows] == list(DESIGNS)
    loose, _, tight, default, random = (row.summary for row in card.rows)
    assert loose.items_mean < tight.items_mean
    assert tight.theta_mae < loose.theta_mae
    assert default.n_examinees == card.n_examinees == 60
    assert random.items_mean == 100
    document = card.to_dict()
    assert document["rows"][0]["coverage95_raw"] == loose.coverage95_raw
    assert document["rows"][0]["se_target"] == 0.3


def test_chosen_items_are_worth_more_than_random_ones(card: ReportCard) -> None:
    by_design = {row.design: row for row in card.rows}
    ies = by_design["default"].ies
    assert ies is not None
    assert ies > 1
    chosen, random = by_design["default"].summary, by_design["random"].summary
    spent = chosen.items_mean * chosen.theta_mae
    assert ies == pytest.approx(100 * random.theta_mae / spent)
    assert by_design["random"].ies is None


def test_small_sets_are_held_out_in_turn_and_each_examinee_teaches(card: ReportCard) -> None:
    held_out: list[IntArray] = []
    again = card_of(60, held_out)
    assert sorted(np.concatenate(held_out).tolist()) == list(range(60))
    assert [row.summary for row in again.rows] == [row.summary for row in card.rows]
    assert again.n_folds == len(held_out) == 5
    assert again.correction.n_examinees == 60


def test_too_few_examinees_have_no_card() -> None:
    with pytest.raises(InvalidInputError, match="at least 40 examinees, got 39"):
        card_of(39, [])
