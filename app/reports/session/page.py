"""The result of a test as a page: score first, then tasks, course, questions and how to read it."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from app.reports.charts import trace_chart
from app.reports.document import document
from app.reports.figures import UNPARSED_WORDS, headline_lines, interval_note
from app.reports.joins import join_sentence
from app.reports.markup import Markup, Node, el, join
from app.reports.parts import count, number, percent, section, signed, table
from app.reports.reference_strip import strip
from app.reports.session.facts import SessionReport
from app.reports.session.glossary import glossary
from app.reports.session.profile import ability_section, task_section
from app.reports.session.questions import answer_section, item_section
from app.reports.session.words import details, interval, scored_on, summary

_WIDEST_THETA = 6.0


def render(report: SessionReport) -> str:
    """The page."""
    identity = report.identity
    heading = f"{identity.examinee} on {identity.bank}"
    return document(
        heading,
        f"Test result: {heading}",
        "Sextant test result",
        *sections(report),
    )


def sections(report: SessionReport) -> list[Node]:
    """What stands below the heading."""
    return [
        _in_short(report),
        _cautions(report),
        task_section(report),
        ability_section(report),
        _course(report),
        answer_section(report),
        item_section(report),
        _origin(report),
        glossary(report),
    ]


def _in_short(report: SessionReport) -> Markup:
    score = report.score
    figure = None
    if score is not None:
        on = scored_on(score.of, report.identity.whole_bank)
        if score.lo is None or score.hi is None:
            said = f"score on {on}: all questions were asked"
        else:
            said = f"predicted score on {on}, {interval(score.lo, score.hi)}"
        small = el("small", said)
        figure = el("p", percent(score.value), " ", small, class_="big")
    told: list[Node] = []
    sentences = summary(report)
    if report.headline is not None:
        sentences = details(report)
        _, *lines = headline_lines(asdict(report.headline))
        told = [el("p", line) for line in lines]
    shown = [el("li", sentence) for sentence in sentences]
    stands = None
    if report.reference is not None:
        picture = strip(report.reference, [(report.identity.examinee, report.standing)])
        stands = None if picture is None else el("figure", picture, class_="one-wide")
    return section("In short", figure, *told, stands, el("ul", *shown, class_="short"))


def _cautions(report: SessionReport) -> Markup:
    title = "Before you rely on it"
    if not report.warnings:
        return section(title, el("p", "Nothing was found that would make this result doubtful."))
    told = [el("li", caution.text) for caution in report.warnings]
    return section(title, el("ul", *told, class_="cautions"))


def _course(report: SessionReport) -> Markup | None:
    points = report.trace
    if len(points) < 2:
        return None
    figures = []
    if all(point.score is not None for point in points):
        first, last = points[0], points[-1]
        figures.append(
            trace_chart(
                [point.answers for point in points],
                [point.score or 0.0 for point in points],
                [point.score_lo or 0.0 for point in points],
                [point.score_hi or 0.0 for point in points],
                title="Predicted score as answers came in",
                description=f"From {percent(first.score or 0.0)} before the first answer to "
                f"{percent(last.score or 0.0)} after {count(last.answers, 'answer')}; the band is "
                "the 95\u00a0% interval.",
                y_label="predicted score",
                show=percent,
                least=0.0,
                most=1.0,
            )
        )
    last = points[-1]
    figures.append(
        trace_chart(
            [point.answers for point in points],
            [point.theta for point in points],
            [point.lo for point in points],
            [point.hi for point in points],
            title="Ability as answers came in",
            description=f"{signed(last.theta, 2)} after {count(last.answers, 'answer')}, 95\u00a0% "
            f"interval {signed(last.lo, 2)} to {signed(last.hi, 2)}.",
            y_label="ability (theta)",
            show=lambda tick: signed(tick, 0 if tick == int(tick) else 1),
            least=-_WIDEST_THETA,
            most=_WIDEST_THETA,
        )
    )
    start, end = points[0], points[-1]
    shown = sorted({0, len(points) // 4, len(points) // 2, 3 * len(points) // 4, len(points) - 1})
    rows: list[list[Node]] = [
        [
            f"{point.answers:,}",
            "-"
            if point.score is None
            else f"{percent(point.score)} ({percent(point.score_lo or 0.0)} to "
            f"{percent(point.score_hi or 0.0)})",
            f"{signed(point.theta, 2)} ({signed(point.lo, 2)} to {signed(point.hi, 2)})",
        ]
        for point in (points[place] for place in shown)
    ]
    narrowed = (
        f" The interval of the ability is {(start.hi - start.lo) / (end.hi - end.lo):.1f} times "
        "narrower than it was before the first answer."
        if end.hi > end.lo and start.answers == 0 and start.hi - start.lo > end.hi - end.lo
        else ""
    )
    return section(
        "How the result came about",
        el(
            "p",
            "Each answer moves the estimate and narrows its interval. A line that has become "
            f"level, in a band that has become narrow, is what to hope for.{narrowed}",
        ),
        el("div", *(el("figure", figure) for figure in figures), class_="pair"),
        table(
            "The same in numbers",
            [
                "marked answers",
                "predicted score (95\u00a0% interval)",
                "ability (95\u00a0% interval)",
            ],
            rows,
        ),
    )


def _origin(report: SessionReport) -> Markup:
    identity, estimate = report.identity, report.estimate
    rows: list[list[Node]] = [
        ["Test", join(el("code", identity.id), f", {identity.status}, {identity.mode}")],
        [
            "Bank",
            join(
                f"{identity.bank}, version {identity.bank_version}, ",
                el("code", identity.bank_version_id),
            ),
        ],
        ["Response model", identity.response_model.upper()],
        [
            "Ability (theta)",
            _ability(estimate, identity.scale),
        ],
        ["Questions chosen by", _chosen(identity.design)],
        ["Set to end", identity.stops_when or "-"],
        ["Answers nobody can read", UNPARSED_WORDS[identity.unparsed_policy]],
        ["Seed", str(identity.seed)],
    ]
    if report.score is not None:
        rows.insert(4, ["Predicted score by", report.score.method])
    if report.join is not None:
        rows.insert(2, ["Parameters and questions", join_sentence(report.join)])
    if identity.parent_id is not None:
        what = {
            "extend": "goes on from",
            "replay": "estimates again from the answers of",
            "rescore": "marks again the answers of",
        }
        relation = what.get(identity.relation or "", "made from")
        rows.append(["Comes from", join(f"{relation} ", el("code", identity.parent_id))])
    if identity.ranking_id is not None:
        rows.append(["Member of ranking", el("code", identity.ranking_id)])
    rows += [[key, value] for key, value in identity.metadata.items()]
    rows.append(["Created", identity.created_at])
    if identity.finished_at:
        rows.append(["Ended", identity.finished_at])
    if identity.parameters_hash:
        rows.append(["SHA-256 of the parameters", el("code", identity.parameters_hash)])
    if identity.code_version:
        rows.append(["Sextant", identity.code_version])
    return section("Where this comes from", table("Origin", ["what", "value"], rows))


def _ability(estimate: Mapping[str, Any], scale: str) -> str:
    reason = estimate.get("reason")
    if reason is not None:
        return f"None. {reason}"
    lo, hi = estimate["ci"]
    note = interval_note(estimate)
    return (
        f"{_sign(estimate['theta'])} ± {number(estimate['se'], 2)}, 95\u00a0% interval "
        f"{_sign(lo)} to {_sign(hi)}{f' ({note})' if note else ''}, by {estimate['method']}, on "
        f"scale {scale}"
    )


def _chosen(design: Mapping[str, Any]) -> str:
    selection = design.get("selection") or {}
    chosen = str(selection.get("criterion", "-")).replace("_", " ")
    rate = (selection.get("exposure") or {}).get("max_rate")
    if rate is not None:
        chosen += f"; no question in more than {percent(rate)} of tests"
    return chosen


def _sign(value: float | None) -> str:
    return "-" if value is None else signed(value, 2)
