"""Reasons to trust a result less, in plain words."""

from collections.abc import Iterator, Mapping
from typing import Any

from app.engine.inference.join import JoinCheck
from app.items import Outcome
from app.reports.figures import (
    asked_caution,
    provisional_caution,
    unparsed_caution,
    unscored,
)
from app.reports.formats import count, percent
from app.reports.joins import join_sentence
from app.reports.session.facts import Caution, Score, SessionIdentity

#: Marked answers below which a result is called a first impression.
FEW_ANSWERS = 10

#: Outcomes without a mark, in words.
FAILURE_WORDS: Mapping[str, str] = {
    Outcome.ERROR: "no answer came, or it could not be scored",
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
    join: JoinCheck | None,
) -> tuple[Caution, ...]:
    """The warnings of a test, the gravest first: parameters of other questions measure nothing."""
    found = (
        *_of_join(join),
        *_of_state(identity, figures),
        (
            "asked_otherwise",
            asked_caution(identity.asked, identity.asked_when_calibrated),
        ),
        (
            "unparsed_differs",
            unparsed_caution(identity.unparsed_policy, identity.unparsed_when_calibrated),
        ),
        *_of_answers(identity, figures),
        *_of_precision(identity.design, figures, stop_reason, precision_reached),
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
    design: Mapping[str, Any],
    figures: Mapping[str, Any],
    stop_reason: str | None,
    precision_reached: bool | None,
) -> Iterator[tuple[str, str]]:
    goals = design.get("stopping") or {}
    of_score = goals.get("se") is None and goals.get("score_margin") is not None
    told = figures["score"] is not None if of_score else figures["estimate"].get("reason") is None
    if stop_reason not in _CUT or precision_reached is not False or not told:
        return
    se = figures["estimate"]["se"]
    known = "" if se is None or of_score else f" Its standard error is {se:.2f}."
    what = "score" if of_score else "ability"
    yield (
        "precision_not_reached",
        f"The test stopped because {_CUT[stop_reason]}, before the {what} was known as exactly "
        f"as was asked for.{known} The intervals say how much is uncertain.",
    )


def _of_interval(score: Score | None) -> Iterator[tuple[str, str]]:
    if score is not None and not score.checked:
        yield (
            "unchecked_interval",
            "This bank was not cross-validated: how often the intervals hold for models other "
            "than the reference models is not known. As a rule such intervals are somewhat too "
            "narrow.",
        )
