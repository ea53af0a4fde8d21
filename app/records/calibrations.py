"""Calibrations as stored, with the abilities and items that they estimated."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.items import JsonValue
from app.records.leased import Failure, LeasedRecord

#: Columns stored for each item by default; NaN where unknown. S-X2 is a test of item fit.
COLUMNS = (
    *("a", "intercept", "c", "d"),
    *("se_a", "se_intercept", "se_b", "se_c", "se_d"),
    *("s_x2", "s_x2_df", "s_x2_p", "s_x2_rmsea"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRecord(LeasedRecord):
    """One calibration, or a part of one, as stored; names as in the table `calibrations`."""

    response_set_id: str
    parent_id: str | None
    part: int | None
    n_parts: int | None
    bank_id: str | None
    bank_version_id: str | None
    settings: dict[str, Any]
    publication: dict[str, Any] | None
    publication_failure: Failure | None
    progress: dict[str, JsonValue]
    result: dict[str, Any] | None


@dataclass(frozen=True, slots=True, eq=False)
class FittedExaminees:
    """Abilities of the calibrated examinees, from all their answers.

    Attributes:
        theta: Whole-bank ability, shape (n_examinees,).
        se: Standard error of theta, shape (n_examinees,), NaN where there is no information.
        score: Mean score over the answers given, shape (n_examinees,).
    """

    names: tuple[str, ...]
    theta: NDArray[np.float64]
    se: NDArray[np.float64]
    score: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class FittedItems:
    """Parameters of the calibrated items, with standard errors and fit."""

    keys: tuple[str, ...]
    columns: Mapping[str, NDArray[np.float64]]
