"""The report of a bank: its figures, and its page."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.engine.bank import ItemBank
from app.engine.lint import CODES, Finding, lint, quarantine
from app.engine.prediction.correction import IntervalCorrection, IntervalFactor
from app.errors import InvalidInputError
from app.records.calibrations import ShiftedTests, SimulatedTest, SimulatedTests
from app.reports.version.build import MAX_ROWS, judged_items, version_report
from app.reports.version.facts import (
    CalibrationFacts,
    FittedItem,
    Identity,
    VersionReport,
)
from app.reports.version.page import FLAG_WORDS, render, summary
from tests.reports.pages import Page
from tests.reports.sessions import NASTY


def bank(n_items: int = 60, *, seed: int = 0) -> ItemBank:
    rng = np.random.default_rng(seed)
    return ItemBank.from_difficulties(
        a=rng.uniform(0.5, 2.0, n_items),
        b=rng.normal(size=n_items),
        c=rng.uniform(0, 0.3, n_items),
        item_ids=[NASTY, *(f"q{i}" for i in range(1, n_items))],
    )


def report(items: ItemBank | None = None, **fields: Any) -> VersionReport:
    items = items or bank()
    findings = fields.pop("findings", lint(items))
    left_out = quarantine(findings)
    active = np.array([key not in left_out for key in items.item_ids])
    identity = Identity(
        bank=NASTY,
        version=2,
        model="3pl",
        scale="s",
        n_items=items.n_items,
        n_active=int(active.sum()),
        n_quarantined=int((~active).sum()),
        n_pretest=0,
    )
    return version_report(identity, items, active, findings, **fields)


def facts(**fields: Any) -> CalibrationFacts:
    values: dict[str, Any] = {
        "model": "3pl",
        "n_examinees": 1200,
        "n_items": 60,
        "scored_answers": 72_000,
        "converged": True,
        "log_likelihood": -1000.5,
        "aic": 2361.0,
        "bic": 3000.0,
        "fit": {"rmsea": 0.03, "rmsea_lo": 0.02, "rmsea_hi": 0.04, "verdict": "good"},
        "dropped_items": {"too_easy": 3},
        "dropped_examinees": {},
        "item_verdicts": {"good": 59, "poor": 1},
        "worst_items": (
            FittedItem(
                key=NASTY,
                a=1.0,
                se_a=0.1,
                b=None,
                se_b=None,
                rmsea=0.2,
                p_value=1e-9,
                verdict="poor",
            ),
        ),
    } | fields
    return CalibrationFacts(**values)


def card(design: str = "score", **fields: Any) -> SimulatedTests:
    figures = {"items_mean": 21.4, "coverage95": 0.95, "accuracy_coverage95": 0.95} | fields
    target = figures.pop("se_target", None)
    row = SimulatedTest(design=design, se_target=target, figures=figures)
    return SimulatedTests(n_examinees=300, rows=(row,))


CORRECTION = IntervalCorrection(
    theta=IntervalFactor(answers=(5, 50), factor=(0.9, 1.3), usual=(0.8, 0.4), power=0.0),
    n_examinees=300,
)


# Figures


def test_the_curves_are_those_of_the_items_in_use() -> None:
    items = bank()
    found = report(items)
    theta = np.array(found.curves.theta)
    assert (theta[0], theta[-1]) == (-4.0, 4.0)
    np.testing.assert_allclose(found.curves.information, items.information(theta).sum(axis=1))
    np.testing.assert_allclose(
        found.curves.expected_score, items.expected_score(theta).mean(axis=1)
    )
    np.testing.assert_allclose(found.curves.se, 1 / np.sqrt(1 + np.array(found.curves.information)))
    flipped = replace_slope(items, 5)
    assert report(flipped).curves.information[40] < found.curves.information[40]


def replace_slope(items: ItemBank, position: int) -> ItemBank:
    a = items.a.copy()
    a[position] = -1.0
    return replace(items, a=a)


def test_longer_tests_have_smaller_errors_and_all_items_the_smallest() -> None:
    rows = report().precision
    assert [row.n_items for row in rows] == [10, 20, 50, 60]
    widths = np.array([row.half_width for row in rows])
    assert (np.diff(widths, axis=0) < 0).all()
    np.testing.assert_allclose(widths[-1, 2], 1.959964 * report().curves.se[40], rtol=1e-6)


def test_a_correction_widens_the_errors_of_a_test() -> None:
    plain, corrected = report().precision[2], report(correction=CORRECTION).precision[2]
    assert plain.n_items == 50
    assert [row.n_items for row in report(correction=CORRECTION).precision] == [10, 20, 50]
    expected = 1.3 * np.array(plain.half_width)
    np.testing.assert_allclose(corrected.half_width, expected, rtol=1e-9)


def test_the_best_range_is_around_the_peak_and_not_one_steep_item() -> None:
    rng = np.random.default_rng(2)
    items = ItemBank.from_difficulties(
        a=[*rng.uniform(0.8, 1.2, 100), 30.0], b=[*rng.normal(0, 0.7, 100), 3.0]
    )
    lo, hi = report(items).best_range
    assert lo < -0.8
    assert 0.8 < hi < 3.0


def test_items_kept_out_of_tests_come_first_among_the_flagged() -> None:
    items = replace_slope(bank(), 7)
    finding = Finding(
        code="misfit", severity="warning", item_id="q3", field="s", value=0.1, message="M."
    )
    found = report(items, findings=[finding, *lint(items)])
    assert [(item.key, item.status) for item in found.flagged] == [
        ("q7", "kept out of tests"),
        ("q3", "in use"),
    ]
    assert found.flags == {"misfit": 1, "negative_slope": 1}
    assert [item.chosen for item in found.examples if "flagged" in item.chosen] == [
        "flagged: negative slope",
        "flagged: misfit",
    ]


def test_a_bank_without_an_item_in_use_has_no_report() -> None:
    items = ItemBank.from_intercepts(a=[-1.0], intercept=[0.0])
    with pytest.raises(InvalidInputError, match="at least one item"):
        report(items)


def test_the_worst_items_come_first_and_unjudged_ones_not_at_all() -> None:
    columns = {
        "a": np.array([1.0, 0.0, 1.0, 1.0]),
        "intercept": np.array([0.5, 0.5, 0.5, 0.5]),
        "se_a": np.array([0.1, np.nan, 0.1, 0.1]),
        "se_b": np.array([0.1, np.nan, 0.1, 0.1]),
        "s_x2_p": np.array([0.5, 1e-9, np.nan, 0.4]),
        "s_x2_rmsea": np.array([0.01, 0.09, np.nan, 0.06]),
    }
    verdicts, worst = judged_items(["w", "x", "y", "z"], columns)
    assert verdicts == {"good": 1, "acceptable": 1, "marginal": 1}
    assert [(item.key, item.b, item.se_a) for item in worst] == [
        ("x", None, None),
        ("z", -0.5, 0.1),
        ("w", -0.5, 0.1),
    ]


# Page


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"calibration": facts(), "correction": CORRECTION},
        {"calibration": facts(fit={}, worst_items=(), item_verdicts={}, warnings=(NASTY,))},
        {"simulated": card(design=NASTY, coverage95=None)},
        {"findings": [Finding(code=c, severity="info", item_id="q1", field="a", value=None,
                              message=NASTY) for c in (*FLAG_WORDS, "unheard_of")
                      if c not in {"negative_slope", "no_variance"}]},
    ],
)  # fmt: skip
def test_the_page_is_whole_safe_and_accessible(fields: dict[str, Any]) -> None:
    text = render(report(**fields))
    page = Page(text)
    page.require_safe_and_accessible()
    assert not re.search(r"https?:|url\(|@import", text)
    assert "<script" not in text
    assert NASTY.splitlines()[0] in page.text
    assert [tag for tag, _ in page.elements].count("svg") > 5
    for part in text.split("<section")[1:]:
        assert ("<svg" in part) == ("Show table" in part)
    assert "nan" not in re.sub(r"[a-z]nan|nan[a-z]", "", text.lower())


OF_TASKS = SimulatedTest(
    design="score_16",
    se_target=None,
    figures={"items_mean": 16.0, "coverage95": 0.95},
    tasks={NASTY: {"n_examinees": 150, "mae": 0.0312, "coverage95": 0.94}},
)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, ("Not computed for this bank.", "no correction is stored",
              "imported, without the answers")),
        ({"correction": CORRECTION}, ("tried on 300 models whose answers",
                                      "multiplied by 0.90 after 5 answers, 1.30 after 50 answers")),
        ({"simulated": card(coverage95_raw=0.834)}, ("Simulated tests of 300 models",
                                                     "95\u00a0% (83)")),
        ({"simulated": card(design="se_0.3", se_target=0.3)}, ("until SE\u00a00.3",)),
        ({"simulated": SimulatedTests(n_examinees=150, rows=(OF_TASKS,))},
         ("16 questions for the score", "Scores of the tasks", "0.031 (94)")),
    ],
)  # fmt: skip
def test_the_page_says_what_is_known_and_what_is_not(
    fields: dict[str, Any], said: tuple[str, ...]
) -> None:
    text = Page(render(report(**fields))).text
    assert [one for one in said if one not in text] == []


def test_the_summary_speaks_plainly() -> None:
    known = report(calibration=facts(), correction=CORRECTION, simulated=card())
    said = " ".join(summary(known))
    assert "60 questions (items) in use, calibrated by the answers of 1,200 models" in said
    assert "tells models apart best when their ability lies between" in said
    assert re.search(r"A test of 50 well chosen questions finds the whole-bank .* ±0\.\d\d", said)
    assert "How well the model fits: good" in said
    assert "corrected so that they hold" in said
    assert "a test took 21 questions on average, and 95 of 100" in said
    alone = ItemBank.from_intercepts(a=[1.0], intercept=[0.0])
    assert "A test of 1 well chosen question places" in " ".join(summary(report(alone)))


def test_models_unlike_those_learned_from_have_a_table_or_a_reason() -> None:
    figures = {"theta_mae": 0.177, "coverage95": 0.94, "accuracy_mae": 0.013}
    row = SimulatedTest(design="score", se_target=None, figures=figures)
    fifth = ShiftedTests(hold_out="strongest_fifth", n_learned=66, n_examinees=17, rows=(row,))
    none = ShiftedTests(hold_out="families", n_learned=0, n_examinees=0, reason=f"{NASTY} too few")
    simulated = replace(card(), shifts=(fifth, none))
    text = " ".join(Page(render(report(simulated=simulated))).text.split())
    assert "all but the strongest fifth (66) the strongest fifth (17) test for the score" in text
    assert f"all but one family to that family: {' '.join(NASTY.split())} too few" in text
    plain = Page(render(report(simulated=card()))).text
    assert "unlike those learned from" not in plain
    assert "Scores of the tasks" not in plain


def test_known_abilities_are_drawn_above_the_difficulties() -> None:
    quantiles = np.quantile(np.random.default_rng(0).normal(size=5000), np.linspace(0, 1, 101))
    found = report(abilities=quantiles.tolist())
    assert found.abilities is not None
    assert sum(found.abilities) == pytest.approx(1.0)
    inside = np.array(found.abilities)[np.abs(np.array(found.bin_edges[:-1]) + 0.125) < 1]
    assert inside.sum() == pytest.approx(0.68, abs=0.02)
    assert "models of the calibration" in Page(render(found)).text


def test_every_code_of_lint_is_explained() -> None:
    assert set(FLAG_WORDS) == set(CODES)


def test_a_bank_of_100_000_items_makes_a_page_of_ordinary_size() -> None:
    n_items = 100_000
    rng = np.random.default_rng(1)
    items = ItemBank.from_difficulties(
        a=rng.uniform(-0.2, 2.0, n_items), b=rng.normal(size=n_items)
    )
    found = report(items)
    text = render(found)
    assert found.n_flagged > 5000
    assert f"The first {MAX_ROWS} of {found.n_flagged:,} flagged questions." in text
    assert len(text) < 300_000


def test_shares_of_reference_models_are_those_of_their_abilities() -> None:
    strong = report(abilities=np.linspace(2.0, 3.0, 101).tolist(), calibration=facts())
    told = " ".join(summary(strong))
    assert re.search(r"better than 0\s?% of the reference models to better than 10\s?%", told)
    (unknown,) = (line for line in summary(report(calibration=facts())) if "apart best" in line)
    assert "reference models" not in unknown
