"""The JSON object that `sextant calibrate --json` writes, read back."""

from collections.abc import Mapping
from typing import Annotated, Any, BinaryIO

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from app.engine.bank import FloatArray
from app.errors import FileFormatError
from app.exchange.files import read_bytes
from app.records.calibrations import Finite, SimulatedTests


class _Part(BaseModel):
    """Fields that other versions add are no fault."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class FitFigures(_Part):
    """How well the model fits as a whole; see `app.calibration.fit.goodness`."""

    m2: Finite | None = None
    df: int | None = None
    p_value: Finite | None = None
    rmsea: Finite | None = None
    rmsea_lo: Finite | None = None
    rmsea_hi: Finite | None = None
    srmsr: Finite | None = None
    variance_r2: Finite | None = None
    verdict: str = ""
    m2_items: int | None = None
    m2_missing: str | None = None


class DependentPair(_Part):
    """Two items that share more than ability."""

    first: str
    second: str
    q3: Finite


class LocalDependence(_Part):
    """Q3 of all pairs."""

    n_flagged: int
    pairs: tuple[DependentPair, ...] = ()


class Compared(_Part):
    """Another family on the same answers."""

    model: str
    log_likelihood: Finite
    n_parameters: int
    aic: Finite
    bic: Finite


#: Figures of a row that reports show.
_SHOWN = (
    *("items_mean", "items_max", "exposure_max", "overlap", "theta_mae", "theta_ies"),
    *("accuracy_mae", "accuracy_ies", "coverage95", "coverage95_raw"),
    *("accuracy_coverage95", "accuracy_coverage95_raw"),
)


def _card(value: object) -> object:
    """A report card, or a part of one; its rows get an object `figures`, as `SimulatedTest` has."""
    if isinstance(value, Mapping):
        parts = {name: _card(part) for name, part in value.items() if name in ("rows", "shifts")}
        if "design" in value:
            parts["se_target"] = value.get("se_target")
            parts["figures"] = {name: value.get(name) for name in _SHOWN}
        return {**value, **parts}
    return [*map(_card, value)] if isinstance(value, list) else value


class Figures(_Part):
    """What every calibration tells, in a file or in the database."""

    scored_answers: int | None = None
    log_likelihood: Finite
    n_parameters: int | None = None
    aic: Finite
    bic: Finite
    converged: bool
    fit: FitFigures = FitFigures()
    local_dependence: LocalDependence | None = None
    warnings: tuple[str, ...] = ()
    comparison: tuple[Compared, ...] = ()
    report_card: Annotated[SimulatedTests | None, BeforeValidator(_card)] = None


class _Dropped(_Part):
    reason: str


class CalibrationFile(Figures):
    """The whole of a file; items stand in the order of its bank."""

    n_examinees_kept: int
    kept: int
    dropped: tuple[_Dropped, ...] = ()
    score_only: tuple[_Dropped, ...] = ()
    dropped_examinees: tuple[_Dropped, ...] = ()
    model: str
    items: tuple[dict[str, Any], ...] = ()
    knowledge: dict[str, Any] = Field(default_factory=dict)

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the items."""
        return tuple(str(entry["item"]) for entry in self.items)

    def column(self, name: str) -> FloatArray:
        """One figure of every item, NaN where unknown, shape (n_items,)."""
        return np.array([_number(entry.get(name)) for entry in self.items], dtype=np.float64)


def read_calibration(source: bytes | BinaryIO, *, name: str = "calibration") -> CalibrationFile:
    """Read a file.

    Raises:
        FileFormatError: It is something else; names the first field at fault.
    """
    try:
        found = CalibrationFile.model_validate_json(read_bytes(source, name))
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise FileFormatError(
            f"{name}: expected what `sextant calibrate --json` writes; {place}: {first['msg']}."
        ) from exc
    if any("item" not in entry for entry in found.items):
        raise FileFormatError(f"{name}: expected the name of every item in items.")
    return found


def _number(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:  # a whole number of hundreds of digits
            pass
    return np.nan
