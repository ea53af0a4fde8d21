"""Results of sessions, the differences between them, and cautions about comparing them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.engine import Response
from app.engine.bank import ItemIndex
from app.engine.inference.comparison import (
    Difference,
    MeasuredScore,
    of_abilities,
    of_scores,
    shared_error,
)
from app.engine.inference.diagnostics import residuals
from app.engine.prediction.ability import Ability
from app.engine.prediction.p_irt import COMBINED, DESIGN
from app.printable import percent
from app.records.fields import ends
from app.records.figures import ScoreFigures, SessionFigures
from app.records.gates import Baseline, BaselineFigures
from app.records.sessions import Administration, SessionRecord
from app.reports.figures import uncounted, unscored
from app.reports.joins import join_caution
from app.services.banks.loaded import LoadedVersion
from app.services.sessions.result import Result, result_in, result_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The result of an ended session, or of one that was kept as a baseline.

    Attributes:
        n_unasked: Number of items that may still be asked.
        residuals: Item id -> residual (score minus expected score), for each scored item.
    """

    session_id: str
    label: str
    version: LoadedVersion
    result: Result
    n_unasked: int
    residuals: Mapping[str, float]

    @classmethod
    def of_session(
        cls, record: SessionRecord, version: LoadedVersion, asked: Sequence[Administration]
    ) -> "Measured":
        """Build from a session and the items that it asked.

        Raises:
            InvalidStateError: The session has not ended, or has failed.
        """
        return cls(
            session_id=record.id,
            label=record.endpoint_name or record.endpoint_model or record.id,
            version=version,
            result=result_of(record),
            n_unasked=unasked_of(record.summary, version.n_active),
            residuals=_residuals(version, asked),
        )

    @classmethod
    def of_baseline(cls, baseline: Baseline, version: LoadedVersion) -> "Measured":
        """Build from the copy of a session that a baseline keeps."""
        return cls(
            session_id=baseline.session_id,
            label=baseline.label,
            version=version,
            result=result_in(baseline.summary),
            n_unasked=unasked_of(baseline.summary, version.n_active),
            residuals=baseline.residuals,
        )

    @property
    def score(self) -> MeasuredScore | None:
        """Score of the whole bank; None where it is unknown."""
        return measured_score(self.result)

    @property
    def ability(self) -> Ability | None:
        """Theta with all that is known about its error; None where there is no theta."""
        return None if self.result.theta is None else self.result.ability(self.version.correction)


def unasked_of(figures: SessionFigures | BaselineFigures, n_active: int) -> int:
    """Number of items that may still be asked: only those that ended in an error once more."""
    errors = figures["outcomes"]["error"] if "outcomes" in figures else 0
    return n_active - figures["progress"]["items"] + errors


def measured_score(result: Result) -> MeasuredScore | None:
    """Score of the whole bank in a result; None where it is unknown."""
    if (told := result.score) is None:
        return None
    lo, hi = ends(told["interval"])
    if lo is None or hi is None:
        return None
    return MeasuredScore(
        value=told["value"], lo=lo, hi=hi, n_items=result.n_scored, degrees=degrees_of(told)
    )


#: Degrees of freedom of a score's error in units of its standard error. The estimate
#: itself is a mixture of two t of 8. With one twice as wide as the other, its tails beyond 95 % are
#: those of a single t of 5.
DEGREES = 5.0


def degrees_of(score: ScoreFigures) -> float | None:
    """Degrees of freedom of a score's error; None if it is normal."""
    return DEGREES if score["method"] in (COMBINED, DESIGN) else None


def between_scores(one: Measured, other: Measured, confidence: float) -> Difference | None:
    """Difference of the scores; None where one is unknown or they cover different items."""
    first, second = one.score, other.score
    if first is None or second is None or not one.version.has_questions_of(other.version):
        return None
    # The two sessions do not share the error that unscored answers add to an interval.
    scores = [side.result.score for side in (one, other)]
    has_room = any(score is not None and score.get("nonresponse") for score in scores)
    shared = 0.0
    if not has_room:
        common = [item for item in one.residuals if item in other.residuals]
        left, right = (np.array([side.residuals[x] for x in common]) for side in (one, other))
        shared = shared_error(left, right, len(one.residuals), len(other.residuals))
    return of_scores(first, second, confidence=confidence, correlation=shared)


def between_abilities(
    one: Measured, other: Measured, confidence: float, factor: float = 1.0
) -> Difference | None:
    """Difference of the thetas; None where one is unknown or their scales differ."""
    first, second = one.ability, other.ability
    if first is None or second is None or one.version.bank.scale != other.version.bank.scale:
        return None
    return of_abilities(first, second, confidence=confidence, factor=factor)


def _residuals(version: LoadedVersion, asked: Sequence[Administration]) -> dict[str, float]:
    """Item id -> residual at the last theta; empty for banks that measure several abilities."""
    closed = sorted(
        (item.arrival or 0, item.position, item.closing.score, item.closing.theta)
        for item in asked
        if item.closing is not None
        and item.closing.score is not None
        and not version.is_pretest(item.position)
    )
    if not closed or closed[-1][-1] is None or version.bank.abilities is not None:
        return {}
    answers = [Response(ItemIndex(position), score) for _, position, score, _ in closed]
    left = residuals(version.bank, answers, closed[-1][-1]).tolist()
    found = zip((version.item_ids[answer.item] for answer in answers), left, strict=True)
    return {item: round(residual, 4) for item, residual in found if math.isfinite(residual)}


#: Settings in which two ways of asking may differ -> their names in messages.
_TOLD = {
    "mode": "mode",
    "normalise": "lengths that likelihoods are divided by",
    "shots": "examples before each question",
    "template_hash": "words around the questions",
    "scorer": "scorer",
    "unparsed_policy": "what unparseable answers count as",
}
#: Settings whose values are not shown, because a hash tells people nothing.
_NOT_SHOWN = frozenset({"template_hash"})


def apart(sessions: Sequence[SessionRecord | Baseline]) -> str | None:
    """Caution that sessions were asked in different ways; None where they were asked alike.

    The scorers of a withheld bank are neither named nor said to differ.
    """
    if len(sessions) < 2:
        return None
    withheld = any(session.withheld for session in sessions)
    ways = [
        {
            **session.provenance.get("asked", {}),
            "unparsed_policy": session.provenance.get("asking", {}).get("unparsed_policy"),
        }
        for session in sessions
    ]
    said: list[str] = []
    for name, words in _TOLD.items():
        values = {way[name] for way in ways if way.get(name) is not None}
        if len(values) < 2 or (withheld and name == "scorer"):
            continue
        if name == "template_hash" and said:  # the differences named so far change the hash
            continue
        shown = "" if name in _NOT_SHOWN else f" ({', '.join(sorted(map(str, values)))})"
        said.append(words + shown)
    if not said:
        return None
    return (
        f"These sessions were not asked alike: they differ in {'; '.join(said)}. Differences in "
        "their results may come from that, and not from the models."
    )


def misjoined(sessions: Sequence[SessionRecord]) -> str | None:
    """Caution that the parameters of a version may belong to other questions."""
    found = {session.join: join_caution(session.join) for session in sessions}
    return found.get("broken") or found.get("doubtful")


def counted_in(session: SessionRecord, lists: Mapping[str, str]) -> tuple[int, str | None]:
    """Number and list of the questions that a session's score of the whole bank covers.

    `lists` has a digest of the questions of each bank version, where these may differ.
    """
    told = session.provenance
    return told["n_items"] + told.get("n_never_asked", 0), lists.get(session.bank_version_id)


def scores_left_out(sessions: Sequence[SessionRecord], lists: Mapping[str, str]) -> str | None:
    """Caution that scores exclude questions of the bank, or cover different ones; else None."""
    left_out = max((one.provenance.get("n_uncalibrated", 0) for one in sessions), default=0)
    counted = {counted_in(one, lists) for one in sessions}
    if len(counted) < 2:
        return uncounted(left_out)
    sizes = sorted(n for n, _ in counted)
    least, most = sizes[0], sizes[-1]
    shown = f"{least:,} to {most:,}" if least < most else f"not always the same {most:,}"
    return (
        f"Scores cover the calibrated questions, which were {shown}: scores of different questions "
        "cannot be compared."
    )


def left_unmarked(sessions: Sequence[SessionRecord], *, is_score: bool) -> str | None:
    """Caution that results leave out many unscored answers; None where none does."""
    shares = {session.id: unscored(session.summary).share_left_out for session in sessions}
    n = sum(share > 0.0 for share in shares.values())
    if not n:
        return None
    worst = max(sessions, key=lambda session: shares[session.id])
    name = worst.endpoint_name or worst.endpoint_model or worst.id
    effect = (
        "the lower ends of the scores' intervals, and so the ranks, allow for them"
        if is_score
        else "ability and rank rest on the other answers alone"
    )
    return (
        f"A tenth or more of the answers have no score in {n} of {len(sessions)} sessions, most "
        f"in that of {name} ({percent(shares[worst.id])}): {effect}."
    )
