"""Cautions for results that compare sessions which were not asked in the same way."""

from collections.abc import Sequence
from typing import Protocol

from app.printable import percent
from app.records.sessions import Conditions, SessionRecord
from app.reports.figures import uncounted, unscored

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


class Asked(Protocol):
    """A session, or the copy of one that a baseline keeps."""

    @property
    def provenance(self) -> Conditions:
        """Provenance of the session."""

    @property
    def withheld(self) -> bool:
        """Whether the session's questions are withheld."""


def apart(sessions: Sequence[Asked]) -> str | None:
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


def scores_left_out(sessions: Sequence[SessionRecord]) -> str | None:
    """Caution that scores exclude questions of the bank; None where they cover all."""
    known = [session.provenance for session in sessions]
    left_out = max((one.get("n_uncalibrated", 0) for one in known), default=0)
    counted = sorted({one["n_items"] + one.get("n_never_asked", 0) for one in known})
    if not left_out or len(counted) == 1:
        return uncounted(left_out)
    return (
        f"Scores cover the calibrated questions, which were {counted[0]:,} to {counted[-1]:,}: "
        "scores of different questions cannot be compared."
    )


def left_unmarked(sessions: Sequence[SessionRecord]) -> str | None:
    """Caution that abilities leave out many unscored answers; None where none does."""
    shares = {session.id: unscored(session.summary).share_left_out for session in sessions}
    n = sum(share > 0.0 for share in shares.values())
    if not n:
        return None
    worst = max(sessions, key=lambda session: shares[session.id])
    name = worst.endpoint_name or worst.endpoint_model or worst.id
    return (
        f"A tenth or more of the answers have no score in {n} of {len(sessions)} sessions, most "
        f"in that of {name} ({percent(shares[worst.id])}): ability and rank rest on the other "
        "answers alone."
    )
