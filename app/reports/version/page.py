"""The report of a bank version as sentences and as a page."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from markupsafe import Markup

from app.records.calibrations import SimulatedTest, SimulatedTests
from app.reports.charts import Line, histogram, line_chart
from app.reports.formats import count, item_name, percent, short_digests, signed
from app.reports.joins import join_caution, join_sentence
from app.reports.rendering import document, fragment
from app.reports.version.build import FLAGGED
from app.reports.version.facts import (
    PRECISION_THETAS,
    ItemCurve,
    VersionReport,
)

#: Logits between the rows of a table of curves.
_ROW_WIDTH = 0.5
#: Begins the name of tests whose questions were chosen for the predicted score.
_FOR_SCORE = "score_"
_SHOWN_FACTORS = 6

FIT_WORDS: Mapping[str, str] = {
    "good": "the model describes the answers well",
    "acceptable": "the model describes the answers well enough for use",
    "marginal": "the model misses part of what is in the answers: read intervals with care",
    "poor": "the model does not describe the answers: do not rely on these numbers",
    "too few to tell": "answers of so few examinees fit many models: add more examinees",
}

#: Finding to its meaning and what to do about it.
FLAG_WORDS: Mapping[str, tuple[str, str]] = {
    "negative_slope": (
        "Better models get it wrong more often.",
        "Mostly a wrong answer key or an ambiguous question. Check the key.",
    ),
    "flat_slope": (
        "Able and weak models answer it alike.",
        "It hardly tells anything; it may stay, or be rewritten.",
    ),
    "extreme_slope": (
        "It flips from wrong to right within a narrow range of ability.",
        "Often a sign of few answers, or of questions that copy each other.",
    ),
    "extreme_difficulty": (
        "Its difficulty lies far from every model that answered.",
        "It will rarely be asked.",
    ),
    "high_guessing": (
        "Even the weakest models get it right more than half of the time.",
        "Look for options that give the answer away.",
    ),
    "low_upper_asymptote": (
        "Even the ablest models often fail it.",
        "Check the answer key and the scorer.",
    ),
    "high_dispersion": (
        "Its scores scatter more than right and wrong answers would.",
        "Look at how its answers are scored.",
    ),
    "no_variance": ("All recorded answers are alike.", "It tells nothing about these models."),
    "misfit": (
        "The recorded answers do not follow the item's curve.",
        "Its difficulty depends on more than ability. Look at the question.",
    ),
    "duplicate_content": ("Another item asks the same.", "One of the two is enough."),
    "missing_key": ("It has no right answer to score by.", "Add the answer key."),
    "rewards_listing": ("An answer that lists all options earns credit.", "Score it by `choice`."),
    "formula_target": ("Its target is compared as a formula.", "Put a blank before a unit."),
    "provisional": ("Its parameters are a guess.", "Calibrate it."),
    "drift": (
        "New answers do not follow the curve that old answers gave it.",
        "The models may have seen it in training. Consider retiring it.",
    ),
}


def render(report: VersionReport) -> str:
    """The page."""
    identity = report.identity
    version = "" if identity.version is None else f", version {identity.version}"
    title = f"{identity.bank}{version}"
    return document(title, f"Bank report: {title}", "Sextant bank report", sections(report))


def sections(report: VersionReport) -> Markup:
    """What stands below the heading."""
    curves, edges = report.curves, report.bin_edges
    lengths = list(curves.se_of_best)
    lengths = [n for n in lengths if n in (10, 50)] or lengths[:1]
    models = report.abilities or [
        math.exp(-((left + right) ** 2) / 8) for left, right in pairwise(edges)
    ]
    of_item = "mean score" if report.identity.model == "continuous" else "chance of a right answer"
    every = max(1, round(_ROW_WIDTH / (curves.theta[1] - curves.theta[0])))
    tried = report.simulated.rows if report.simulated else ()
    tags = list(dict.fromkeys(tag for row in tried for tag in row.tasks))
    return fragment(
        "version_report.html",
        report=report,
        sentences=summary(report),
        rows=range(0, len(curves.theta), every),
        precision_heads=["questions", *(f"at {signed(theta, 0)}" for theta in PRECISION_THETAS)],
        precision_columns=[
            ("information", curves.information),
            ("standard error, all questions", curves.se),
            *((f"best {n} questions", curves.se_of_best[n]) for n in lengths),
        ],
        precision_charts=_precision_charts(report, lengths),
        suit_charts=_suit_charts(report, models),
        bins=list(zip(pairwise(edges), models, report.difficulties, strict=True)),
        n_models=sum(models),
        of_item=of_item,
        examples=[(item, _item_chart(item, curves.theta, of_item)) for item in report.examples],
        item_columns=[(item_name(item.key), item.probability) for item in report.examples],
        tags=tags,
        fit_words=FIT_WORDS,
        flag_words=FLAG_WORDS,
        design=_design,
        shift_words=shift_words,
        correction=correction_sentence(report),
        join=report.join and join_sentence(report.join),
    )


def _precision_charts(report: VersionReport, lengths: Sequence[int]) -> list[Markup]:
    curves = report.curves
    lo, hi = report.best_range
    lines = [
        Line(values=curves.se_of_best[n], label=f"best {n} questions", style=style)
        for n, style in zip(lengths, ("two", "three"), strict=False)
    ]
    return [
        line_chart(
            curves.theta,
            [Line(values=curves.information)],
            title="Information of the bank by ability",
            description=f"Highest between {signed(lo, 1)} and {signed(hi, 1)}, the shaded range.",
            y_label="information",
            band=report.best_range,
        ),
        line_chart(
            curves.theta,
            [Line(values=curves.se, label="all questions"), *lines],
            title="Standard error that a test leaves, by ability",
            description="The lower the line, the more exact the measurement at that ability.",
            y_label="standard error",
            top=1.0,
        ),
    ]


def _suit_charts(report: VersionReport, models: Sequence[float]) -> list[Markup]:
    known = report.abilities is not None
    who = "models of the calibration" if known else "models, taken as normally distributed"
    return [
        histogram(
            report.bin_edges,
            models,
            tuple(map(float, report.difficulties)),
            title="Where the models are and where the questions are",
            description="Upwards the models by ability, downwards the questions by difficulty; "
            "each to a height of its own.",
            x_label="ability and difficulty, one scale (theta)",
            up_label=who,
            down_label="questions in use",
        ),
        line_chart(
            report.curves.theta,
            [Line(values=[100 * value for value in report.curves.expected_score])],
            title="Expected score on the questions in use by ability",
            description="The share of right answers that a model of each ability is expected to "
            "give.",
            y_label="expected score, %",
            top=100.0,
        ),
    ]


def _item_chart(item: ItemCurve, theta: Sequence[float], what: str) -> Markup:
    style = "three" if item.chosen.startswith(FLAGGED) else "one"
    return line_chart(
        theta,
        [Line(values=item.probability, style=style)],
        title=f"Curve of question {short_digests(item.key)}",
        description=f"{item.chosen}; {what} by ability.",
        y_label=what,
        top=1.0,
    )


def _design(row: SimulatedTest) -> str:
    if row.design in ("score", "ability"):
        return f"test for the {row.design}"
    if row.design == "random":
        return "random questions"
    if row.design.startswith(_FOR_SCORE):
        return f"{row.design.removeprefix(_FOR_SCORE)} questions for the score"
    return row.design if row.se_target is None else f"until SE\u00a0{row.se_target:g}"


def summary(report: VersionReport) -> list[str]:
    """The report in a few sentences."""
    return list(_lines(report))


def _lines(report: VersionReport) -> Iterator[str]:
    identity, facts = report.identity, report.calibration
    lo, hi = report.best_range
    answered = f", calibrated by the answers of {facts.n_examinees:,} models" if facts else ""
    yield f"This bank has {count(identity.n_active, 'question')} (items) in use{answered}."
    if report.join is not None and (caution := join_caution(report.join.verdict)) is not None:
        yield caution
    if identity.uncertainty:
        yield identity.uncertainty
    elif identity.provisional:
        yield "Its parameters are a guess: good for trying things out, not for measuring."
    place = "an average model" if facts else "the middle of the scale"
    where = (
        f": from better than {_share(report, lo)} of the reference models to better than "
        f"{_share(report, hi)}."
        if report.abilities is not None
        else f", where 0 is {place}."
    )
    yield (
        f"It tells models apart best when their ability lies between {signed(lo, 1)} and "
        f"{signed(hi, 1)}{where}"
    )
    yield identity.theta_withheld or _length_sentence(report, place)
    if facts:
        word = str(facts.fit.get("verdict", ""))
        if word in FIT_WORDS:
            yield f"How well the model fits: {word}; {FIT_WORDS[word]}."
        if not facts.converged:
            yield "The calibration did not converge: its numbers are not final."
    if n := identity.n_quarantined:
        kept = "is" if n == 1 else "are"
        yield f"{count(n, 'question')} with serious faults {kept} kept out of tests."
    if report.simulated is not None:
        yield from _tried(report.simulated)
    yield (
        "Intervals are corrected so that they hold for models like those that were held out: see "
        "below."
        if report.correction
        else "Intervals come from the response model alone; whether they hold for models other "
        "than the reference models has not been checked for this bank."
    )


_SHIFTS = {
    "strongest_fifth": ("all but the strongest fifth", "the strongest fifth"),
    "strongest_from_weakest": ("the weakest half", "the strongest 30 %"),
    "families": ("all but one family", "that family"),
}


def shift_words(hold_out: str) -> tuple[str, str]:
    """Who was learned from and who was tested, by the name of a hold-out."""
    return _SHIFTS.get(hold_out, ("the others", hold_out))


def correction_sentence(report: VersionReport) -> str:
    """The interval correction in words."""
    correction = report.correction
    if correction is None:
        return (
            "Not computed: no correction is stored with this bank. A test's intervals come from "
            "the response model alone, and for real models they are mostly somewhat too narrow."
        )
    theta = correction["theta"]
    factors = [
        f"{factor:.2f} after {answers:,} answers"
        for answers, factor in zip(theta["answers"], theta["factor"], strict=True)
    ]
    shown = factors if len(factors) <= _SHOWN_FACTORS else [factors[0], "...", factors[-1]]
    return (
        f"Short tests were tried on {correction['n_examinees']:,} models whose answers to all "
        "questions are known, so that it shows how far each test missed the result of all "
        "questions. For intervals to hold that result, those of ability are multiplied by "
        f"{', '.join(shown)} (where they are of usual width). "
        "With this, 95\u00a0% intervals hold for about 95\u00a0% of models like those; for "
        "models of a very different kind nobody can promise it."
    )


def _tried(card: SimulatedTests) -> Iterator[str]:
    # Of several abilities tests for the score are looked at after fixed numbers of answers.
    by_design = {row.design: row.figures for row in card.rows}
    figures = by_design.get("score", by_design.get("ability", {}))
    items, held = figures.get("items_mean"), figures.get("accuracy_coverage95")
    if items is not None and held is not None:
        yield (
            f"Tried on {card.n_examinees:,} models that were held out, a test took {items:.0f} "
            f"questions on average, and {100 * held:.0f} of 100 intervals of 95\u00a0% held the "
            "score on all questions."
        )


def _length_sentence(report: VersionReport, place: str) -> str:
    shown = next((row for row in report.precision if row.n_items == 50), report.precision[-1])
    widths = dict(zip(PRECISION_THETAS, shown.half_width, strict=True))
    told = "finds the whole-bank result of" if report.correction else "places"
    return (
        f"A test of {count(shown.n_items, 'well chosen question')} {told} {place} (ability 0) "
        f"to within ±{widths[0.0]:.2f}; at ability −1 to within ±{widths[-1.0]:.2f}, at +1 to "
        f"within ±{widths[1.0]:.2f} (95\u00a0% intervals)."
    )


def _share(report: VersionReport, theta: float) -> str:
    """Share of the reference models below theta; see `VersionReport.abilities`."""
    below = np.cumsum((0.0, *(report.abilities or ())))
    return percent(float(np.interp(theta, report.bin_edges, below)))
