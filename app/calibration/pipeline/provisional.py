"""What a version of uncertain items keeps of them: how uncertain, and what was believed first."""

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
    """Of a version that nobody has answered to: its items are as they are believed to be."""
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
    """The part of the knowledge, JSON-able.

    Args:
        beliefs: Before any answer: the next calibration starts there again, with all answers.
        bank: The items as they are expected to answer.
        items: The most probable ones.
        se_b: Standard errors of their difficulties, shape (n_items,).
        answers: To each item, shape (n_items,).
        n_examinees: Who gave them.
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
    """Answers to the items that are believed in, in their order, those without answers included."""
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
