from dataclasses import replace

import pytest

from app.engine.bank import ItemBank
from app.engine.lint import CODES, QUARANTINED, lint, quarantine
from app.errors import UnknownNameError

FAULTY = ItemBank.from_intercepts(
    a=[1.0, -1.0, 0.0, 0.05, 9.0, -9.0, 1.0, 1.0, 1.0],
    intercept=[0.0, 0.0, 1.0, 0.0, 0.0, 0.0, -7.0, 0.0, 0.0],
    c=[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.6, 0.0],
    d=[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.7],
    item_ids=["good", "down", "flat", "faint", "cliff", "drop", "hard", "guess", "slip"],
)


def test_each_fault_is_found_with_item_field_and_value_in_the_order_of_the_bank() -> None:
    assert [(f.item_id, f.code, f.field, f.value) for f in lint(FAULTY)] == [
        ("down", "negative_slope", "a", -1.0),
        ("flat", "flat_slope", "a", 0.0),
        ("faint", "flat_slope", "a", 0.05),
        ("cliff", "extreme_slope", "a", 9.0),
        ("drop", "negative_slope", "a", -9.0),
        ("drop", "extreme_slope", "a", -9.0),
        ("hard", "extreme_difficulty", "b", 7.0),
        ("guess", "high_guessing", "c", 0.6),
        ("slip", "low_upper_asymptote", "d", 0.7),
    ]
    assert all(repr(f.item_id) in f.message and f.code in CODES for f in lint(FAULTY))


def test_only_errors_quarantine_unless_told_otherwise() -> None:
    findings = lint(FAULTY)
    assert quarantine(findings) == {"down", "drop"}  # a flat item does not harm a score
    assert quarantine(findings, allow=["negative_slope"]) == frozenset()
    for finding in findings:
        assert (finding.severity == "error") == (finding.code in QUARANTINED)


def test_findings_of_callers_quarantine_too() -> None:
    twin = replace(lint(FAULTY)[0], code="duplicate_content", item_id="good")
    assert quarantine([twin]) == {"good"}
    assert quarantine([replace(twin, code="provisional")]) == frozenset()


def test_an_unknown_code_is_refused_with_a_near_miss() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'negative_slope'"):
        quarantine([], allow=["negative_slopes"])
