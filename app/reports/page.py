"""The report as one HTML page that needs nothing else: no script, no font, no image from outside.

All text is escaped by `app.reports.markup`; the page forbids itself every other source.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from app.reports.build import FLAGGED
from app.reports.charts import Line, histogram, line_chart
from app.reports.facts import PRECISION_THETAS, CalibrationFacts, VersionReport
from app.reports.markup import Markup, Node, el, join
from app.reports.style import STYLE
from app.reports.words import FIT_WORDS, FLAG_WORDS, correction_sentence, signed, summary

#: What the page may load: its own style sheet and nothing else.
CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_ABILITY = "ability (theta)"
_NOT_COMPUTED = "Not computed for this bank."


def render(report: VersionReport) -> str:
    """The page."""
    identity = report.identity
    version = "" if identity.version is None else f", version {identity.version}"
    title = f"{identity.bank}{version}"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=CONTENT_SECURITY_POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", f"Bank report: {title}"),
        el("style", Markup(STYLE)),
    )
    body = el(
        "body",
        el(
            "main",
            el("p", "Sextant bank report", class_="kicker"),
            el("h1", title),
            _summary(report),
            _precision(report),
            _targeting(report),
            _fit(report.calibration),
            _flags(report),
            _examples(report),
            _simulated(report),
            _drift(report),
            _provenance(report),
            _glossary(),
        ),
    )
    return "<!doctype html>\n" + el("html", head, body, lang="en") + "\n"


def _summary(report: VersionReport) -> Markup:
    sentences = [el("li", sentence) for sentence in summary(report)]
    return _section("In short", el("ul", *sentences, class_="short"))


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
    return _section(
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
        el("h3", "Length of a test and what it leaves open"),
        el(
            "p",
            "Half of the 95\u00a0% interval if the test asks the questions that tell most at that "
            "ability; a real test, which has to find the ability first, comes close."
            + (" The correction described below is included." if report.correction else ""),
        ),
        _table("What tests of different lengths leave open", heads, rows),
    )


def _targeting(report: VersionReport) -> Markup:
    edges, abilities = report.bin_edges, report.abilities
    if abilities is None:
        shape = tuple(math.exp(-((left + right) ** 2) / 8) for left, right in pairwise(edges))
        who = "models, taken as normally distributed"
    else:
        shape, who = tuple(map(float, abilities)), "models of the calibration"
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
        title="Expected score on the whole bank by ability",
        description="The share of right answers that a model of each ability is expected to give.",
        x_label=_ABILITY,
        y_label="expected score, %",
        top=100.0,
    )
    return _section(
        "Whom the questions suit",
        el(
            "p",
            "A question tells most about models whose ability is near its ",
            el("b", "difficulty"),
            ". Where there are models but no questions, measurement is poor. The outermost bars "
            "hold all that lies beyond.",
        ),
        el("div", el("figure", chart), el("figure", score), class_="pair"),
    )


def _fit(facts: CalibrationFacts | None) -> Markup:
    if facts is None:
        return _section(
            "Does the model fit?",
            el("p", _NOT_COMPUTED, " The parameters were imported, without the answers."),
        )
    fit = facts.fit
    word = str(fit.get("verdict") or "unknown")
    rows: list[list[Node]] = [
        ["Overall", _word(word), FIT_WORDS.get(word, "")],
        [
            "RMSEA (misfit per degree of freedom)",
            _number(fit.get("rmsea"), 3),
            f"90\u00a0% interval {_number(fit.get('rmsea_lo'), 3)} to "
            f"{_number(fit.get('rmsea_hi'), 3)}, from {fit.get('m2_items')} questions"
            if fit.get("rmsea") is not None
            else str(fit.get("m2_missing") or ""),
        ],
        [
            "SRMSR (difference of correlations)",
            _number(fit.get("srmsr"), 3),
            "how far the questions go together otherwise than the model says",
        ],
        [
            "Questions whose answers follow their curve",
            ", ".join(f"{n:,} {name}" for name, n in facts.item_verdicts.items()) or "-",
            "RMSEA of S-X2 of each question, in the same words",
        ],
        [
            "Pairs that share more than ability",
            "-" if facts.n_dependent_pairs is None else f"{facts.n_dependent_pairs:,}",
            "Q3 above its mean by 0.2; such questions count partly double"
            + (
                ". The strongest: "
                + ", ".join(f"{a} and {b} ({q:.2f})" for a, b, q in facts.dependent_pairs[:3])
                if facts.dependent_pairs
                else ""
            ),
        ],
    ]
    parts: list[Node] = [
        el(
            "p",
            "All numbers rest on a model of how answers come about. These figures tell how far the "
            "recorded answers agree with it: below 0.05 ",
            _word("good"),
            ", below 0.08 ",
            _word("acceptable"),
            ", below 0.10 ",
            _word("marginal"),
            ", else ",
            _word("poor"),
            ".",
        ),
        _table("Fit of the model", ["what", "value", "meaning"], rows),
    ]
    parts += [el("p", el("b", "Note: "), warning) for warning in facts.warnings]
    if facts.worst_items:
        shown = facts.worst_items
        judged = sum(facts.item_verdicts.values())
        parts += [
            el("h3", "Questions that follow their curve least"),
            _table(
                "Fit of single questions, the worst first",
                ["question", "discrimination a", "difficulty b", "RMSEA", "p", "fit"],
                [
                    [
                        item.key,
                        _with_error(item.a, item.se_a),
                        _with_error(item.b, item.se_b),
                        _number(item.rmsea, 3),
                        "< 0.001" if item.p_value < 0.001 else _number(item.p_value, 3),
                        _word(item.verdict),
                    ]
                    for item in shown
                ],
                names=True,
            ),
            _capped(len(shown), judged, "questions that could be judged"),
        ]
    if facts.comparison:
        parts += [
            el("h3", "Other models on the same answers"),
            el("p", "The lower AIC and BIC, the better the balance of fit and simplicity."),
            _table(
                "Comparison of models",
                ["model", "log-likelihood", "parameters", "AIC", "BIC"],
                [
                    [
                        str(other.get("model")),
                        _number(other.get("log_likelihood"), 1),
                        _number(other.get("n_parameters"), 0),
                        _number(other.get("aic"), 1),
                        _number(other.get("bic"), 1),
                    ]
                    for other in facts.comparison
                ],
            ),
        ]
    return _section("Does the model fit?", *parts)


def _flags(report: VersionReport) -> Markup:
    if not report.flagged:
        return _section("Flagged questions", el("p", "None: no question has a known fault."))
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
    return _section(
        "Flagged questions",
        el("p", "Questions with a serious fault are never asked; the others are in use."),
        _table("Kinds of faults", ["fault", "questions", "meaning", "what to do"], kinds),
        el("h3", "Question by question"),
        _table("Flagged questions", ["question", "state", "why"], rows, names=True),
        _capped(len(report.flagged), report.n_flagged, "flagged questions"),
    )


def _examples(report: VersionReport) -> Markup:
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
                    description=f"{item.chosen}; chance of a right answer by ability.",
                    x_label=_ABILITY,
                    y_label="chance of a right answer",
                    top=1.0,
                ),
                el(
                    "figcaption",
                    el("b", item.key),
                    f": {item.chosen}. a = {item.a:.2f}, b = {b}{asymptotes}",
                ),
            )
        )
    return _section(
        "A few questions as examples",
        el(
            "p",
            "Each curve is the chance of a right answer by ability. A steep rise tells models "
            "apart (discrimination ",
            el("b", "a"),
            "); where it rises is the difficulty ",
            el("b", "b"),
            "; where it starts is the chance of guessing ",
            el("b", "c"),
            ".",
        ),
        el("div", *figures, class_="pair"),
    )


def _simulated(report: VersionReport) -> Markup:
    parts: list[Node] = [
        el(
            "p",
            "Models that took no part in the calibration are tested again on their own recorded "
            "answers, and the result of the short test is compared with that of all questions.",
        )
    ]
    if report.simulated:
        names = list(dict.fromkeys(name for row in report.simulated for name in row.figures))
        rows: list[list[Node]] = [
            [row.label, *(_number(row.figures.get(name), 3) for name in names)]
            for row in report.simulated
        ]
        parts.append(_table("Simulated tests", ["test", *names], rows))
    else:
        parts.append(el("p", _NOT_COMPUTED))
    parts += [el("h3", "How far intervals can be trusted"), el("p", correction_sentence(report))]
    return _section("Tests tried on models that were held out", *parts)


def _drift(report: VersionReport) -> Markup | None:
    moved = {code: n for code, n in report.flags.items() if code in ("drift", "contamination")}
    if not moved:
        return None
    return _section(
        "Change over time",
        el(
            "p",
            "; ".join(f"{n:,} questions: {FLAG_WORDS[code][0]}" for code, n in moved.items()),
            " They are listed among the flagged questions.",
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
            ["Left out, questions", _reasons(facts.dropped_items)],
            ["Left out, models", _reasons(facts.dropped_examinees)],
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
    return _section("Where this comes from", _table("Origin", ["what", "value"], rows))


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
    return _section("Words", el("dl", *pairs))


def _section(title: str, *parts: Node) -> Markup:
    return el("section", el("h2", title), *parts)


def _table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[Node]],
    *,
    names: bool = False,
) -> Markup:
    """A table whose rows begin with their head; it scrolls by itself where the page is narrow."""
    row_head = "name" if names else None
    body = [
        el(
            "tr",
            el("th", row[0], scope="row", class_=row_head),
            *(el("td", cell) for cell in row[1:]),
        )
        for row in rows
    ]
    table = el(
        "table",
        el("caption", caption),
        el("thead", el("tr", *(el("th", head, scope="col") for head in heads))),
        el("tbody", *body),
    )
    return el("div", table, class_="wide", role="region", aria_label=caption, tabindex=0)


def _capped(shown: int, total: int, what: str) -> Markup | None:
    if total <= shown:
        return None
    return el("p", f"The first {shown:,} of {total:,} {what}.", class_="note")


def _word(verdict: str) -> Markup:
    return el("span", verdict, class_=f"word {verdict if verdict in FIT_WORDS else 'unknown'}")


def _with_error(value: float | None, error: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" + ("" if error is None else f" ± {error:.2f}")


def _number(value: object, digits: int) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-"
    return f"{value:,.{digits}f}"


def _reasons(counts: object) -> str:
    if not isinstance(counts, dict) or not counts:
        return "none"
    return ", ".join(f"{n:,} {str(reason).replace('_', ' ')}" for reason, n in counts.items())
