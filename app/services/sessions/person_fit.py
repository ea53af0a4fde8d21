"""Whether a session's answers fit the model, for those who read its report."""

import math
from collections.abc import Sequence
from typing import Any

from app.engine import Response, inversions, person_fit
from app.engine.bank import FloatArray
from app.services.banks.loaded import LoadedVersion


def person_fit_of(
    version: LoadedVersion, responses: Sequence[Response], theta: float | FloatArray
) -> dict[str, Any]:
    """The fit of these answers at the final estimate, JSON-able."""
    fit = person_fit(version.bank, responses, theta)
    turned = inversions(version.bank, responses, theta)
    return {
        "lz": _finite(fit.lz),
        "p_value": _finite(fit.p_value),
        "flagged": fit.flagged,
        "inversions": {
            "observed": round(turned.observed, 3),
            "expected": round(turned.expected, 3),
        },
        "surprises": [
            {
                "item_id": version.key_at(surprise.item),
                "score": surprise.score,
                "expected": round(surprise.expected, 4),
            }
            for surprise in turned.surprises
        ],
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
