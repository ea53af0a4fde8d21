"""What a bank version stores is read back for the items of any bank, in its order."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit

from app.engine.bank import ItemBank
from app.engine.knowledge import (
    ABILITIES,
    CURVES,
    PREDICTION,
    abilities_to_dict,
    curves_of,
    curves_to_dict,
    packed,
    prediction_to_dict,
    targets_of,
    tasks_in,
    unpacked,
    with_abilities,
)
from app.engine.prediction.learned_curves import LearnedCurves, ReferencePopulation
from app.engine.prediction.score_curves import ScoreCurves
from app.engine.prediction.score_model import ScoreModel, Target, Widths
from tests.engine.random_banks import clean_bank, several
from tests.values import not_none

ORDER = np.array([4, 0, 7, 2])
RNG = np.random.default_rng(2)


@pytest.mark.parametrize("nested", [False, True])
def test_abilities_are_those_of_the_items_left_in_their_order(nested: bool) -> None:
    bank = several(1, n_items=8, nested=nested)
    abilities = not_none(bank.abilities)
    knowledge = {ABILITIES: abilities_to_dict(abilities, bank.item_ids)}
    plain = clean_bank(1, 8).take(ORDER)
    left = with_abilities(bank.take(ORDER), knowledge)
    found = not_none(left.abilities)
    assert found.items.nested is nested
    assert found.items.slopes == pytest.approx(abilities.items.slopes[ORDER], rel=1e-6)
    assert found.items.intercept == pytest.approx(abilities.items.intercept[ORDER])
    assert (found.population.mean == abilities.population.mean).all()
    assert (found.population.covariance == abilities.population.covariance).all()
    assert with_abilities(plain, {}).abilities is None
    assert with_abilities(plain, knowledge).abilities is None  # its items have other names


def test_targets_have_their_own_widths_or_those_of_the_whole_bank() -> None:
    bank = clean_bank(1, 8)
    model = ScoreModel(RNG.uniform(size=8), RNG.normal(size=(2, 8)), RNG.uniform(0.1, 0.2, 8))
    widths = {"all": Widths((1, 10), (2.0, 2.5)), "law": Widths((5,), (3.0,))}
    targets = {name: Target(model, np.full(8, 0.125), width) for name, width in widths.items()}
    knowledge = {PREDICTION: prediction_to_dict(targets, bank.item_ids)}
    assert tasks_in(knowledge) == frozenset({"law"})
    assert not tasks_in({})
    tags = [("law",), ("law", "all"), ("art",), ()]
    found = targets_of(bank.take(ORDER), knowledge, tags)
    assert list(found) == ["all", "art", "law"]
    assert found["law"].weights.tolist() == [0.5, 0.5, 0.0, 0.0]
    assert found["all"].weights.tolist() == [0.25] * 4
    for name, of in (("all", "all"), ("art", "all"), ("law", "law")):
        read = found[name]
        assert (read.widths.counts, read.widths.half) == (widths[of].counts, widths[of].half)
        assert read.model.mean == pytest.approx(model.mean[ORDER], rel=1e-6)
        assert read.model.factors == pytest.approx(model.factors[:, ORDER], rel=1e-6)
        assert read.model.noise == pytest.approx(model.noise[ORDER], rel=1e-6)
    assert targets_of(clean_bank(1, 9), knowledge, [()] * 9) == {}


def test_curves_of_an_older_form_are_completed() -> None:
    curves = ScoreCurves(RNG.normal(size=(2, 8)), RNG.normal(size=8), dispersion=0.6)
    population = ReferencePopulation(quantiles=(-2.0, 0.0, 2.5), mean=0.3, sd=1.2, n_items=11)
    learned = LearnedCurves(curves=curves, n_reference=70, population=population)
    bank = clean_bank(1, 8)
    stored = curves_to_dict(learned, bank.item_ids)
    found = not_none(curves_of(bank.take(ORDER), {CURVES: stored}))
    assert found.curves.slopes == pytest.approx(curves.slopes[:, ORDER], rel=1e-6)
    assert found.curves.intercept == pytest.approx(curves.intercept[ORDER], rel=1e-6)
    assert (found.curves.dispersion, found.n_reference) == (0.6, 70)
    assert found.population == population
    assert curves_of(clean_bank(1, 9), {CURVES: stored}) is None

    older = {name: value for name, value in stored.items() if name not in ("n_reference", "level")}
    completed = not_none(curves_of(bank, {CURVES: older}))
    assert completed.n_reference == 20  # few, to be on the safe side
    low, level, high = (
        logit(expit(z * curves.slopes[0] + curves.intercept).mean()) for z in (-1, 0, 1)
    )
    told = not_none(completed.population)
    assert (told.mean, told.sd) == pytest.approx((level, (high - low) / 2), rel=1e-5)
    assert (told.quantiles, told.n_items) == (population.quantiles, 8)


@pytest.mark.parametrize(
    ("part", "read"),
    [
        (ABILITIES, with_abilities),
        (CURVES, curves_of),
        (PREDICTION, partial(targets_of, tags=[(), ()])),
    ],
)
def test_knowledge_without_its_items_is_broken_and_not_missing(
    part: str, read: Callable[[ItemBank, dict[str, Any]], object]
) -> None:
    with pytest.raises(KeyError, match="items"):
        read(clean_bank(1, 2), {part: {}})


def test_an_array_of_another_size_is_refused() -> None:
    text = packed(np.arange(6.0))
    assert unpacked(text, -1, 3).tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert unpacked(text, 6).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    with pytest.raises(ValueError, match="larger than"):
        unpacked(text, 5)
    with pytest.raises(ValueError, match="reshape"):
        unpacked(text, 7)
