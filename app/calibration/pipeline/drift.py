"""Calibration onto an older scale: items that drifted or have too few answers stay out. Pure.

Items of the old version keep their parameters and hold the scale. Items that drifted, whose new
answers depart from their old curve, are calibrated again, together with the new items.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from app.calibration.filters import DropReason, Filtered, dropped_for, filter_items
from app.calibration.linking.drift import LEAST_ANSWERS, Drift, find_drift
from app.calibration.matrix import ScoreMatrix
from app.calibration.pipeline.calibrator import placed
from app.calibration.pipeline.plan import CalibrationPlan, target_of
from app.engine.bank import FloatArray
from app.engine.lint import Finding
from app.engine.models.logistic import LOGISTIC
from app.printable import percent

DRIFT = "drift"
"""Lint code of an item whose new answers leave its old curve."""


@dataclass(frozen=True, eq=False)
class DriftCheck:
    """Drift of the old items under the new answers, and the calibration that remains.

    Attributes:
        matrix: All answers that take part.
        part: The answers without items that all examinees answered alike.
        part_plan: The plan with the items that did not drift as anchors.
    """

    matrix: ScoreMatrix
    plan: CalibrationPlan
    drift: Drift
    part: ScoreMatrix
    part_plan: CalibrationPlan

    @classmethod
    def of(cls, matrix: ScoreMatrix, plan: CalibrationPlan) -> "DriftCheck":
        """Check the old items for drift.

        Raises:
            CalibrationError: Fewer than two old items with answers.
        """
        target = target_of(plan)
        drift = find_drift(matrix, target, old_se=plan.target_se)
        moved = {key for key, has in zip(drift.keys, drift.drifted, strict=True) if has}
        means = matrix.item_means()
        part = matrix.select(items=(means > 0) & (means < 1))
        part = part.select(examinees=part.answers_per_examinee() > 0)
        stable = np.array([key not in moved for key in target.item_ids])
        link = plan.link and replace(
            plan.link, anchors=tuple(key for key in plan.link.anchors if key not in moved)
        )
        rest = replace(plan, target=target.take(np.flatnonzero(stable)), link=link)
        return cls(matrix=matrix, plan=plan, drift=drift, part=part, part_plan=rest)

    def whole(self, columns: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
        """Columns of all items from those of the calibrated part; anchors keep their parameters."""
        where = {key: j for j, key in enumerate(self.matrix.items)}
        there = np.array([where[key] for key in self.part.items])
        whole = placed(columns, there, self.matrix.n_items)
        target = target_of(self.plan)
        fitted = set(self.part.items)
        anchors = set(target_of(self.part_plan).item_ids)
        for i, key in enumerate(target.item_ids):
            if key in where and (key in anchors or key not in fitted):
                for name in LOGISTIC.columns:
                    whole[name][where[key]] = getattr(target, name)[i]
                if self.plan.target_se is not None:
                    whole["se_b"][where[key]], whole["se_a"][where[key]] = self.plan.target_se[i]
        drift = self.drift
        for j, key in enumerate(drift.keys):
            if drift.drifted[j] and key not in fitted:  # all answered it alike
                whole["intercept"][where[key]] = -whole["a"][where[key]] * drift.new_b[j]
        at = np.array([where[key] for key in drift.keys])
        found = {
            "drift_answers": drift.n_answers.astype(np.float64),
            "drift_old_b": drift.old_b,
            "drift_new_b": drift.new_b,
            "drift_se": drift.se,
            "drift_z": drift.z,
            "drift_p": drift.p_value,
            "drift_distance": drift.distance,
            "drift_easier": drift.easier,
            "drifted": drift.drifted.astype(np.float64),
        }
        return {**whole, **placed(found, at, self.matrix.n_items)}


def drift_figures(drift: Drift) -> dict[str, Any]:
    """Numbers of items that were judged and that drifted, and the direction, as JSON."""
    return {
        "judged": int(np.isfinite(drift.z).sum()),
        "too_few_answers": int(np.isnan(drift.z).sum()),
        "drifted": int(drift.drifted.sum()),
        "easier": int((drift.drifted & (drift.easier > 0)).sum()),
        "harder": int((drift.drifted & (drift.easier < 0)).sum()),
        "mean": drift.mean,
        "sd": drift.sd,
    }


def drift_message(
    key: str, *, old_b: float, new_b: float, z: float, easier: float, n_answers: int
) -> str:
    """Sentence for the bank's owner about an item that drifted."""
    if abs(easier) < 0.02:
        way = "separates examinees differently than it did"
    else:
        side = "easier" if easier > 0 else "harder"
        way = f"has become {side}: {percent(abs(easier))} {'more' if easier > 0 else 'fewer'} right"
    return (
        f"Item {key!r} {way}; {n_answers} new answers put its difficulty at {new_b:.2f}, it was "
        f"{old_b:.2f} (z = {z:.1f})."
    )


def drift_findings(keys: Sequence[str], columns: Mapping[str, FloatArray]) -> list[Finding]:
    """A finding for each item that has drifted, from the columns of a calibration."""
    if "drifted" not in columns:
        return []
    return [
        Finding(
            code=DRIFT,
            severity="error",
            item_id=keys[j],
            field="b",
            value=float(columns["drift_new_b"][j]),
            message=drift_message(
                keys[j],
                old_b=float(columns["drift_old_b"][j]),
                new_b=float(columns["drift_new_b"][j]),
                z=float(columns["drift_z"][j]),
                easier=float(columns["drift_easier"][j]),
                n_answers=int(columns["drift_answers"][j]),
            ),
        )
        for j in np.flatnonzero(columns["drifted"] == 1).tolist()
    ]


def prepared_with_drift(matrix: ScoreMatrix, plan: CalibrationPlan) -> Filtered[ScoreMatrix]:
    """Filter the answers: all old items take part, and new items that can be calibrated.

    Filters that compare an item with the rest of a test are skipped, as adaptive tests match items
    to examinees and so say nothing about that. The version's quarantined items are dropped.
    """
    target = target_of(plan)
    known = set(target.item_ids)
    is_new = np.array([key not in known and key not in plan.aside for key in matrix.items])
    is_aside = np.array([key in plan.aside for key in matrix.items])
    settings = replace(plan.filters, least_point_biserial=None, least_percentile=None)
    keep, dropped, constants = filter_items(matrix, settings)
    n_answers = matrix.answers_per_item()
    # A new item with few answers stays in pretest: its parameters would be guesses.
    few = is_new & keep & (n_answers < LEAST_ANSWERS)
    news = {key for key, new in zip(matrix.items, is_new, strict=True) if new}
    items = [entry for entry in dropped if entry.name in news]
    items += dropped_for(DropReason.FEW_ANSWERS, matrix.items, few, n_answers)
    items += dropped_for(DropReason.QUARANTINED, matrix.items, is_aside)
    taken = matrix.select(items=~is_aside & np.where(is_new, keep & ~few, n_answers > 0))
    held = np.array([key in known for key in taken.items], np.bool_)
    silent = taken.select(items=held).answers_per_examinee() == 0
    return Filtered(
        matrix=taken.select(examinees=~silent),
        items=tuple(items),
        examinees=tuple(dropped_for(DropReason.NO_ANSWERS, taken.examinees, silent)),
        constants={key: value for key, value in constants.items() if key in news},
    )
