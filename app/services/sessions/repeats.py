"""An item asked several times: its answers as one."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from app.records.sessions import Closing
from app.services.marking.calling_out import Spending
from app.services.sessions.meter import total

#: Times that one item may be asked.
MAX_REPEATS = 32


def combined(closings: Sequence[Closing]) -> Closing:
    """One closing of several answers to an item: the score is the mean of those that have one.

    What was answered is that of the first one with a score, and all of them stand in `method`;
    what they took is summed. Without any score it ends as the first did.
    """
    scored = [closing for closing in closings if closing.score is not None]
    first = (scored or list(closings))[0]
    mean = None if not scored else math.fsum(c.score or 0.0 for c in scored) / len(scored)
    latencies = [c.latency_ms for c in closings if c.latency_ms is not None]
    return replace(
        first,
        score=mean,
        tokens_in=total(c.tokens_in for c in closings if c.attempts),
        tokens_out=total(c.tokens_out for c in closings if c.attempts),
        usd=total(c.usd for c in closings if c.attempts),
        latency_ms=max(latencies, default=None),
        attempts=sum(c.attempts or 0 for c in closings),
        marking=_marking(closings),
        method={
            **{name: kept for name, kept in (first.method or {}).items() if name in _OF_CALL},
            "mode": "generate",
            **({"cached": saved} if (saved := saved_by_cache(closings)) else {}),
            "repeats": [_comparable(closing) for closing in closings],
        },
    )


def repeats_in(closing: Closing) -> list[Closing]:
    """The single answers of a closing that `combined` made, each to be marked again."""
    stored = (closing.method or {}).get("repeats", [])
    told = [{name: each[name] for name in _TOLD} for each in stored]
    return [replace(closing, method=None, marking=None, **each) for each in told]


_OF_CALL = ("endpoint_revision", "usage")
_TOLD = (
    *("outcome", "score", "extracted", "extractor", "reason", "error_code"),
    *("answer_text", "raw_text", "reasoning", "finish_reason"),
    *("tokens_in", "tokens_out", "usd", "latency_ms", "attempts"),
)


def _comparable(closing: Closing) -> dict[str, Any]:
    revision = (closing.method or {}).get("endpoint_revision")
    return {name: getattr(closing, name) for name in _TOLD} | {"endpoint_revision": revision}


def _marking(closings: Sequence[Closing]) -> dict[str, Any] | None:
    """The first one's, with what all of them took."""
    found = [closing.marking for closing in closings if closing.marking is not None]
    if not found:
        return None
    parts = {"usage": _sum([marking["usage"] for marking in found])}
    if saved := [marking["cached"] for marking in found if "cached" in marking]:
        parts["cached"] = _sum(saved)
    return {**found[0], **parts}


def _sum(usages: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    spent = Spending()
    for usage in usages:
        spent.add(Spending(**usage))
    return asdict(spent)


def saved_by_cache(closings: Sequence[Closing]) -> dict[str, Any] | None:
    """What calls would have taken that were not made; None where none was saved."""
    found = [c.method["cached"] for c in closings if c.method and "cached" in c.method]
    if not found:
        return None
    return {name: total(each[name] for each in found) for name in found[0]}
