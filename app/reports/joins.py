"""Sentences about a join check of a bank's parameters and questions."""

from app.engine.inference.join import ENOUGH_POWER, JoinCheck
from app.reports.formats import count, percent

#: Verdict -> heading.
HEADINGS = {
    "holds": "The questions have their own parameters.",
    "broken": "The parameters do not seem to belong to these questions.",
    "doubtful": "The parameters may not belong to all of these questions, or these models answer "
    "unlike others.",
    "undecided": "Nobody knows yet whether the questions have their own parameters.",
}


def join_caution(verdict: str | None) -> str | None:
    """Warning beside a result whose parameters may belong to other questions."""
    return HEADINGS[verdict] if verdict in ("broken", "doubtful") else None


def join_sentence(check: JoinCheck) -> str:
    """Say the verdict, the evidence for it, and what share of wrong joins such evidence reveals."""
    basis = (
        f"{count(check.n_answers, 'answer')} of {count(check.n_examinees, 'examinee')} to "
        f"{count(check.n_items, 'item')}"
    )
    if check.z is None or check.expected_z is None:
        return (
            f"{HEADINGS['undecided']} No answers can tell ({basis}): they must come from "
            "outside the calibration, and be neither all right nor all wrong."
        )
    compared = (
        f"{basis} agree with the difficulties at z = {check.z:.1f}, where a right join is "
        f"expected to give {check.expected_z:.1f} and a wrong one 0"
    )
    if check.verdict == "holds":
        told = "."
    elif check.verdict == "broken":
        told = (
            ", and none of these examinees decides that alone: check that the items are in the "
            "order in which their parameters were numbered, and that answers are scored rightly."
        )
    elif check.verdict == "doubtful":
        told = (
            ": some items may have the parameters of others, they are asked or scored "
            "differently than when they were calibrated, or an examinee answers unlike those of "
            "the calibration: ask other models."
        )
    else:
        told = (
            f"; these answers are enough to find {percent(check.power)} of wrong joins, and "
            f"{percent(ENOUGH_POWER)} are needed: collect more."
        )
    return f"{HEADINGS[check.verdict]} {compared}{told}"
