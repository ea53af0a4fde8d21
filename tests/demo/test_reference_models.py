"""The demo bank's reference models, and the stored knowledge learned from them."""

import numpy as np
import pytest

from app.calibration.multidimensional.score_curves import fit_curves
from app.demo import reference_models
from app.demo.bank import demo_bank
from app.engine.knowledge import curves_of

BANK = demo_bank()
LEARNED = curves_of(BANK.item_bank(), reference_models.learned())


def test_stored_knowledge_belongs_to_the_present_bank() -> None:
    assert LEARNED is not None
    fitted = fit_curves(reference_models.answers(BANK))
    np.testing.assert_allclose(LEARNED.curves.intercept, fitted.intercept, atol=0.05)
    np.testing.assert_allclose(LEARNED.curves.slopes[0], fitted.slopes[0], atol=0.05)
    assert LEARNED.n_reference == reference_models.N_MODELS


@pytest.mark.slow  # a hundred simulated tests
def test_learning_again_gives_the_stored_file() -> None:
    again = curves_of(BANK.item_bank(), reference_models.learn(BANK))
    assert again is not None
    assert LEARNED is not None
    np.testing.assert_allclose(again.curves.slopes, LEARNED.curves.slopes, atol=1e-6)
    assert again.errors.keys() == LEARNED.errors.keys()
    for name, error in again.errors.items():
        assert error.within == pytest.approx(LEARNED.errors[name].within, abs=1e-4)
        assert error.above == pytest.approx(LEARNED.errors[name].above, abs=1e-4)


def test_they_differ_in_ability_as_models_do() -> None:
    scores = reference_models.answers(BANK).mean(axis=1)
    assert scores[:10].mean() < 0.35
    assert scores[-10:].mean() > 0.8
