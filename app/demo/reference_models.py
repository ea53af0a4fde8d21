"""The demo bank's reference models, all simulated, and what calibration learned from them.

    python -m app.demo.reference_models

writes `reference_models.json` again. As for any bank, curves are learned from complete records.
"""

import json
from pathlib import Path

import numpy as np
from pydantic import JsonValue

from app.demo.bank import DemoBank, demo_bank
from app.engine.models.base import FloatArray

N_MODELS = 100
#: The abilities of the reference models lie evenly between this and its negative, logits.
MOST_ABLE = 2.5
SOURCE = f"{N_MODELS} simulated models, made up for the demo"
_LEARNED = Path(__file__).with_suffix(".json")


def abilities() -> FloatArray:
    """Ability of each model in logits, shape (N_MODELS,)."""
    return np.linspace(-MOST_ABLE, MOST_ABLE, N_MODELS)


def answers(demo: DemoBank) -> FloatArray:
    """Right (1) and wrong (0) answers of each model, drawn with the items' probabilities.

    Returns:
        Answers, shape (N_MODELS, n_items).
    """
    chances = demo.item_bank().expected_score(abilities())
    drawn = np.random.default_rng(demo.seed).random(chances.shape)
    right: FloatArray = (drawn < chances).astype(np.float64)
    return right


def learned() -> dict[str, JsonValue]:
    """What calibration learned from their answers, in the form that a bank version stores."""
    known: dict[str, JsonValue] = json.loads(_LEARNED.read_text())
    return known


def learn(demo: DemoBank) -> dict[str, JsonValue]:
    """Learn `learned()` from the answers, with the calibration's own code; takes seconds."""
    from app.calibration.pipeline.fit import CALIBRATORS
    from app.calibration.pipeline.plan import CalibrationPlan

    plan = CalibrationPlan(model="3pl")
    calibrator = CALIBRATORS[plan.model]
    names = [f"simulated-{number + 1:03}" for number in range(N_MODELS)]
    keys = [item.key for item in demo.items]
    matrix = calibrator.matrix(answers(demo), examinees=names, items=keys)
    return calibrator.curves(matrix, plan)


if __name__ == "__main__":
    _LEARNED.write_text(json.dumps(learn(demo_bank())) + "\n")
