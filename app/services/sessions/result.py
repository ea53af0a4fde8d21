"""Reads the result of an ended session from its stored figures, with cautions about it."""

import math
from dataclasses import dataclass

from app.engine.prediction.ability import Ability
from app.engine.prediction.correction import IntervalCorrection
from app.engine.prediction.learned_curves import Place, PopulationPosition
from app.engine.prediction.p_irt import ALL_ITEMS, BY_SAMPLE, SCORE_MODEL
from app.engine.prediction.targets import WHOLE_BANK
from app.errors import InvalidStateError
from app.printable import percent
from app.records.fields import ends, interval
from app.records.figures import ExtrapolationFigures, ResultFigures, ScoreFigures, SessionFigures
from app.records.leased import ENDED
from app.records.sessions import SessionRecord
from app.reports.figures import (
    asked_caution,
    provisional_caution,
    uncounted,
    unparsed_caution,
    unscored,
)
from app.reports.joins import join_caution


@dataclass(frozen=True, slots=True)
class Result:
    """Ability and predicted score of an ended session.

    Attributes:
        theta: Ability in logits; `None` without an estimate.
        se: Standard error of theta by the model.
        interval: 95 % interval of theta, corrected if the bank version has a correction.
        score: Predicted score on the whole bank, or `None`; see `score_in`.
        extrapolation: Position of the examinee among the reference models; see
            `app.services.sessions.figures`.
        reason: Why there is no ability, or neither ability nor score.
    """

    theta: float | None
    se: float | None
    interval: tuple[float | None, float | None]
    score: ScoreFigures | None
    n_scored: int
    reason: str | None = None
    extrapolation: ExtrapolationFigures | None = None

    @property
    def place(self) -> Place | None:
        """Place of the examinee among the reference models; None where these are unknown."""
        stands = self.extrapolation
        if stands is None or stands.get("sd") is None:  # older sessions do not store the sd
            return None
        standing = PopulationPosition(stands["standing"])
        # The sd is that of the score, which may be known where the ability is not.
        return Place(standing, standing is PopulationPosition.UNKNOWN, stands["position"])

    def ability(self, correction: IntervalCorrection | None) -> Ability:
        """The ability for comparisons, under the interval correction of the session's version."""
        return Ability(
            theta=math.nan if self.theta is None else self.theta,
            se=math.inf if self.se is None else self.se,
            n_items=self.n_scored,
            stretch=None if correction is None else correction.theta,
            place=self.place,
        )

    def to_decide(self, correction: IntervalCorrection | None) -> tuple[float | None, float | None]:
        """The interval of theta for decisions, under the correction of the session's version.

        This is the session's interval. If the answers leave open whether the examinee is like the
        reference models, it is the smallest interval that holds this and the one for comparisons.
        """
        (lo, hi), place = self.interval, self.place
        is_open = place is not None and place.is_open
        if not is_open or correction is None or lo is None or hi is None:
            return self.interval
        least, most = self.ability(correction).stated().interval
        return min(lo, least), max(hi, most)


def require_ended(record: SessionRecord) -> None:
    """Refuse a session that has not ended, and say what ends it."""
    if record.status not in ENDED:
        raise InvalidStateError(
            f"Session {record.id} is {record.status}; this needs one that has ended: wait for its "
            "end, or cancel it."
        )


def result_of(record: SessionRecord) -> Result:
    """The result of a session that ended without failure.

    Raises:
        InvalidStateError: The session has not ended, or it has failed.
    """
    require_ended(record)
    if record.status == "failed":
        # The detail may quote an answer, so it is not shown for a withheld bank.
        why = "." if record.withheld else f": {record.stop_detail}"
        raise InvalidStateError(f"Session {record.id} has failed{why}")
    return result_in(record.summary)


def result_in(summary: ResultFigures) -> Result:
    """The result in the figures of an ended session."""
    estimate = summary["estimate"]
    return Result(
        theta=estimate["theta"],
        se=estimate["se"],
        interval=ends(estimate["interval"]),
        score=score_in(summary),
        n_scored=summary["progress"]["scored"],
        reason=estimate.get("reason"),
        extrapolation=estimate.get("extrapolation"),
    )


def score_in(summary: ResultFigures, tag: str = WHOLE_BANK) -> ScoreFigures | None:
    """`value`, `interval`, `method` of the score on a tag's items; None if there is none.

    If every item was asked, the score is known, and both ends of the interval equal the score.

    A session has the score on its target. In a bank of several abilities it also has the scores on
    the tags, and on the whole bank if its target is another.
    """
    score = summary["score"]
    if score is None:
        return None
    about = score.get("target") or {WHOLE_BANK: 1.0}
    if set(about) == {tag}:
        told: ScoreFigures = score
        return {**told, "interval": told["interval"] or interval(told["value"], told["value"])}
    profile = summary.get("profile")
    found = (
        next((task for task in profile["tasks"] if task["tag"] == tag), None) if profile else None
    )
    if found is None:
        return None
    is_known = found["n_asked"] == found["n_items"]
    # Older results have no method of a task; a score that is no mean of all is then predicted.
    method = SCORE_MODEL if score["method"] == ALL_ITEMS else score["method"]
    return {
        "value": found["value"],
        "interval": found["interval"],
        "nonresponse": 0.0 if is_known else score.get("nonresponse", 0.0),
        "method": ALL_ITEMS if is_known else found.get("method", method),
        "target": None if tag == WHOLE_BANK else {tag: 1.0},
    }


_ENDED_EARLY = {"failed": "failed", "cancelled": "was cancelled"}


def cautions_of(session: SessionRecord, *, is_score: bool) -> str | None:
    """Cautions to show beside a session's predicted score, or its theta; None without any."""
    known, summary = session.provenance, session.summary
    ended = _ENDED_EARLY.get(session.status)
    place, score = summary["estimate"].get("extrapolation"), summary["score"]
    by_sample = is_score and score is not None and score["method"] in BY_SAMPLE
    # Such a place and guessed parameters concern ability alone if the score rests on a sample.
    is_vague = place is not None and place["standing"] == "unknown" and place["agrees"]
    told = (
        join_caution(session.join),
        f"The test {ended}: this rests on the answers that came until then." if ended else None,
        None
        if by_sample
        else provisional_caution(known.get("uncertainty"), provisional=known["provisional"]),
        place["caution"] if place and not (by_sample and is_vague) else None,
        _of_asking(session),
        unparsed_caution(known["asking"]["unparsed_policy"], known.get("unparsed_when_calibrated")),
        unscored(summary).wrong_words,
        _of_unmarked(summary, is_score=is_score),
        uncounted(known.get("n_uncalibrated", 0)) if is_score else None,
    )
    return " ".join(one for one in told if one is not None) or None


def _of_asking(session: SessionRecord) -> str | None:
    asked = dict(session.provenance.get("asked", {}))
    if session.withheld:
        asked.pop("scorer", None)
    return asked_caution(asked, session.provenance.get("asked_when_calibrated", {}))


def _of_unmarked(summary: SessionFigures, *, is_score: bool) -> str | None:
    share = unscored(summary).share_left_out
    if not share:
        return None
    room = (
        "the lower end of the score's interval allows for them"
        if is_score
        else "ability and its interval rest on the others alone"
    )
    return f"{percent(share)} of the answers have no score: {room}."
