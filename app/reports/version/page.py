"""The report of a bank version as a page."""

import math
from collections.abc import Sequence
from itertools import pairwise

from app.reports.charts import Line, histogram, line_chart
from app.reports.document import document
from app.reports.joins import join_sentence
from app.reports.markup import Markup, Node, el, join
from app.reports.parts import capped, in_numbers, percent, reasons, section, signed, table
from app.reports.version.build import FLAGGED
from app.reports.version.card import simulated_tests
from app.reports.version.facts import PRECISION_THETAS, VersionReport
from app.reports.version.fit import fit_of_model
from app.reports.version.words import FLAG_WORDS, summary

_ABILITY = "ability (theta)"
#: Logits between the rows of a table of curves.
_ROW_WIDTH = 0.5


def render(report: VersionReport) -> str:
    """The page."""
    identity = report.identity
    version = "" if identity.version is None else f", version {identity.version}"
    title = f"{identity.bank}{version}"
    return document(
        title,
        f"Bank report: {title}",
        "Sextant bank report",
        *sections(report),
    )


def sections(report: VersionReport) -> list[Node]:
    """What stands below the heading."""
    return [
        _summary(report),
        _precision(report),
        _targeting(report),
        fit_of_model(report.calibration),
        _flags(report),
        _join(report),
        _examples(report),
        simulated_tests(report),
        _drift(report),
        _provenance(report),
        _glossary(),
    ]


def _summary(report: VersionReport) -> Markup:
    sentences = [el("li", sentence) for sentence in summary(report)]
    return section("In short", el("ul", *sentences, class_="short"))


def _join(report: VersionReport) -> Markup:
    if report.join is None:
        return section("Parameters and questions", el("p", "Nobody looked: this is a file."))
    return section("Parameters and questions", el("p", join_sentence(report.join)))


def _precision(report: VersionReport) -> Markup:
    curves = report.curves
    lo, hi = report.best_range
    information = line_chart(
        curves.theta,
        [Line(values=curves.information)],
        title="Information of the bank by ability",
        description=f"Highest between {signed(lo, 1)} and {signed(hi, 1)}, the shaded range.",
        x_label=_ABILITY,
        y_label="information",
        band=report.best_range,
    )
    lengths = list(curves.se_of_best)
    chosen = [n for n in lengths if n in (10, 50)] or lengths[:1]
    lines = [
        Line(values=curves.se_of_best[n], label=f"best {n} questions", style=style)
        for n, style in zip(chosen, ("two", "three"), strict=False)
    ]
    errors = line_chart(
        curves.theta,
        [Line(values=curves.se, label="all questions"), *lines],
        title="Standard error that a test leaves, by ability",
        description="The lower the line, the more exact the measurement at that ability.",
        x_label=_ABILITY,
        y_label="standard error",
        top=1.0,
    )
    rows = [
        [f"{row.n_items:,}", *(f"±{width:.2f}" for width in row.half_width)]
        for row in report.precision
    ]
    heads = ["questions", *(f"at {signed(theta, 0)}" for theta in PRECISION_THETAS)]
    return section(
        "How exactly it measures",
        el(
            "p",
            el("b", "Information"),
            " says how much the questions tell about a model of a given ability. The ",
            el("b", "standard error"),
            " is what remains unknown after a test: the true ability lies within about two "
            "standard errors of the result, 19 times out of 20.",
        ),
        el("div", el("figure", information), el("figure", errors), class_="pair"),
        in_numbers(
            _curve_table(
                "Information and standard error by ability",
                report,
                {
                    "information": [f"{value:.2f}" for value in curves.information],
                    "standard error, all questions": [f"{value:.2f}" for value in curves.se],
                    **{
                        f"best {n} questions": [f"{value:.2f}" for value in curves.se_of_best[n]]
                        for n in chosen
                    },
                },
            )
        ),
        el("h3", "Length of a test and what it leaves open"),
        el(
            "p",
            "Half of the 95\u00a0% interval if the test asks the questions that tell most at that "
            "ability; a real test, which has to find the ability first, comes close."
            + (
                " The interval is for the result that all questions of the bank would give, with "
                "the correction described below."
                if report.correction
                else ""
            ),
        ),
        table("What tests of different lengths leave open", heads, rows),
    )


def _targeting(report: VersionReport) -> Markup:
    edges, abilities = report.bin_edges, report.abilities
    if abilities is None:
        shape = tuple(math.exp(-((left + right) ** 2) / 8) for left, right in pairwise(edges))
        who = "models, taken as normally distributed"
    else:
        shape, who = abilities, "models of the calibration"
    chart = histogram(
        edges,
        shape,
        tuple(map(float, report.difficulties)),
        title="Where the models are and where the questions are",
        description="Upwards the models by ability, downwards the questions by difficulty; each "
        "to a height of its own.",
        x_label="ability and difficulty, one scale (theta)",
        up_label=who,
        down_label="questions in use",
    )
    score = line_chart(
        report.curves.theta,
        [Line(values=[100 * value for value in report.curves.expected_score])],
        title="Expected score on the questions in use by ability",
        description="The share of right answers that a model of each ability is expected to give.",
        x_label=_ABILITY,
        y_label="expected score, %",
        top=100.0,
    )
    return section(
        "Whom the questions suit",
        el(
            "p",
            "A question tells most about models whose ability is near its ",
            el("b", "difficulty"),
            ". Where there are models but no questions, measurement is poor. The outermost bars "
            "hold all that lies beyond.",
        ),
        el("div", el("figure", chart), el("figure", score), class_="pair"),
        in_numbers(
            table(
                "Models and questions by ability and difficulty",
                ["from", "to", "models", "questions"],
                [
                    [signed(left, 2), signed(right, 2), percent(share / sum(shape), 1), f"{n:,}"]
                    for (left, right), share, n in zip(
                        pairwise(edges), shape, report.difficulties, strict=True
                    )
                ],
            ),
            _curve_table(
                "Expected score by ability",
                report,
                {"expected score": [percent(value, 1) for value in report.curves.expected_score]},
            ),
        ),
    )


def _curve_table(caption: str, report: VersionReport, columns: dict[str, Sequence[str]]) -> Markup:
    """Columns over the abilities of the curves, at even distances."""
    theta = report.curves.theta
    every = max(1, round(_ROW_WIDTH / (theta[1] - theta[0])))
    rows = [
        [signed(theta[at], 1), *(values[at] for values in columns.values())]
        for at in range(0, len(theta), every)
    ]
    return table(caption, ["ability", *columns], rows)


def _flags(report: VersionReport) -> Markup:
    if not report.flagged:
        return section("Flagged questions", el("p", "None: no question has a known fault."))
    kinds: list[list[Node]] = [
        [code.replace("_", " "), f"{n:,}", *FLAG_WORDS.get(code, ("", ""))]
        for code, n in report.flags.items()
    ]
    rows: list[list[Node]] = [
        [
            item.key,
            item.status,
            join(*(el("div", message) for _, message in item.reasons)),
        ]
        for item in report.flagged
    ]
    return section(
        "Flagged questions",
        el("p", "Questions with a serious fault are never asked; the others are in use."),
        table("Kinds of faults", ["fault", "questions", "meaning", "what to do"], kinds),
        el("h3", "Question by question"),
        table("Flagged questions", ["question", "state", "why"], rows, names=True),
        capped(len(report.flagged), report.n_flagged, "flagged questions"),
    )


def _examples(report: VersionReport) -> Markup:
    continuous = report.identity.model == "continuous"
    shown = "mean score" if continuous else "chance of a right answer"
    start = "lowest score" if continuous else "chance of guessing"
    figures = []
    for item in report.examples:
        b = "none" if item.b is None else f"{item.b:.2f}"
        asymptotes = (f", c = {item.c:.2f}" if item.c else "") + (
            f", d = {item.d:.2f}" if item.d < 1 else ""
        )
        figures.append(
            el(
                "figure",
                line_chart(
                    report.curves.theta,
                    [
                        Line(
                            values=item.probability,
                            style="three" if item.chosen.startswith(FLAGGED) else "one",
                        )
                    ],
                    title=f"Curve of question {item.key}",
                    description=f"{item.chosen}; {shown} by ability.",
                    x_label=_ABILITY,
                    y_label=shown,
                    top=1.0,
                ),
                el(
                    "figcaption",
                    el("b", item.key),
                    f": {item.chosen}. a = {item.a:.2f}, b = {b}{asymptotes}",
                ),
            )
        )
    return section(
        "A few questions as examples",
        el(
            "p",
            f"Each curve is the {shown} by ability. A steep rise tells models apart "
            "(discrimination ",
            el("b", "a"),
            "); where it rises is the difficulty ",
            el("b", "b"),
            f"; where it starts is the {start} ",
            el("b", "c"),
            ".",
        ),
        el("div", *figures, class_="pair"),
        in_numbers(
            _curve_table(
                f"{shown.capitalize()} by ability",
                report,
                {
                    item.key: [f"{value:.2f}" for value in item.probability]
                    for item in report.examples
                },
            )
        )
        if report.examples
        else None,
    )


def _drift(report: VersionReport) -> Markup | None:
    moved = report.flags.get("drift")
    if not moved:
        return None
    meaning, advice = FLAG_WORDS["drift"]
    return section(
        "Change over time",
        el(
            "p",
            f"Questions that are no longer what they were: {moved:,}. {meaning} {advice} They are "
            "listed among the flagged questions.",
        ),
    )


def _provenance(report: VersionReport) -> Markup:
    identity, facts = report.identity, report.calibration
    rows: list[list[Node]] = [
        ["Response model", identity.model.upper()],
        ["Scale", identity.scale],
        [
            "Questions",
            f"{identity.n_items:,}: {identity.n_active:,} in use, {identity.n_quarantined:,} kept "
            f"out of tests, {identity.n_pretest:,} not calibrated yet",
        ],
    ]
    if identity.notes:
        rows.append(["Notes", identity.notes])
    if facts is not None:
        answers = "" if facts.scored_answers is None else f", {facts.scored_answers:,} answers"
        rows += [
            [
                "Calibrated on",
                f"{facts.n_examinees:,} models, {facts.n_items:,} questions{answers}",
            ],
            ["Left out, questions", reasons(facts.dropped_items)],
            ["For scores alone, questions", reasons(facts.score_only_items)],
            ["Left out, models", reasons(facts.dropped_examinees)],
            [
                "Estimation",
                f"{'converged' if facts.converged else 'NOT converged'}; log-likelihood "
                f"{facts.log_likelihood:,.1f}, AIC {facts.aic:,.1f}, BIC {facts.bic:,.1f}",
            ],
        ]
    if identity.created_at:
        rows.append(["Published", identity.created_at])
    if identity.parameters_hash:
        rows.append(["SHA-256 of the parameters", el("code", identity.parameters_hash)])
    return section("Where this comes from", table("Origin", ["what", "value"], rows))


def _glossary() -> Markup:
    terms = (
        (
            "Ability, theta",
            "How able a model is, on a scale on which the models of the calibration have mean 0 "
            "and standard deviation 1. +1 is better than 84\u00a0% of them, +2 better than "
            "98\u00a0%.",
        ),
        (
            "Adaptive test",
            "A test that asks next what tells most about the ability as it is known by then, and "
            "stops when it is known well enough.",
        ),
        ("95\u00a0% interval", "It holds the true value for 19 models out of 20."),
        (
            "Discrimination, a",
            "How sharply a question parts weaker from abler models. About 1 is usual; below 0.3 is "
            "weak; below 0 is a fault.",
        ),
        ("Difficulty, b", "The ability at which a question is halfway from guessing to certain."),
        ("Information", "1 / (standard error)²; the information of several questions adds up."),
        (
            "S-X2, M2, RMSEA, SRMSR, Q3",
            "Statistics that compare recorded answers with what the model expects: of one "
            "question, of all, per degree of freedom, of correlations, of pairs.",
        ),
    )
    pairs = [join(el("dt", term), el("dd", meaning)) for term, meaning in terms]
    return section("Words", el("dl", *pairs))
