"""Sentences about a join check of a bank's parameters and questions."""

from app.engine.inference.join import ENOUGH_POWER, JoinCheck
from app.reports.formats import count, percent

#: Verdict -> heading.
HEADINGS = {
    "holds": "The questions have their own parameters.",
    "broken": "The parameters do not belong to these questions.",
    "doubtful": "The parameters may not belong to all of these questions.",
    "undecided": "Nobody knows yet whether the questions have their own parameters.",
}


def join_sentence(check: JoinCheck) -> str:
    """Say the verdict, the evidence for it, and what share of wrong joins such evidence reveals."""
    basis = (
        f"{count(check.n_answers, 'answer')} of {count(check.n_examinees, 'examinee')} to "
        f"{count(check.n_items, 'item')}"
    )
    if check.z is None or check.expected_z is None:
        return (
            f"{HEADINGS['undecided']} There are no answers that could tell ({basis}): they must be "
            "from outside the calibration, and neither all right nor all wrong."
        )
    compared = (
        f"{basis} go with the difficulties at z = {check.z:.1f}, where {check.expected_z:.1f} is "
        "to be expected of a right join and 0 of a wrong one"
    )
    if check.verdict == "holds":
        told = "."
    elif check.verdict == "broken":
        told = (
            ": look whether the items stand in the order that their parameters were numbered in, "
            "whether answers are scored rightly, and whether so few examinees answer as others do."
        )
    elif check.verdict == "doubtful":
        told = (
            ": part of the items may have the parameters of others, or they are asked or scored "
            "otherwise than when they were calibrated."
        )
    else:
        told = (
            f"; so many answers would find {percent(check.power)} of wrong joins, "
            f"{percent(ENOUGH_POWER)} are wanted: collect more."
        )
    return f"{HEADINGS[check.verdict]} {compared}{told}"
