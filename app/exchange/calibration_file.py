"""The JSON object that `sextant calibrate --json` writes, read back."""

from typing import Annotated, Any, BinaryIO

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.engine.bank import FloatArray
from app.errors import FileFormatError
from app.exchange.files import read_bytes

Finite = Annotated[float, Field(allow_inf_nan=False)]


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


class CardTask(_Part):
    """Predicted scores of one tag."""

    n_examinees: int
    mae: Finite
    coverage95: Finite


class CardRow(_Part):
    """Tests of held-out examinees by one design; see `app.calibration.fit.report_card`."""

    design: str
    se_target: Finite | None = None
    items_mean: Finite | None = None
    items_max: int | None = None
    theta_mae: Finite | None = None
    coverage95: Finite | None = None
    coverage95_raw: Finite | None = None
    accuracy_mae: Finite | None = None
    accuracy_coverage95: Finite | None = None
    accuracy_coverage95_raw: Finite | None = None
    exposure_max: Finite | None = None
    overlap: Finite | None = None
    theta_ies: Finite | None = None
    accuracy_ies: Finite | None = None
    tasks: dict[str, CardTask] = Field(default_factory=dict)


class Shift(_Part):
    """Tests of examinees unlike those learned from; see `app.calibration.fit.shifts`."""

    hold_out: str
    n_learned: int
    n_examinees: int
    families: tuple[str, ...] = ()
    rows: tuple[CardRow, ...] = ()
    reason: str | None = None


class Card(_Part):
    """Tests of held-out examinees by several designs."""

    n_examinees: int
    rows: tuple[CardRow, ...]
    shifts: tuple[Shift, ...] = ()


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
    report_card: Card | None = None


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
