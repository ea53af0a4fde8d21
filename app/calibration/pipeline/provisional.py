"""Knowledge of a bank version about its uncertain items: their uncertainty and first beliefs."""

from typing import Any

import numpy as np

from app.calibration.filters import Dropped, DropReason, Filtered
from app.calibration.logistic.beliefs import ItemBeliefs, widening
from app.calibration.matrix import MISSING, ScoreMatrix
from app.engine.bank import FloatArray, IntArray, ItemBank
from app.engine.models.base import ItemParameters

PROVISIONAL = "provisional"
"""Part of a bank version's knowledge."""


def without_answers(beliefs: ItemBeliefs, bank: ItemBank) -> dict[str, Any]:
    """The knowledge of a version without answers, whose items follow the first beliefs."""
    answers = np.zeros(len(beliefs.keys), dtype=np.intp)
    items = beliefs.start().natural()
    return after_answers(beliefs, bank, items, beliefs.se_b, answers, n_examinees=0)


def after_answers(
    beliefs: ItemBeliefs,
    bank: ItemBank,
    items: ItemParameters,
    se_b: FloatArray,
    answers: IntArray,
    *,
    n_examinees: int,
) -> dict[str, Any]:
    """The knowledge of a version with answers, as JSON.

    Args:
        beliefs: Beliefs before any answer, from which later calibrations, too, start.
        bank: The items' expected response curves.
        items: The most probable parameters of the items.
        se_b: Standard errors of the difficulties, logits, shape (n_items,).
        answers: Number of answers to each item, shape (n_items,).
        n_examinees: Number of examinees who gave the answers.
    """
    known = se_b[np.isfinite(se_b)]
    return {
        "n_examinees": n_examinees,
        "n_answers": int(answers.sum()),
        "answers_per_item": float(np.median(answers)),
        "se_b": float(np.median(known)) if len(known) else None,
        "widening": widening(bank, items),
        "beliefs": beliefs.to_dict(),
    }


def prepared_for_beliefs(matrix: ScoreMatrix, beliefs: ItemBeliefs) -> Filtered[ScoreMatrix]:
    """Answers to the items of the beliefs, in the same order, including unanswered items."""
    place = {key: j for j, key in enumerate(matrix.items)}
    scores = np.full((matrix.n_examinees, len(beliefs.keys)), MISSING, dtype=np.uint8)
    for j, key in enumerate(beliefs.keys):
        if key in place:
            scores[:, j] = matrix.scores[:, place[key]]
    wide = ScoreMatrix.of(scores, examinees=matrix.examinees, items=beliefs.keys)
    silent = wide.answers_per_examinee() == 0
    known = set(beliefs.keys)
    kept = wide.select(examinees=~silent) if not silent.all() else wide
    kept.require_two_examinees()
    return Filtered(
        matrix=kept,
        items=tuple(
            Dropped(key, DropReason.NO_PRIOR, None) for key in matrix.items if key not in known
        ),
        examinees=tuple(
            Dropped(wide.examinees[i], DropReason.NO_ANSWERS, None) for i in np.flatnonzero(silent)
        ),
        constants={},
    )
