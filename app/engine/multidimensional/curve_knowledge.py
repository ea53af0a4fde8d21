"""Score curves as JSON that is stored with a bank version.

    {"curves": {"items": [keys], "n_reference", "abilities", "slopes", "intercept", "dispersion",
                "errors": {target: {"within", "above", "below", ...}},
                "population": [quantiles]}}

Arrays are packed and items are named as in `app.engine.multidimensional.knowledge`, for the same
reasons.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from app.engine.bank import ItemBank
from app.engine.multidimensional.knowledge import packed, positions, unpacked
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.prediction.model_error import ModelError
from app.engine.prediction.score_curves import ScoreCurves

CURVES = "curves"
#: Assumed number of reference models of a version that does not store it.
_FEW = 20
_ERRORS = {one.name for one in fields(ModelError)}


def curves_to_dict(learned: LearnedCurves, item_ids: Sequence[str]) -> dict[str, Any]:
    """JSON of the curves of the items with these keys, in this order."""
    curves = learned.curves
    return {
        "items": list(item_ids),
        "n_reference": learned.n_reference,
        "abilities": len(curves.slopes),
        "slopes": packed(curves.slopes),
        "intercept": packed(curves.intercept),
        "dispersion": curves.dispersion,
        "population": list(learned.population),
        "errors": {name: error.to_dict() for name, error in learned.errors.items()},
    }


def curves_of(bank: ItemBank, knowledge: Mapping[str, Any]) -> LearnedCurves | None:
    """The stored curves of a bank's items; None if those of an item are missing.

    If the number of reference models is not stored, it is assumed to be small.
    """
    stored = knowledge.get(CURVES)
    at = None if stored is None else positions(stored["items"], bank)
    if stored is None or at is None:
        return None
    n = len(stored["items"])
    slopes = unpacked(stored["slopes"], int(stored["abilities"]), n)[:, at]
    intercept = unpacked(stored["intercept"], n)[at]
    return LearnedCurves(
        curves=ScoreCurves(slopes, intercept, float(stored["dispersion"])),
        n_reference=int(stored.get("n_reference", _FEW)),
        errors={
            name: ModelError.from_dict(error)
            for name, error in stored["errors"].items()
            if error.keys() >= _ERRORS  # errors in an older form are not in logits
        },
        population=tuple(map(float, stored.get("population", ()))),
    )
