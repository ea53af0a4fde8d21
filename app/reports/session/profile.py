"""What the test tells of tasks and abilities, as sections of its page."""

from collections.abc import Sequence

from app.reports.charts import Bar, interval_chart
from app.reports.markup import Markup, Node, el
from app.reports.parts import capped, percent, section, signed, table
from app.reports.session.facts import Ability, SessionReport, TaskResult
from app.reports.session.words import interval, task_name

_DRAWN = 20  # tasks in the picture; the table has all
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def task_section(report: SessionReport) -> Markup | None:
    """The section about tasks; None where the bank has none."""
    tasks, whole = report.tasks, report.identity.whole_bank
    if not tasks:
        return None
    if tasks[0].value is None:
        return _answered_tasks(tasks)
    drawn = [task for task in tasks if task.value is not None][:_DRAWN]
    chart = interval_chart(
        [
            Bar(
                label=task_name(task.tag, whole),
                note=_note(task),
                value=task.value or 0.0,
                lo=task.lo or 0.0,
                hi=task.hi or 0.0,
                typical=task.typical,
                never=not task.n_asked,
            )
            for task in drawn
        ],
        (0.0, 1.0),
        _SHARES,
        title="Predicted score of each task with its 95\u00a0% interval",
        description="; ".join(f"{task_name(task.tag, whole)}: {_predicted(task)}" for task in drawn)
        + ".",
        show=percent,
        entries=[
            ("dot", "predicted score, with interval"),
            *([("dot never", "never asked")] if any(not task.n_asked for task in drawn) else []),
            *(
                [("typical", "expected of models as good overall")]
                if any(task.typical is not None for task in drawn)
                else []
            ),
        ],
    )
    rows: list[list[Node]] = [
        [
            task_name(task.tag, whole),
            percent(task.value or 0.0, 1),
            f"{percent(task.lo or 0.0, 1)} to {percent(task.hi or 0.0, 1)}",
            "-" if task.typical is None else percent(task.typical, 1),
            _strength(task),
            f"{task.n_asked:,} of {task.n_items:,}" if task.n_asked else "never asked",
            "-" if task.observed is None else percent(task.observed),
        ]
        for task in tasks
    ]
    return section(
        "Task by task",
        el(
            "p",
            "What the model is expected to score on all questions of each task. A task that was "
            "never asked is predicted from the others, by how they went together in the models "
            "that the bank was calibrated on; its interval is wider.",
        ),
        el("figure", chart, class_="one-wide"),
        table(
            "Predicted score of each task",
            [
                "task",
                "predicted score",
                "95\u00a0% interval",
                "expected of models as good overall",
                "compared with them",
                "questions asked",
                "score on those",
            ],
            rows,
            names=True,
        ),
        capped(len(tasks), report.n_tasks, "tasks"),
        el(
            "p",
            "“Stronger” and “weaker” are said only where the difference is more than chance, all "
            "tasks considered together. The score on the questions asked is no estimate: they "
            "were chosen for what they tell, not at random.",
            class_="note",
        ),
    )


def _answered_tasks(tasks: Sequence[TaskResult]) -> Markup:
    rows: list[list[Node]] = [
        [
            task.tag,
            f"{task.n_asked:,} of {task.n_items:,}",
            percent(task.observed or 0.0),
            "-" if task.typical is None else percent(task.typical),
            _strength(task),
        ]
        for task in tasks
    ]
    return section(
        "Task by task",
        el(
            "p",
            "This bank measures one ability, so that no score is predicted for single tasks (the "
            "questions that share a tag). The table tells how the questions that were asked went, "
            "beside what a model of this ability would score on just these questions.",
        ),
        table(
            "Answers by task",
            ["task", "questions asked and marked", "score on those", "expected", "result"],
            rows,
            names=True,
        ),
        el(
            "p",
            "“Stronger” and “weaker” are said only where the difference is more than chance, all "
            "tasks considered together. Few questions a task seldom show one.",
            class_="note",
        ),
    )


def _note(task: TaskResult) -> str:
    asked = f"{task.n_asked} of {task.n_items} asked" if task.n_asked else "never asked"
    return f"{percent(task.value or 0.0)}, {asked}" + (
        f", {task.standing}" if task.standing else ""
    )


def _predicted(task: TaskResult) -> str:
    return (
        f"{percent(task.value or 0.0)}, {interval(task.lo or 0.0, task.hi or 0.0)}"
        f"{'' if task.n_asked else ', never asked'}"
    )


def _strength(task: TaskResult) -> Node:
    if task.standing is None:
        return "as expected" if task.typical is not None else "-"
    return el("b", f"{task.standing} than expected")


def ability_section(report: SessionReport) -> Markup | None:
    """The section about several abilities; None where the bank measures one."""
    if not report.abilities:
        return None
    reach = max(3.0, *(min(max(abs(one.lo), abs(one.hi)), 6.0) for one in report.abilities))
    ends = (-float(round(reach + 0.49)), float(round(reach + 0.49)))
    chart = interval_chart(
        [
            Bar(
                label=_named(one),
                note="" if one.above is None else f"above {percent(one.above)} of models",
                value=one.value,
                lo=one.lo,
                hi=one.hi,
            )
            for one in report.abilities
        ],
        ends,
        [tick for tick in range(int(ends[0]), int(ends[1]) + 1) if reach <= 4 or tick % 2 == 0],
        title="Each ability with its 95\u00a0% interval",
        description="; ".join(f"{_named(one)}: {signed(one.value, 2)}" for one in report.abilities)
        + ".",
        show=lambda tick: signed(tick, 0),
        entries=(),
    )
    rows: list[list[Node]] = [
        [
            _named(one),
            signed(one.value, 2),
            f"{one.se:.2f}",
            f"{signed(one.lo, 2)} to {signed(one.hi, 2)}",
            "-" if one.above is None else percent(one.above),
            _about(one),
        ]
        for one in report.abilities
    ]
    return section(
        "The abilities behind it",
        el(
            "p",
            "The bank explains answers by a few abilities. 0 is about the average of the models "
            "that it was calibrated on, ±1 about their usual distance from it. Dimensions have no "
            "names of their own: the last column says at which tasks each shows. If you are "
            "interested in scores, the tasks above say the same more directly.",
        ),
        el("figure", chart, class_="one-wide"),
        table(
            "Abilities",
            [
                "ability",
                "value",
                "standard error",
                "95\u00a0% interval",
                "calibrated models with less of it",
                "what it is about",
            ],
            rows,
        ),
    )


def _named(ability: Ability) -> str:
    return ability.name.replace("_", " ")


def _about(ability: Ability) -> str:
    if ability.name == "general":
        return "what all questions have in common"
    parts = [
        f"{words} {', '.join(tasks)}"
        for words, tasks in (("more of it helps at", ability.tasks), ("hurts at", ability.against))
        if tasks
    ]
    return "; ".join(parts) or "-"
