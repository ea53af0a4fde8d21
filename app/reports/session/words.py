"""A test's result in sentences for people who never heard of item response theory."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.engine.prediction.targets import WHOLE_BANK
from app.records.fields import Interval
from app.reports.figures import answers_right, dollars, uncounted, unscored
from app.reports.formats import count, duration, percent
from app.reports.session.facts import SessionReport, TaskResult

#: Why tests stop, in words.
STOP_WORDS: Mapping[str, str] = {
    "se_target": "the ability was known as exactly as was asked for",
    "max_items": "the largest number of questions was reached",
    "budget_exhausted": "the budget was spent",
    "time_limit": "the time was up",
    "decision_reached": "it was clear on which side of the limit the model is",
    "tied": "it was clear that the model ties with its neighbours in the ranking",
    "plateau": "further answers no longer changed the result",
    "low_information": "no question was left that would have told much",
    "bank_exhausted": "every question that tests may ask was asked",
    "score_margin": "the score was known as exactly as was asked for",
    "too_many_failures": "too many questions got no score",
    "cancelled": "somebody cancelled it",
    "custom": "the person who ran it ended it",
}
#: What became of an answer, in a word or two.
OUTCOME_NAMES: Mapping[str, str] = {
    "scored": "scored",
    "error": "failed",
    "refused": "refused",
    "unparsed": "unparseable",
    "truncated": "cut off",
}
_NAMED = 5  # tasks that a sentence names


def summary(report: SessionReport) -> list[str]:
    """The result in a few sentences."""
    return [
        _who(report),
        *_result(report),
        *_tasks(report),
        *_failures(report),
        *_effort(report),
    ]


def details(report: SessionReport) -> list[str]:
    """What the headline does not say."""
    return [*_not_asked(report), *_tasks(report), *_failures(report), *_effort(report)]


def _who(report: SessionReport) -> str:
    identity, progress = report.identity, report.figures["progress"]
    answered = progress["items"]
    bank = f"of the bank {identity.bank} (version {identity.bank_version})"
    calibrated = "calibrated " if identity.n_uncalibrated else ""
    questions = f"the {identity.n_items:,} {calibrated}questions {bank}"
    if identity.status == "failed":
        detail = report.stop_detail or (report.failure and report.failure["detail"]) or "unknown"
        return (
            f"The test of {identity.examinee} on {questions} failed after "
            f"{count(answered, 'answer')}: {detail.rstrip('.')}."
        )
    if not answered:
        return f"{identity.examinee} has not answered any of {questions} yet."
    ended = identity.status in ("completed", "cancelled")
    return (
        f"{identity.examinee} {'answered' if ended else 'has so far answered'} {answered:,} of "
        f"{questions}."
    )


def _result(report: SessionReport) -> Iterator[str]:
    score, progress = report.score, report.figures["progress"]
    if score is None:
        if progress["items"] and not progress["scored"]:
            yield "No score: no answer could be scored."
        elif progress["items"]:
            reason = report.estimate.get("reason")
            yield f"There is no score. {reason}" if reason else "There is no score yet."
            yield from _right(report)
        return
    asked = scored_on(score.of, report.identity.whole_bank)
    if score.interval is None:
        yield f"On {asked} it scores {percent(score.value)}: {score.exactness}."
    else:
        exact = "" if score.exactness is None else f", {score.exactness}"
        yield (
            f"On {asked} it is expected to score {percent(score.value)} "
            f"({interval(score.interval)}{exact})."
        )
    yield from _right(report)
    yield from _not_asked(report)
    if (below := score.below) is not None:
        n = report.identity.n_calibrated_on
        place = (
            "better than nearly all"
            if below.value > 0.99
            else "worse than nearly all"
            if below.value < 0.01
            else f"better than about {percent(below.value)}"
        )
        yield (
            f"That is {place} of the {f'{n:,} ' if n else ''}reference models "
            f"({interval(below.interval)})."
        )


def _right(report: SessionReport) -> Iterator[str]:
    progress = report.figures["progress"]
    right = answers_right(progress["scored"], progress.get("right"), progress.get("mean"))
    if right is not None:
        yield f"Of the questions asked: {right}."


def _not_asked(report: SessionReport) -> Iterator[str]:
    """Which questions the score counts that tests do not ask, and which it leaves out."""
    score, identity = report.score, report.identity
    if score is None:
        return
    if identity.n_never_asked and not score.of:
        yield (
            f"{count(identity.n_never_asked, 'faulty question')} are never asked; their score is "
            "estimated."
        )
    if (left_out := uncounted(identity.n_uncalibrated)) is not None:
        yield left_out


def _tasks(report: SessionReport) -> Iterator[str]:
    if len(report.tasks) < 2 or not report.figures["progress"]["scored"]:
        return
    found = [
        f"{word} than expected at {_names(tasks, report.identity.whole_bank)}"
        for word in ("stronger", "weaker")
        if (tasks := [task for task in report.tasks if task.standing == word])
    ]
    yield "Compared with models that are as good overall, it is " + (
        f"{' and '.join(found)}."
        if found
        else "neither stronger nor weaker at any single task beyond what chance allows."
    )


def _names(tasks: Sequence[TaskResult], whole: str) -> str:
    def named(task: TaskResult) -> str:
        name = task_name(task.tag, whole)
        return name if task.value is None else f"{name} ({percent(task.value)})"

    shown = [named(task) for task in tasks[:_NAMED]]
    if len(tasks) > _NAMED:
        shown.append(f"{len(tasks) - _NAMED} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _failures(report: SessionReport) -> Iterator[str]:
    closed, lost = report.figures["progress"]["items"], unscored(report.figures)
    failed, wrong = lost.left_out, lost.wrong
    if failed:
        told = ", ".join(f"{n:,} {OUTCOME_NAMES[outcome]}" for outcome, n in failed.items())
        yield (
            f"{sum(failed.values()):,} of {count(closed, 'answer')} could not be scored ({told}). "
            "They count neither as right nor as wrong."
        )
    if wrong:
        yield (
            f"{wrong:,} of {count(closed, 'answer')} could not be parsed and "
            f"{'counts' if wrong == 1 else 'count'} as wrong."
        )
    if closed and not failed and not wrong:
        yield "All of its answers could be scored."


def _effort(report: SessionReport) -> Iterator[str]:
    usage, reason = report.figures["usage"], report.stop_reason
    if usage["calls"]:
        calls, time = count(usage["calls"], "call"), duration(usage["seconds"])
        yield f"It took {calls}, {cost(usage)} and {time}."
    if reason and reason in STOP_WORDS and report.identity.status == "completed":
        yield f"The test stopped because {STOP_WORDS[reason]}."


def scored_on(shares: Mapping[str, float] | None, whole: str) -> str:
    """What a score is of, in words.

    Args:
        shares: By tag; None or empty is the whole bank.
        whole: What that is.
    """
    if not shares or set(shares) == {WHOLE_BANK}:
        return whole
    if len(shares) == 1:
        return f"the task {next(iter(shares))}"
    total = sum(shares.values())
    return " and ".join(
        f"{task_name(tag, whole)} ({percent(part / total)})" for tag, part in shares.items()
    )


def task_name(tag: str, whole: str) -> str:
    """A tag as people know it; `whole` is what the whole bank is called."""
    return whole if tag == WHOLE_BANK else tag


def interval(told: Interval) -> str:
    """A 95 % interval of shares."""
    return f"95\u00a0% interval: {percent(told['lo'])} to {percent(told['hi'])}"


def cost(usage: Mapping[str, Any]) -> str:
    """What the calls cost."""
    tokens = f"{usage['tokens_in'] + usage['tokens_out']:,} tokens"
    if usage["usd"] is None:
        return f"{tokens} (price unknown)"
    return f"{tokens} for {dollars(usage['usd'])}"
