"""The headline of a result, with its trust: the few figures that people pass on."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.engine.design.selection import CriterionName
from app.engine.prediction.learned_curves import PopulationPosition
from app.engine.prediction.p_irt import BY_THETA
from app.engine.prediction.targets import WHOLE_BANK
from app.printable import percent
from app.records.fields import Interval
from app.records.figures import ScoreFigures
from app.records.sessions import SessionRecord
from app.reports.figures import (
    Headline,
    Trust,
    TrustLevel,
    answers_right,
    asked_caution,
    unparsed_caution,
    unscored,
    usd_per_item,
)
from app.reports.joins import HEADINGS, join_caution

#: Share of answers without a score from which on the trust is poor.
_MOST_UNMARKED = 0.3
#: Halves of an interval's width above which the trust is at most fair, and poor.
_WIDE, _TOO_WIDE = 0.1, 0.2
#: Criteria that sample some or all questions; criteria for theta choose every question.
_SAMPLING = (CriterionName.V_OPTIMAL, CriterionName.RANDOM)
_LEVELS: Final[Sequence[TrustLevel]] = ("good", "fair", "poor")
_ENDED_EARLY = {"failed": "The test failed", "cancelled": "The test was cancelled"}
_BEYOND = {
    PopulationPosition.ABOVE: "The model is stronger than all reference models",
    PopulationPosition.BELOW: "The model is weaker than all reference models",
    PopulationPosition.UNKNOWN: "It is not known whether the model is like the reference models",
}


def headline_of(session: SessionRecord) -> Headline | None:
    """Make the headline of a session so far; None before it has a score."""
    figures, provenance = session.summary, session.provenance
    score, estimate = figures["score"], figures["estimate"]
    if score is None:
        return None
    progress = figures["progress"]
    asked = progress["items"]
    # Older scores do not tell how many questions they are about.
    n_items = provenance["n_items"] + provenance.get("n_never_asked", 0)
    n_askable = score.get("n_askable", provenance["n_items"])
    each = usd_per_item(figures)
    stands: Mapping[str, Any] = estimate.get("extrapolation") or {}
    is_placed = stands.get("standing") not in (None, PopulationPosition.UNKNOWN)
    target = score.get("target") or {}
    about = "" if set(target) <= {WHOLE_BANK} else f" ({', '.join(target)})"
    return Headline(
        examinee=session.endpoint_name or session.endpoint_model or "The examinee",
        bank=session.bank_name + about,
        score=score["value"],
        interval=score["interval"],
        answers=answers_right(progress["scored"], progress.get("right"), progress.get("mean")),
        asked=asked,
        n_items=score.get("n_items", n_items),
        n_askable=n_askable,
        equivalent_random_items=score.get("equivalent_random_items"),
        usd=figures["usage"]["usd"],
        usd_all=None if each is None else each * n_askable,
        trust=trust_of(session, score),
        better_than=stands["percentile"] / 100.0 if is_placed else None,
        recent=score.get("recent"),
        theta=estimate.get("theta"),
        se=estimate.get("se"),
        theta_reason=estimate.get("reason"),
    )


def trust_of(session: SessionRecord, score: ScoreFigures) -> Trust:
    """How far to trust a score of a session: the one it is about, or that of the whole bank."""
    stands: Mapping[str, Any] = session.summary["estimate"].get("extrapolation") or {}
    return _trust_within(score["interval"], _trust(session, score, stands))


def _trust_within(interval: Interval | None, trust: Trust) -> Trust:
    """The trust that an interval leaves; its width is the reason where it lowers the trust."""
    if interval is None or interval["lo"] is None or interval["hi"] is None:
        return trust
    half = round((interval["hi"] - interval["lo"]) / 2.0, 3)
    level: TrustLevel = "poor" if half > _TOO_WIDE else "fair" if half > _WIDE else "good"
    if _LEVELS.index(level) <= _LEVELS.index(trust.level):
        return trust
    return Trust(level=level, reason=f"The score is known only to ±{100 * half:.1f} points.")


def _trust(session: SessionRecord, score: Mapping[str, Any], stands: Mapping[str, Any]) -> Trust:
    provenance = session.provenance
    own = _of_its_answers(session)
    if session.join == "broken" and (own is None or own.level != "poor"):
        return Trust(level="poor", reason=HEADINGS["broken"])
    if own is not None:
        return own
    if score["interval"] is None:
        return Trust(level="good", reason="All questions were asked.")
    standing = stands.get("standing")
    if score["method"] in BY_THETA:
        reason = "The score rests on curves alone; no question was sampled to check them."
        is_within = standing == PopulationPosition.WITHIN
        return Trust(level="fair" if is_within else "poor", reason=reason)
    asking = asked_caution(provenance.get("asked", {}), provenance.get("asked_when_calibrated", {}))
    reading = unparsed_caution(
        provenance["asking"]["unparsed_policy"], provenance.get("unparsed_when_calibrated")
    )
    if (caution := join_caution(session.join) or asking or reading) is not None:
        return Trust(level="fair", reason=caution)
    if standing in _BEYOND:
        return Trust(level="fair", reason=f"{_BEYOND[PopulationPosition(standing)]}.")
    criterion = (session.design.get("selection") or {}).get("criterion")
    if standing is None and criterion in _SAMPLING:
        reason = "Too few reference models to place the model: mostly sampled questions count."
        return Trust(level="fair", reason=reason)
    if standing is None:
        reason = (
            "Too few reference models to place the model, and a test for ability samples no "
            "question: run one for the score."
        )
        return Trust(level="poor", reason=reason)
    if not stands["agrees"]:
        reason = "The answers do not follow the reference models: the sampled questions count."
        return Trust(level="fair", reason=reason)
    fit = session.summary.get("person_fit")
    if fit is not None and fit["flagged"]:
        reason = "The pattern of the answers is unlike that of other models."
        return Trust(level="fair", reason=reason)
    reason = "The model lies within the reference models, and its answers agree with them."
    return Trust(level="good", reason=reason)


def _of_its_answers(session: SessionRecord) -> Trust | None:
    """What is wrong with a test whatever its bank is; None if nothing is."""
    lost = unscored(session.summary)
    share, reason = lost.share_left_out, None
    if share:
        reason = f"{percent(share)} of the answers have no score."
    elif lost.share_wrong:
        share, reason = lost.share_wrong, lost.wrong_words
    if share < _MOST_UNMARKED and (ended := _ENDED_EARLY.get(session.status)) is not None:
        return Trust(level="poor", reason=f"{ended}: the score rests on the answers until then.")
    if reason is None:
        return None
    return Trust(level="poor" if share >= _MOST_UNMARKED else "fair", reason=reason)
