"""From a mark to what is stored: the closing of one administered item."""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

from app.items import Answer, Outcome, ScorerSpec
from app.records.sessions import Closing
from app.scorers.base import Mark, Scored


@dataclass(slots=True, kw_only=True)
class Spending:
    """Calls made for marking and what they took; `usd` is `None` once a price is unknown."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = 0.0

    def add(self, other: "Spending") -> None:
        """Count `other` in."""
        self.calls += other.calls
        self.tokens_in += other.tokens_in
        self.tokens_out += other.tokens_out
        self.usd = None if self.usd is None or other.usd is None else self.usd + other.usd


@dataclass(frozen=True, slots=True)
class Marked:
    """A mark, and what is stored with the answer of how it came about.

    Attributes:
        scorer_hash: Of the scorer that really marked, by `hash_of`.
        marking: Of scorers that called out; `None` for all others.
    """

    mark: Mark
    scorer_hash: str
    marking: dict[str, Any] | None = None


def hash_of(spec: ScorerSpec) -> str:
    """SHA-256 of a scorer's name and parameters."""
    canonical = json.dumps([spec.name, dict(spec.params)], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(canonical.encode(errors="surrogatepass")).hexdigest()


def storable_mark(mark: Mark, scorer_hash: str, marking: dict[str, Any] | None = None) -> Marked:
    """A mark as it can be stored and shown, whatever those who were called wrote into it."""
    if isinstance(mark, Scored):
        mark = replace(mark, extracted=_storable(mark.extracted))
    else:
        mark = replace(mark, reason=_text(mark.reason))
    return Marked(mark, scorer_hash, _storable(marking))


def closing_of(
    marked: Marked,
    answer: Answer,
    *,
    unparsed_is_wrong: bool,
    tokens_in: int | None = None,
    tokens_out: int | None = None,
    usd: float | None = None,
    latency_ms: float | None = None,
    attempts: int | None = None,
    method: dict[str, Any] | None = None,
) -> Closing:
    """The closing for an answer that came, scored or not.

    Args:
        marked: What the scorer said.
        answer: What the examinee wrote.
        unparsed_is_wrong: The bank declares that an answer nobody can read counts as wrong; the
            outcome stays `unparsed`, its score becomes 0 and enters the likelihood.
        tokens_in: Prompt tokens, if known.
        tokens_out: Completion tokens, if known.
        usd: Price of the call, if known.
        latency_ms: Of the attempt that succeeded.
        attempts: Calls made for this answer.
        method: How it was obtained, where not written and read once.
    """
    mark, error_code = marked.mark, None
    if isinstance(mark, Scored):
        outcome, score, reason = Outcome.SCORED, mark.score, None
        extracted, extractor = mark.extracted, mark.extractor
    else:
        outcome, score, reason = mark.outcome, None, mark.reason
        extracted = extractor = None
        error_code = mark.code
        if outcome is Outcome.UNPARSED and unparsed_is_wrong:
            score = 0.0
    return Closing(
        outcome=outcome.value,
        score=score,
        extracted=_storable(extracted),
        extractor=extractor,
        reason=_storable(reason),
        error_code=error_code,
        scorer_hash=marked.scorer_hash,
        marking=marked.marking,
        answer_text=_storable(answer.text),
        raw_text=_storable(answer.raw) if answer.raw != answer.text else None,
        reasoning=_storable(answer.reasoning),
        finish_reason=answer.finish.value,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        usd=usd,
        latency_ms=latency_ms,
        attempts=attempts,
        method=method,
    )


def _storable(value: Any) -> Any:
    """JSON-able `value` without what Postgres cannot hold: NUL, and halves of surrogate pairs."""
    match value:
        case str():
            return _text(value)
        case list() | tuple():
            return [_storable(entry) for entry in value]
        case dict():
            return {_text(key): _storable(entry) for key, entry in value.items()}
        case _:
            return value


def _text(text: str) -> str:
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
