"""Faults of a bank's items, and which items selection should leave out."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from app.engine.bank import ItemBank
from app.errors import UnknownNameError

CODES: Mapping[str, str] = {
    "negative_slope": "better examinees fail the item more often",
    "flat_slope": "the item hardly tells examinees apart",
    "extreme_slope": "a step function, mostly a sign of few or dependent answers",
    "extreme_difficulty": "no examinee is near the item",
    "high_guessing": "most guesses are right",
    "low_upper_asymptote": "the ablest fail the item often",
    "high_dispersion": "scores scatter more than right and wrong answers would",
    "no_variance": "all recorded answers are alike",
    "misfit": "recorded answers do not follow the item's curve",
    "drift": "new answers do not follow the item's old curve: it is easier or harder than it was",
    "duplicate_content": "another item asks the same",
    "missing_key": "the item has no right answer to score by",
    "rewards_listing": "the item has options, and its scorer credits an answer that lists them all",
    "formula_target": "letters after a number are no known unit: answers are compared as formulas",
    "provisional": "the parameters were not estimated from answers",
}
"""All codes of faults; callers, who know contents and answers, find the last eight."""

QUARANTINED: frozenset[str] = frozenset(
    {"negative_slope", "no_variance", "drift", "duplicate_content", "missing_key"}
)
"""Codes that keep an item out of selection unless a caller says otherwise."""

OF_ANSWERS: frozenset[str] = frozenset({"no_variance", "misfit", "drift"})
"""Codes that only recorded answers can show."""

#: Largest |a|; beyond, the curve is a step, often from few or dependent answers.
MAX_SLOPE = 4.0
#: Smallest slope; an item with 0 <= a below it is hardly informative.
MIN_SLOPE = 0.1
#: Largest |b|, logits.
MAX_DIFFICULTY = 6.0
#: Largest c, and smallest d.
MAX_GUESSING, MIN_UPPER_ASYMPTOTE = 0.5, 0.8
#: Largest k; 1 is the dispersion of right and wrong answers.
MAX_DISPERSION = 1.0

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault of one item.

    Attributes:
        code: Code of the fault, one of `CODES`.
        severity: "error" for faults that are quarantined by default.
        item_id: Id of the item.
        field: Parameter or property with the fault.
        value: Value of that field; None if it has no short form.
        message: One sentence for the bank's owner.
    """

    code: str
    severity: Severity
    item_id: str
    field: str
    value: float | str | None
    message: str


def lint(bank: ItemBank) -> list[Finding]:
    """Findings about a bank's parameters, by item position and then by code."""
    a, c, d = bank.a, bank.c, bank.d
    # In a bank of continuous scores c and d are the bounds of the scores, not faults.
    bounds = np.full(bank.n_items, bank.model.name == "continuous")
    checks = {
        "negative_slope": ("a", a < 0, "a is {value:.4g}: better examinees fail it more"),
        "flat_slope": (
            "a",
            (a >= 0) & (a < MIN_SLOPE),
            f"a is {{value:.4g}}, below {MIN_SLOPE}: it hardly tells examinees apart",
        ),
        "extreme_slope": (
            "a",
            np.abs(a) > MAX_SLOPE,
            f"|a| is above {MAX_SLOPE}: a = {{value:.4g}}",
        ),
        "extreme_difficulty": (
            "b",
            np.abs(np.nan_to_num(bank.b)) > MAX_DIFFICULTY,
            f"|b| is above {MAX_DIFFICULTY}: b = {{value:.4g}}",
        ),
        "high_guessing": (
            "c",
            ~bounds & (c > MAX_GUESSING),
            f"c is {{value:.4g}}, above {MAX_GUESSING}: most guesses are right",
        ),
        "low_upper_asymptote": (
            "d",
            ~bounds & (d < MIN_UPPER_ASYMPTOTE),
            f"d is {{value:.4g}}, below {MIN_UPPER_ASYMPTOTE}: the ablest fail it often",
        ),
        "high_dispersion": (
            "k",
            bank.k > MAX_DISPERSION,
            f"k is {{value:.4g}}, above {MAX_DISPERSION:g}: its scores scatter too much",
        ),
    }
    findings: list[tuple[int, Finding]] = []
    for code, (field, faulty, message) in checks.items():
        values = getattr(bank, field)
        for i in np.flatnonzero(faulty).tolist():
            value = float(values[i])
            finding = Finding(
                code=code,
                severity="error" if code in QUARANTINED else "warning",
                item_id=bank.item_ids[i],
                field=field,
                value=value,
                message=f"Item {bank.item_ids[i]!r}: {message.format(value=value)}.",
            )
            findings.append((i, finding))
    return [finding for _, finding in sorted(findings, key=lambda pair: pair[0])]


def quarantine(findings: Iterable[Finding], *, allow: Collection[str] = ()) -> frozenset[str]:
    """Ids of the items to leave out of selection.

    Args:
        findings: Findings of `lint` and of callers, who know contents and answers.
        allow: Codes that are not to quarantine.

    Raises:
        UnknownNameError: `allow` holds an unknown code.
    """
    for code in allow:
        if code not in CODES:
            raise UnknownNameError("lint code", code, CODES, pointer="/allow")
    codes = QUARANTINED - set(allow)
    return frozenset(finding.item_id for finding in findings if finding.code in codes)
