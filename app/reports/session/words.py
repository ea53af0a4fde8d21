"""A test's result in sentences for people who never heard of item response theory."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.engine.prediction.targets import WHOLE_BANK
from app.reports.figures import answers_right, counted_wrong, dollars, uncounted, unmarked
from app.reports.parts import count, percent
from app.reports.session.facts import Score, SessionReport, TaskResult

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
    "too_many_failures": "too many calls failed",
    "cancelled": "somebody cancelled it",
    "custom": "whoever ran it ended it",
}
#: What became of an answer, in a word or two.
OUTCOME_NAMES: Mapping[str, str] = {
    "scored": "marked",
    "error": "failed",
    "refused": "refused",
    "unparsed": "not readable",
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
    found = [*_tasks(report), *_failures(report), *_effort(report)]
    if report.score is not None:
        found[:0] = [*_never_asked(report, report.score), *_uncounted(report)]
    return found


def _who(report: SessionReport) -> str:
    identity, progress = report.identity, report.figures["progress"]
    answered = progress["items"]
    bank = f"of the bank {identity.bank} (version {identity.bank_version})"
    calibrated = "calibrated " if identity.n_uncalibrated else ""
    questions = f"the {identity.n_items:,} {calibrated}questions {bank}"
    if identity.status == "failed":
        detail = (report.failure or {}).get("detail") or report.stop_detail or "unknown"
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


def _result(report: SessionReport) -> list[str]:
    score = report.score
    if score is None:
        progress = report.figures["progress"]
        if not progress["items"]:
            return []
        if not progress["scored"]:
            return ["No answer could be marked, so there is no score."]
        reason = report.estimate.get("reason")
        return [f"There is no score. {reason}" if reason else "There is no score yet."]
    asked = scored_on(score.of, report.identity.whole_bank)
    if score.lo is None or score.hi is None:
        known = f"On {asked} it scores {percent(score.value)}: {score.exactness}."
    else:
        exact = "" if score.exactness is None else f", {score.exactness}"
        known = (
            f"On {asked} it is expected to score {percent(score.value)} "
            f"({interval(score.lo, score.hi)}{exact})."
        )
    right = answers_right(report.figures["progress"])
    return [
        known,
        *([] if right is None else [f"Of the questions asked: {right}."]),
        *_never_asked(report, score),
        *_uncounted(report),
        *_compared(report, score),
    ]


def _never_asked(report: SessionReport, score: Score) -> list[str]:
    """That the headline's questions are more than those that tests ask."""
    n = report.identity.n_never_asked
    if not n or score.of:
        return []
    return [
        f"That counts {count(n, 'quarantined question')}, too, which no test asks: what is "
        "expected of them follows from the others."
    ]


def _uncounted(report: SessionReport) -> list[str]:
    told = uncounted(report.identity.n_uncalibrated)
    return [] if told is None else [told]


def _compared(report: SessionReport, score: Score) -> list[str]:
    below = score.below
    if below is None:
        return []
    n = report.identity.n_calibrated_on
    models = f"the {n:,} models" if n else "the models"
    if below.value > 0.99:
        place = f"better than nearly all of {models} that the bank was calibrated on"
    elif below.value < 0.01:
        place = f"worse than nearly all of {models} that the bank was calibrated on"
    else:
        place = (
            f"better than about {percent(below.value)} of {models} that the bank was calibrated on"
        )
    return [f"That is {place} ({interval(below.lo, below.hi)})."]


def _tasks(report: SessionReport) -> list[str]:
    if len(report.tasks) < 2 or not report.figures["progress"]["scored"]:
        return []
    stronger = [task for task in report.tasks if task.standing == "stronger"]
    weaker = [task for task in report.tasks if task.standing == "weaker"]
    if not stronger and not weaker:
        return [
            "Compared with models that are as good overall, it is neither stronger nor weaker at "
            "any single task beyond what chance allows."
        ]
    parts = [
        f"{word} than expected at {_names(tasks, report.identity.whole_bank)}"
        for word, tasks in (("stronger", stronger), ("weaker", weaker))
        if tasks
    ]
    return [f"Compared with models that are as good overall, it is {' and '.join(parts)}."]


def _names(tasks: Sequence[TaskResult], whole: str) -> str:
    def named(task: TaskResult) -> str:
        name = task_name(task.tag, whole)
        return name if task.value is None else f"{name} ({percent(task.value)})"

    shown = [named(task) for task in tasks[:_NAMED]]
    if len(tasks) > _NAMED:
        shown.append(f"{len(tasks) - _NAMED} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _failures(report: SessionReport) -> list[str]:
    closed, failed = report.figures["progress"]["items"], unmarked(report.figures)
    if not closed:
        return []
    said = []
    if failed:
        told = ", ".join(f"{n:,} {OUTCOME_NAMES[outcome]}" for outcome, n in failed.items())
        said.append(
            f"{sum(failed.values()):,} of {count(closed, 'answer')} could not be marked ({told}). "
            "They count neither as right nor as wrong."
        )
    if wrong := counted_wrong(report.figures):
        said.append(
            f"{wrong:,} of {count(closed, 'answer')} could not be read and "
            f"{'counts' if wrong == 1 else 'count'} as wrong."
        )
    return said or ["All of its answers could be marked."]


def _effort(report: SessionReport) -> list[str]:
    usage = report.figures["usage"]
    said = []
    if usage["calls"]:
        said.append(
            f"It took {count(usage['calls'], 'call')}, {cost(usage)} and {duration(usage)}."
        )
    reason = report.stop_reason
    if reason is not None and reason in STOP_WORDS and report.identity.status == "completed":
        said.append(f"The test stopped because {STOP_WORDS[reason]}.")
    return said


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


def interval(lo: float, hi: float) -> str:
    """A 95 % interval of shares."""
    return f"95\u00a0% interval: {percent(lo)} to {percent(hi)}"


def cost(usage: Mapping[str, Any]) -> str:
    """What the calls cost."""
    tokens = f"{usage['tokens_in'] + usage['tokens_out']:,} tokens"
    if usage["usd"] is None:
        return f"{tokens} (price unknown)"
    return f"{tokens} for {dollars(usage['usd'])}"


def duration(usage: Mapping[str, Any]) -> str:
    """How long it took."""
    seconds = usage["seconds"]
    if seconds < 60:
        return f"{seconds:.1f} seconds" if seconds < 10 else f"{seconds:.0f} seconds"
    minutes = round(seconds / 60)
    return f"{count(minutes, 'minute')}" if minutes < 120 else f"{minutes / 60:.1f} hours"
