"""Reasons to trust a result less, in plain words."""

from collections.abc import Mapping
from typing import Any

from app.engine.inference.join import JoinCheck
from app.items import Outcome
from app.reports.figures import (
    asked_caution,
    many_unmarked,
    provisional_caution,
    unparsed_caution,
)
from app.reports.joins import join_sentence
from app.reports.parts import count, percent
from app.reports.session.facts import Caution, Score, SessionIdentity

#: Marked answers below which a result is called a first impression.
FEW_ANSWERS = 10

#: Outcomes without a mark, in words.
FAILURE_WORDS: Mapping[str, str] = {
    Outcome.ERROR: "no answer came, or nobody could mark the one that came",
    Outcome.REFUSED: "the model, or a filter before it, refused",
    Outcome.UNPARSED: "no answer could be read from the text",
    Outcome.TRUNCATED: "the answer was cut off at the limit of tokens",
}
_CUT = {
    "budget_exhausted": "the budget was spent",
    "time_limit": "the time was up",
    "max_items": "the largest number of questions was reached",
}


def cautions_of(
    identity: SessionIdentity,
    figures: Mapping[str, Any],
    score: Score | None,
    stop_reason: str | None,
    precision_reached: bool | None,
) -> tuple[Caution, ...]:
    """The warnings of a test, the gravest first."""
    found = [
        *_of_state(identity, figures),
        *_of_asking(identity),
        *_of_unparsed(identity),
        *_of_failures(figures),
        *_of_answers(identity, figures),
        *_of_precision(identity.design, figures, stop_reason, precision_reached),
    ]
    if score is not None and not score.checked:
        found.append(
            Caution(
                code="unchecked_interval",
                text="The intervals are what the statistical model says. Nobody has checked with "
                "this bank how often they hold for models that it was not calibrated on; as a rule "
                "such intervals are somewhat too narrow.",
            )
        )
    return tuple(found)


def join_cautions(join: JoinCheck | None) -> tuple[Caution, ...]:
    """The gravest warning of all: parameters that belong to other questions measure nothing."""
    if join is None or join.verdict not in ("broken", "doubtful"):
        return ()
    return (Caution(code=f"join_{join.verdict}", text=join_sentence(join)),)


def _of_state(identity: SessionIdentity, figures: Mapping[str, Any]) -> list[Caution]:
    found = []
    if identity.status == "failed":
        found.append(
            Caution(
                code="failed",
                text="The test failed before it came to its end. What this page shows rests on the "
                "answers that came until then.",
            )
        )
    elif identity.status == "cancelled":
        found.append(
            Caution(
                code="cancelled",
                text="The test was cancelled. What this page shows rests on the answers that came "
                "until then.",
            )
        )
    elif identity.status != "completed":
        found.append(
            Caution(
                code="unfinished",
                text="The test goes on, and what this page shows will change: load it again later.",
            )
        )
    guessed = provisional_caution(identity.uncertainty, provisional=identity.provisional)
    if guessed is not None:
        code = "provisional" if identity.provisional else "calibrated_on_few"
        found.append(Caution(code=code, text=guessed))
    scored = figures["progress"]["scored"]
    reason = figures["estimate"].get("reason")
    if reason is not None and identity.status in ("completed", "cancelled"):
        found.append(Caution(code="no_result", text=f"There is no result: {_begun(reason)}"))
    elif 0 < scored < FEW_ANSWERS and identity.status == "completed":
        found.append(
            Caution(
                code="few_answers",
                text=f"The result rests on {count(scored, 'marked answer')} only: a first "
                "impression.",
            )
        )
    return found


def _begun(sentence: str) -> str:
    """A sentence as it goes on behind a colon."""
    return sentence[:1].lower() + sentence[1:]


def _of_asking(identity: SessionIdentity) -> list[Caution]:
    said = asked_caution(identity.asked, identity.asked_when_calibrated)
    return [] if said is None else [Caution(code="asked_otherwise", text=said)]


def _of_unparsed(identity: SessionIdentity) -> list[Caution]:
    said = unparsed_caution(identity.unparsed_policy, identity.unparsed_when_calibrated)
    return [] if said is None else [Caution(code="unparsed_differs", text=said)]


def _of_failures(figures: Mapping[str, Any]) -> list[Caution]:
    share = many_unmarked(figures)
    if not share:
        return []
    return [
        Caution(
            code="unmarked_answers",
            text=f"{percent(share)} of the answers have no mark and are left out of the "
            "score. If the model fails more often where questions are hard, its true score is "
            "lower than the one shown: the lower end of the score's interval has room for that, "
            "ability and its interval have not. If whoever uses the model would meet the same "
            "failures, count them beside the score.",
        )
    ]


def _of_answers(identity: SessionIdentity, figures: Mapping[str, Any]) -> list[Caution]:
    found = []
    fit = figures.get("person_fit")
    if fit and fit["flagged"]:
        turned = fit.get("inversions")
        told = (
            ""
            if turned is None
            else f": {turned['observed']:.0f} times a hard question was right and an easier one "
            f"wrong, where {turned['expected']:.0f} such pairs were to be expected"
        )
        # Who has hard questions right and easy ones wrong may know them; who has none may not.
        seen = turned is None or turned["observed"] > turned["expected"]
        why = "may have seen some of the questions in training, or it was" if seen else "may be"
        found.append(
            Caution(
                code="person_fit",
                text=f"The answers do not go together as those of other models do{told}. The model "
                f"{why} asked in an unsuitable way. Look at the table of questions before you "
                "rely on the score.",
            )
        )
    extrapolated = figures["estimate"].get("extrapolation")
    if extrapolated and extrapolated["caution"]:
        found.append(Caution(code="extrapolation", text=extrapolated["caution"]))
    if figures["estimate"]["at_bound"]:
        found.append(
            Caution(
                code="at_bound",
                text="The model is at the end of what this bank can measure: the questions were "
                "all too easy or all too hard for it.",
            )
        )
    rescored = figures.get("rescore")
    if identity.relation == "rescore" and rescored and rescored["changed"]:
        found.append(
            Caution(
                code="rescored",
                text=f"These are the answers of test {identity.parent_id}, marked again: "
                f"{rescored['changed']:,} of {count(rescored['answers'], 'answer')} got another "
                "mark.",
            )
        )
    return found


def _of_precision(
    design: Mapping[str, Any],
    figures: Mapping[str, Any],
    stop_reason: str | None,
    precision_reached: bool | None,
) -> list[Caution]:
    told = figures["estimate"].get("reason") is None
    if stop_reason not in _CUT or precision_reached is not False or not told:
        return []
    goals = design.get("stopping") or {}
    of_score = goals.get("se") is None and goals.get("score_margin") is not None
    se = figures["estimate"]["se"]
    known = "" if se is None or of_score else f" Its standard error is {se:.2f}."
    what = "score" if of_score else "ability"
    return [
        Caution(
            code="precision_not_reached",
            text=f"The test stopped because {_CUT[stop_reason]}, before the {what} was known as "
            f"exactly as was asked for.{known} The intervals say how much is open.",
        )
    ]
