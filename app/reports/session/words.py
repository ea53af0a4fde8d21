"""A test's result, and reasons to trust it less, in sentences for everybody."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.engine.inference.join import JoinCheck
from app.engine.prediction.p_irt import SCORE_MODEL
from app.engine.prediction.targets import WHOLE_BANK
from app.items import Outcome
from app.records.fields import Interval, ends
from app.records.sessions import REPEATING
from app.reports.figures import (
    Headline,
    answers_right,
    asked_caution,
    dollars,
    missed_margin,
    provisional_caution,
    uncounted,
    unparsed_caution,
    unscored,
)
from app.reports.formats import count, duration, percent
from app.reports.joins import join_sentence
from app.reports.session.facts import (
    Caution,
    Ended,
    Score,
    SessionIdentity,
    SessionReport,
    TaskResult,
)

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
    "custom": "it was to ask no further question",
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
#: Scored answers below which a result is called a first impression.
FEW_ANSWERS = 10

#: Outcomes without a mark, in words.
FAILURE_WORDS: Mapping[str, str] = {
    Outcome.ERROR: "no answer came, or it could not be scored",
    Outcome.REFUSED: "the model, or a filter before it, refused",
    Outcome.UNPARSED: "no answer could be read from the text",
    Outcome.TRUNCATED: "the answer was cut off at the limit of tokens",
}
#: Reasons to stop before the goal is reached.
_CUT = ("budget_exhausted", "time_limit", "max_items")


def summary(report: SessionReport) -> list[str]:
    """The result in a few sentences."""
    return [_who(report), *_result(report), *_tasks(report), *_failures(report), *_effort(report)]


def details(report: SessionReport) -> list[str]:
    """What the headline does not say."""
    return [*_not_asked(report), *_tasks(report), *_failures(report), *_effort(report)]


def _who(report: SessionReport) -> str:
    identity, progress = report.identity, report.figures["progress"]
    answered = progress["items"]
    bank = f"of the bank {identity.bank} (version {identity.bank_version})"
    calibrated = "calibrated " if identity.n_uncalibrated else ""
    questions = f"the {identity.n_counted:,} {calibrated}questions {bank}"
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
        yield f"On {asked} it scores {percent(score.value, 1)}: {score.exactness}."
    else:
        exact = "" if score.exactness is None else f", {score.exactness}"
        yield (
            f"On {asked} it is expected to score {percent(score.value, 1)} "
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
        known, stands = report.reference, report.estimate.get("extrapolation") or {}
        # A position is that of the score on the whole bank; `below` is by theta without one.
        is_placed = known is not None and known.population and stands.get("sd") is not None
        by_score = score.method == SCORE_MODEL or (is_placed and not score.of)
        lo, hi = ends(below.interval)
        known_to = "" if lo == hi else f" ({interval(below.interval)})"
        yield (
            f"{'That is' if by_score else 'By ability it is'} {place} of the "
            f"{f'{n:,} ' if n else ''}reference models{known_to}."
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
        return name if task.value is None else f"{name} ({percent(task.value, 1)})"

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
    is_told = any(usage[name] is not None for name in ("tokens_in", "tokens_out", "usd"))
    if usage["calls"] and (is_told or report.identity.mode == "live"):
        calls, time = count(usage["calls"], "call"), duration(usage["seconds"])
        if report.identity.relation in REPEATING:
            yield f"Its answers took {calls}, {cost(usage)}, in the test that asked for them."
        else:
            yield f"It took {calls}, {cost(usage)} and {time}."
    if reason and reason in STOP_WORDS and report.identity.status == "completed":
        yield f"The test stopped because {STOP_WORDS[reason]}."


def scored_on(shares: Mapping[str, float] | None, whole: str) -> str:
    """What a score is of, in words, by its shares of tags; without any it is of the `whole`."""
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
    return f"95\u00a0% interval: {percent(told['lo'], 1)} to {percent(told['hi'], 1)}"


def cost(usage: Mapping[str, Any]) -> str:
    """What the calls cost, as far as it is known."""
    into, out, usd = usage["tokens_in"], usage["tokens_out"], usage["usd"]
    is_known = into is not None and out is not None
    tokens = count(into + out, "token") if is_known else "an unknown number of tokens"
    if usd is None:
        return f"{tokens} (price unknown)"
    return f"{tokens} for {dollars(usd)}"


def cautions_of(
    identity: SessionIdentity,
    figures: Mapping[str, Any],
    score: Score | None,
    ended: Ended,
    join: JoinCheck | None,
    headline: Headline | None,
) -> tuple[Caution, ...]:
    """The warnings of a test, the gravest first: parameters of other questions measure nothing."""
    found = (
        *_of_join(join),
        *_of_state(identity, figures),
        ("asked_otherwise", asked_caution(identity.asked, identity.asked_when_calibrated)),
        (
            "unparsed_differs",
            unparsed_caution(identity.unparsed_policy, identity.unparsed_when_calibrated),
        ),
        *_of_answers(identity, figures),
        *_of_precision(identity, figures, ended, headline),
        *_of_interval(score),
    )
    return tuple(Caution(code=code, text=text) for code, text in found if text)


def _of_join(join: JoinCheck | None) -> Iterator[tuple[str, str]]:
    if join is not None and join.verdict in ("broken", "doubtful"):
        yield f"join_{join.verdict}", join_sentence(join)


def _of_state(
    identity: SessionIdentity, figures: Mapping[str, Any]
) -> Iterator[tuple[str, str | None]]:
    status, scored = identity.status, figures["progress"]["scored"]
    rests = "What this page shows rests on the answers that came until then."
    if status == "failed":
        yield "failed", f"The test failed before it came to its end. {rests}"
    elif status == "cancelled":
        yield "cancelled", f"The test was cancelled. {rests}"
    elif status != "completed":
        yield (
            "unfinished",
            "The test goes on, and what this page shows will change: load it again later.",
        )
    yield (
        "provisional" if identity.provisional else "calibrated_on_few",
        provisional_caution(identity.uncertainty, provisional=identity.provisional),
    )
    reason = figures["estimate"].get("reason")
    if reason is not None and status in ("completed", "cancelled"):
        if figures["score"] is None:
            yield "no_result", f"There is no result: {reason[:1].lower()}{reason[1:]}"
        else:
            yield "theta_withheld", f"{reason[:1].upper()}{reason[1:]}"
    elif 0 < scored < FEW_ANSWERS and status == "completed":
        yield (
            "few_answers",
            f"The result rests on {count(scored, 'scored answer')} only: a first impression.",
        )


def _of_answers(
    identity: SessionIdentity, figures: Mapping[str, Any]
) -> Iterator[tuple[str, str | None]]:
    lost = unscored(figures)
    yield "unparsed_as_wrong", lost.wrong_words
    if share := lost.share_left_out:
        yield (
            "unmarked_answers",
            f"{percent(share)} of the answers have no score and are left out. If the model "
            "fails more often where questions are hard, its true score is lower than the one "
            "shown: the lower end of the score's interval allows for that; ability and its "
            "interval do not. If users would meet the same failures, count them beside the "
            "score.",
        )
    fit = figures.get("person_fit")
    if fit and fit["flagged"]:
        turned = fit.get("inversions")
        told = (
            ""
            if turned is None
            else f": {count(round(turned['observed']), 'time')} a hard question was right and an "
            f"easier one wrong, where {turned['expected']:.0f} is usual"
        )
        # Who has hard questions right and easy ones wrong may know them; who has none may not.
        seen = turned is None or turned["observed"] > turned["expected"]
        why = "may have seen some of the questions in training, or it was" if seen else "may be"
        yield (
            "person_fit",
            f"The pattern of the answers is unlike that of other models{told}. The model {why} "
            "asked in an unsuitable way. Look at the table of questions before you rely on the "
            "score.",
        )
    yield "extrapolation", (figures["estimate"].get("extrapolation") or {}).get("caution")
    if figures["estimate"]["at_bound"]:
        yield (
            "at_bound",
            "The model is at the end of what this bank can measure: the questions were all too "
            "easy or all too hard for it.",
        )
    rescored = figures.get("rescore")
    if identity.relation == "rescore" and rescored and rescored["changed"]:
        yield (
            "rescored",
            f"These are the answers of test {identity.parent_id}, scored again: "
            f"{rescored['changed']:,} of {count(rescored['answers'], 'answer')} got another "
            "score.",
        )


def _of_precision(
    identity: SessionIdentity, figures: Mapping[str, Any], ended: Ended, headline: Headline | None
) -> Iterator[tuple[str, str]]:
    goals = identity.design.get("stopping") or {}
    of_score = goals.get("se") is None and goals.get("score_margin") is not None
    told = figures["score"] is not None if of_score else figures["estimate"].get("reason") is None
    reason = ended.stop_reason
    if reason not in _CUT or ended.precision_reached is not False or not told:
        return
    se = figures["estimate"]["se"]
    known = "" if se is None or of_score else f" Its standard error is {se:.2f}."
    what, margin = "score" if of_score else "ability", goals["score_margin"] if of_score else None
    missed = missed_margin(margin, headline, unscored(figures), identity.id)
    yield (
        "precision_not_reached",
        f"The test stopped because {STOP_WORDS[reason]}, before the {what} was known as "
        f"exactly as was asked for.{known} "
        + (f"Precision: {missed}." if missed else "The intervals say how much is uncertain."),
    )


def _of_interval(score: Score | None) -> Iterator[tuple[str, str]]:
    if score is not None and not score.checked:
        yield (
            "unchecked_interval",
            "This bank was not cross-validated: how often the intervals hold for models other "
            "than the reference models is not known. As a rule such intervals are somewhat too "
            "narrow.",
        )
