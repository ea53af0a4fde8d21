"""The result of a test as a page: score first, then tasks, course, questions and how to read it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from app.items import Outcome
from app.records.fields import ends
from app.reports.charts import Bar, course_charts, interval_chart
from app.reports.figures import UNPARSED_WORDS, headline_lines, interval_note, unscored
from app.reports.formats import number, percent, signed
from app.reports.joins import join_sentence
from app.reports.reference_strip import strip
from app.reports.rendering import document, fragment
from app.reports.session.facts import Ability, SessionReport, TaskResult, TracePoint
from app.reports.session.words import (
    FAILURE_WORDS,
    OUTCOME_NAMES,
    details,
    interval,
    scored_on,
    summary,
    task_name,
)

#: What a test is of the one that it comes from.
_RELATIONS = {
    "extend": "goes on from",
    "replay": "estimates again from the answers of",
    "rescore": "scores again the answers of",
}
_DRAWN = 20  # tasks in the picture; the table has all
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def render(report: SessionReport) -> str:
    """The page."""
    heading = f"{report.identity.examinee} on {report.identity.bank}"
    return document(heading, f"Test result: {heading}", "Sextant test result", sections(report))


def sections(report: SessionReport) -> Markup:
    """What stands below the heading."""
    identity, score, tasks, headline = report.identity, report.score, report.tasks, report.headline
    points = [_drawn(point) for point in report.trace]
    n = len(points)
    return fragment(
        "session_report.html",
        report=report,
        scored_on=score and scored_on(score.of, identity.whole_bank),
        lines=headline_lines(headline)[1:] if headline else (),
        sentences=details(report) if headline else summary(report),
        strip=report.reference and strip(report.reference, [(identity.examinee, report.standing)]),
        task_chart=_task_chart(tasks, identity.whole_bank)
        if tasks and tasks[0].value is not None
        else None,
        ability_chart=_ability_chart(report.abilities) if report.abilities else None,
        about=_about,
        task_name=task_name,
        course=course_charts(points),
        told=[points[at] for at in sorted({0, n // 4, n // 2, 3 * n // 4, n - 1}) if n],
        unmarked=unscored(report.figures).left_out,
        outcomes=list(_outcomes(report.figures)),
        relations=_RELATIONS,
        unparsed_words=UNPARSED_WORDS,
        ability=_ability(report),
        join=report.join and join_sentence(report.join),
    )


def _outcomes(figures: Mapping[str, Any]) -> Iterator[tuple[str, int, str]]:
    """What became of answers, how many they are, and what that means."""
    yield "scored", figures["outcomes"][Outcome.SCORED], "enter the score"
    lost = unscored(figures)
    for name, n in lost.left_out.items():
        yield OUTCOME_NAMES[name], n, f"left out: {FAILURE_WORDS[name]}"
    if lost.wrong:
        yield OUTCOME_NAMES[Outcome.UNPARSED], lost.wrong, "count as wrong"
    if awaited := figures["progress"]["in_flight"]:
        yield "pending", awaited, "asked, not answered yet"
    if tried := (figures["pretest"] or {}).get("items"):
        meaning = "new questions asked beside the test, to calibrate them later; they do not count"
        yield "trial questions", tried, meaning


def _drawn(point: TracePoint) -> tuple[float | None, ...]:
    """A point of the trace as charts and tables of a test's course take it."""
    score = point.score_interval
    within = (None, None) if score is None else ends(score)
    known = point.interval
    return (point.answers, point.theta, *ends(known), point.score, *within)


def _task_chart(tasks: Sequence[TaskResult], whole: str) -> Markup:
    known = [(task, task.interval) for task in tasks if task.interval is not None][:_DRAWN]
    drawn = [task for task, _ in known]
    never = any(not task.n_asked for task in drawn)
    typical = any(task.typical is not None for task in drawn)
    return interval_chart(
        [
            Bar(
                label=task_name(task.tag, whole),
                note=_note(task),
                value=task.value or 0.0,
                lo=within["lo"] or 0.0,
                hi=within["hi"] or 0.0,
                typical=task.typical,
                never=not task.n_asked,
            )
            for task, within in known
        ],
        (0.0, 1.0),
        [(share, percent(share)) for share in _SHARES],
        title="Score of each task with its 95\u00a0% interval",
        description="; ".join(
            f"{task_name(task.tag, whole)}: {percent(task.value, 1)}, {interval(within)}"
            f"{'' if task.n_asked else ', never asked'}"
            for task, within in known
        )
        + ".",
        entries=[
            ("dot", "score, with interval"),
            *([("dot never", "never asked")] if never else []),
            *([("typical", "expected of models as good overall")] if typical else []),
        ],
    )


def _note(task: TaskResult) -> str:
    asked = f"{task.n_asked} of {task.n_items} asked" if task.n_asked else "never asked"
    return ", ".join(filter(None, (percent(task.value, 1), asked, task.standing)))


def _ability_chart(abilities: Sequence[Ability]) -> Markup:
    known = [(one, one.interval["lo"] or 0.0, one.interval["hi"] or 0.0) for one in abilities]
    reach = max(3.0, *(min(max(abs(lo), abs(hi)), 6.0) for _, lo, hi in known))
    end = round(reach + 0.49)
    bars = [
        Bar(
            label=one.name.replace("_", " "),
            note="" if one.above is None else f"better than {percent(one.above)} of models",
            value=one.value,
            lo=lo,
            hi=hi,
        )
        for one, lo, hi in known
    ]
    return interval_chart(
        bars,
        (-end, end),
        [(n, signed(n, 0)) for n in range(-end, end + 1) if reach <= 4 or n % 2 == 0],
        title="Each ability with its 95\u00a0% interval",
        description="; ".join(f"{bar.label}: {signed(bar.value, 2)}" for bar in bars) + ".",
        entries=(),
    )


def _about(ability: Ability) -> str:
    if ability.name == "general":
        return "what all questions have in common"
    parts = [
        f"{words} {', '.join(tasks)}"
        for words, tasks in (("more of it helps at", ability.tasks), ("hurts at", ability.against))
        if tasks
    ]
    return "; ".join(parts) or "-"


def _ability(report: SessionReport) -> str:
    estimate = report.estimate
    if (reason := estimate.get("reason")) is not None:
        return f"None. {reason}"
    lo, hi = ends(estimate["interval"])
    corrected = estimate.get("interval_raw") is not None
    note = interval_note(estimate["theta"], estimate["se"], lo, hi, corrected=corrected)
    return (
        f"{signed(estimate['theta'], 2)}, SE {number(estimate['se'], 2)}, 95\u00a0% interval "
        f"{signed(lo, 2)} to {signed(hi, 2)}{f' ({note})' if note else ''}, by "
        f"{estimate['method']}, on scale {report.identity.scale}"
    )
