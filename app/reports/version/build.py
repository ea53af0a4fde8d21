"""From a bank and what is known of it to the figures of a report."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.calibration.fit.goodness import verdict
from app.engine.bank import FloatArray, ItemBank
from app.engine.inference.join import JoinCheck
from app.engine.lint import QUARANTINED, Finding
from app.engine.prediction.correction import IntervalCorrection
from app.engine.state import Z_95
from app.errors import InvalidInputError
from app.records.calibrations import SimulatedTests
from app.reports.version.facts import (
    PRECISION_THETAS,
    CalibrationFacts,
    Curves,
    FittedItem,
    FlaggedItem,
    Identity,
    ItemCurve,
    Precision,
    VersionReport,
)

#: Rows of any table of items; the rest is counted.
MAX_ROWS = 100
#: Rows of the table of the items that fit least.
MAX_FITTED = 25

_REACH = (4.0, 8.0)  # thetas shown at least and at most, either side of 0
_STEP = 0.1
_BLUR = 0.5
_LENGTHS = (10, 20, 50, 100)
_BINS = 32
#: How `ItemCurve.chosen` begins for an item with findings.
FLAGGED = "flagged"
_EXAMPLES = 3  # of good items, and of flagged ones
_VERDICTS = ("good", "acceptable", "marginal", "poor")
_BLOCK = 2**20  # values of the matrix of thetas and items at a time


def version_report(
    identity: Identity,
    bank: ItemBank,
    active: NDArray[np.bool_],
    findings: Sequence[Finding],
    *,
    calibration: CalibrationFacts | None = None,
    abilities: Sequence[float] | None = None,
    simulated: SimulatedTests | None = None,
    correction: IntervalCorrection | None = None,
    join: JoinCheck | None = None,
) -> VersionReport:
    """The report of a bank.

    `active` tells which items tests ask, shape (n_items,); `abilities` are quantiles of the
    examinees' abilities, evenly spaced from the least to the greatest.

    Raises:
        InvalidInputError: No item that a test could ask.
    """
    items = np.flatnonzero(active)
    if not len(items):
        raise InvalidInputError("A report needs at least one item that tests can ask, got none.")
    b = bank.b
    reach = _reach(b[items])
    theta = np.round(np.arange(-reach, reach + _STEP / 2, _STEP), 10)
    curves = _curves(bank, items, theta)
    edges = np.linspace(-reach, reach, _BINS + 1)
    placed = np.clip(b[items][~np.isnan(b[items])], edges[0], edges[-1])
    flagged = _flagged(findings, {bank.item_ids[i] for i in items})
    return VersionReport(
        identity=identity,
        curves=curves,
        best_range=_best_range(theta, np.array(curves.information)),
        precision=_precision(bank, items, correction),
        bin_edges=_floats(edges),
        difficulties=tuple(np.histogram(placed, edges)[0].tolist()),
        abilities=None if abilities is None else _binned(abilities, edges),
        examples=_examples(bank, items, theta, flagged),
        flags=dict(Counter(finding.code for finding in findings).most_common()),
        n_flagged=len(flagged),
        flagged=tuple(flagged[:MAX_ROWS]),
        calibration=calibration,
        simulated=simulated,
        correction=None if correction is None else correction.to_dict(),
        join=join,
    )


def judged_items(
    keys: Sequence[str], columns: Mapping[str, FloatArray]
) -> tuple[dict[str, int], tuple[FittedItem, ...]]:
    """How many items fit how well, and those that fit least.

    The columns are a calibration's a, intercept, se_a, se_b, s_x2_p and s_x2_rmsea, NaN where
    unknown, each of shape (n_items,).
    """
    rmsea = columns["s_x2_rmsea"]
    known = np.flatnonzero(~np.isnan(rmsea))
    counts = Counter(verdict(value) for value in rmsea[known].tolist())
    worst = known[np.argsort(-rmsea[known], kind="stable")][:MAX_FITTED]
    a, intercept = columns["a"], columns["intercept"]
    fitted = tuple(
        FittedItem(
            key=keys[i],
            a=float(a[i]),
            se_a=_known(columns["se_a"][i]),
            b=float(-intercept[i] / a[i]) if a[i] else None,
            se_b=_known(columns["se_b"][i]),
            rmsea=float(rmsea[i]),
            p_value=float(columns["s_x2_p"][i]),
            verdict=verdict(float(rmsea[i])),
        )
        for i in worst.tolist()
    )
    return {word: counts[word] for word in _VERDICTS if counts[word]}, fitted


def _reach(b: FloatArray) -> float:
    least, most = _REACH
    known = b[~np.isnan(b)]
    if not len(known):
        return least
    outermost = float(np.abs(np.quantile(known, (0.05, 0.95))).max())
    return min(max(least, float(np.ceil(outermost))), most)


def _curves(bank: ItemBank, items: NDArray[np.intp], theta: FloatArray) -> Curves:
    lengths = [n for n in _LENGTHS if n < len(items)]
    total = np.empty(len(theta))
    score = np.empty(len(theta))
    best = {n: np.empty(len(theta)) for n in lengths}
    step = max(1, _BLOCK // len(items))
    for start in range(0, len(theta), step):
        part = slice(start, start + step)
        information = bank.information(theta[part], items)
        total[part] = information.sum(axis=1)
        score[part] = bank.expected_score(theta[part], items).mean(axis=1)
        for n in lengths:
            most = np.partition(information, len(items) - n, axis=1)[:, len(items) - n :]
            best[n][part] = most.sum(axis=1)
    return Curves(
        theta=_floats(theta),
        information=_floats(total),
        se=_floats(_se(total)),
        se_of_best={n: _floats(_se(values)) for n, values in best.items()},
        expected_score=_floats(score),
    )


def _se(information: FloatArray) -> FloatArray:
    return 1.0 / np.sqrt(1.0 + information)


def _binned(quantiles: Sequence[float], edges: FloatArray) -> tuple[float, ...]:
    """Shares of a distribution in bins; what lies beyond is in the outermost."""
    below = np.interp(edges, quantiles, np.linspace(0, 1, len(quantiles)))
    below[0], below[-1] = 0.0, 1.0
    return _floats(np.diff(below))


def _best_range(theta: FloatArray, information: FloatArray) -> tuple[float, float]:
    """The thetas around the peak with at least half of its information.

    Of the medians over `_BLUR` on either side, because one steep item makes no range.
    """
    width = round(_BLUR / _STEP)
    padded = np.pad(information, width, mode="edge")
    information = np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * width + 1), axis=1)
    high = information >= information.max() / 2
    peak = int(information.argmax())
    first = peak
    while first > 0 and high[first - 1]:
        first -= 1
    last = peak
    while last < len(theta) - 1 and high[last + 1]:
        last += 1
    return float(theta[first]), float(theta[last])


def _precision(
    bank: ItemBank, items: NDArray[np.intp], correction: IntervalCorrection | None
) -> tuple[Precision, ...]:
    def corrected(n: int, half: float, theta: float) -> float:
        return half if correction is None else half * correction.theta.at(n, half, theta)

    ordered = [
        np.cumsum(np.sort(bank.information(theta, items))[::-1]) for theta in PRECISION_THETAS
    ]
    lengths = [n for n in _LENGTHS if n < len(items)]
    if correction is None or not lengths:  # corrected, all items tell their own result exactly
        lengths.append(len(items))
    return tuple(
        Precision(
            n_items=n,
            half_width=tuple(
                corrected(n, Z_95 / math.sqrt(1.0 + gathered[n - 1]), float(theta))
                for theta, gathered in zip(PRECISION_THETAS, ordered, strict=True)
            ),
        )
        for n in lengths
    )


def _flagged(findings: Sequence[Finding], active: set[str]) -> list[FlaggedItem]:
    reasons: dict[str, list[tuple[str, str]]] = {}
    errors: set[str] = set()
    for finding in findings:
        # The name stands beside it already.
        said = finding.message.removeprefix(f"Item {finding.item_id!r}").lstrip(": ")
        reasons.setdefault(finding.item_id, []).append((finding.code, said))
        if finding.code in QUARANTINED:
            errors.add(finding.item_id)
    flagged = [
        FlaggedItem(
            key=key, status="in use" if key in active else "kept out of tests", reasons=tuple(found)
        )
        for key, found in reasons.items()
    ]
    return sorted(flagged, key=lambda item: (item.key in active, item.key not in errors))


def _examples(
    bank: ItemBank, items: NDArray[np.intp], theta: FloatArray, flagged: Sequence[FlaggedItem]
) -> tuple[ItemCurve, ...]:
    """Curves of items that tell most at a low, a middle and a high theta, and of flagged ones."""
    chosen: dict[int, str] = {}
    for level, words in ((-1.0, "a low"), (0.0, "an average"), (1.0, "a high")):
        best = int(items[int(bank.information(level, items).argmax())])
        chosen.setdefault(best, f"tells most at {words} ability")
    position_of = {key: position for position, key in enumerate(bank.item_ids)}
    for item in flagged:
        position = position_of.get(item.key)
        if position is not None:  # one in pretest has no curve
            codes = ", ".join(code.replace("_", " ") for code, _ in item.reasons)
            chosen.setdefault(position, f"{FLAGGED}: {codes}")
        if len(chosen) >= 2 * _EXAMPLES:
            break
    positions = list(chosen)
    probability = bank.expected_score(theta, np.array(positions, dtype=np.intp))
    b = bank.b
    return tuple(
        ItemCurve(
            key=bank.item_ids[i],
            chosen=chosen[i],
            a=float(bank.a[i]),
            b=_known(b[i]),
            c=float(bank.c[i]),
            d=float(bank.d[i]),
            probability=_floats(probability[:, j]),
        )
        for j, i in enumerate(positions)
    )


def _floats(values: FloatArray) -> tuple[float, ...]:
    return tuple(values.tolist())


def _known(value: Any) -> float | None:
    return None if np.isnan(value) else float(value)
