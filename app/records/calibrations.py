"""Calibrations as stored, with the abilities and items that they estimated."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from typing_extensions import TypedDict

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


Finite = Annotated[float, Field(allow_inf_nan=False)]


class TaskErrors(TypedDict):
    """Errors of the predicted score of one tag."""

    n_examinees: int
    mae: Finite
    coverage95: Finite


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTest:
    """Tests of held-out examinees on their own recorded answers, by one design.

    Attributes:
        design: Name of the design.
        se_target: Standard error at which the design stops, if it has such a goal.
        figures: Figures by name, such as `items_mean`, `theta_mae` and `coverage95`; `..._raw` is
            for intervals from the model alone.
        tasks: With several abilities, by tag.
    """

    design: str
    se_target: float | None
    figures: Mapping[str, Finite | None]
    tasks: Mapping[str, TaskErrors] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftedTests:
    """Simulated tests of examinees unlike the calibration sample; see `app.calibration.fit.shifts`.

    Attributes:
        hold_out: Which examinees were held out.
        n_learned: Number of examinees in the calibration sample.
        n_examinees: Number of examinees tested.
        families: Families that were held out in turn.
        rows: Results by design.
        reason: Why there are no results.
    """

    hold_out: str
    n_learned: int
    n_examinees: int
    families: tuple[str, ...] = ()
    rows: tuple[SimulatedTest, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTests:
    """Simulated tests by several designs, and of examinees unlike the calibration sample."""

    n_examinees: int
    rows: tuple[SimulatedTest, ...]
    shifts: tuple[ShiftedTests, ...] = ()
