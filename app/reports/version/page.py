"""The report of a bank version as a page."""

import math
from collections.abc import Sequence
from itertools import pairwise

from markupsafe import Markup

from app.reports.charts import Line, histogram, line_chart
from app.reports.formats import item_name, short_digests, signed
from app.reports.joins import join_sentence
from app.reports.rendering import document, fragment
from app.reports.version.build import FLAGGED
from app.reports.version.facts import PRECISION_THETAS, ItemCurve, SimulatedTest, VersionReport
from app.reports.version.words import (
    FIT_WORDS,
    FLAG_WORDS,
    correction_sentence,
    shift_words,
    summary,
)

#: Logits between the rows of a table of curves.
_ROW_WIDTH = 0.5
#: Begins the name of tests whose questions were chosen for the predicted score.
_FOR_SCORE = "score_"


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
