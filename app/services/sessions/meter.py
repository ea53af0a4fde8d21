"""What the calls of one session took: tokens, money, and what marking took beside."""

import math
from bisect import insort
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from app.engine.design.parts import BudgetDesign
from app.items import Outcome
from app.records.sessions import Closing
from app.services.marking.calling_out import Spending

#: Outcomes of answers that were written, and so paid for; a refused prompt may have cost nothing.
_METERED = frozenset({Outcome.SCORED, Outcome.UNPARSED, Outcome.TRUNCATED})


class Meter:
    """Counts, closing by closing.

    Attributes:
        calls: Made so far.
        tokens_in: Of prompts.
        tokens_out: Of answers.
        usd: What the calls cost; None where a price or a count of tokens is unknown.
        is_blind: Whether an answer took what the budget caps, and nobody knows how much.

    Args:
        budget: What is capped.
    """

    def __init__(self, budget: BudgetDesign) -> None:
        self._budget = budget
        self.calls = self.tokens_in = self.tokens_out = 0
        self.usd: float | None = 0.0
        self.is_blind = False
        self._marking: Spending | None = None
        self._latencies: list[float] = []

    def take(self, closing: Closing) -> None:
        """An answer came, or none."""
        self.calls += closing.attempts or 0
        if closing.latency_ms is not None:
            insort(self._latencies, closing.latency_ms)
        self.tokens_in += closing.tokens_in or 0
        self.tokens_out += closing.tokens_out or 0
        if closing.attempts and closing.outcome in _METERED and self._is_unknown(closing):
            self.is_blind = True
        if closing.marking is not None:
            self._marking = self._marking or Spending()
            self._marking.add(Spending(**closing.marking["usage"]))
        # One call of unknown price makes the sum unknown; None says so, a low sum would not.
        if closing.usd is None and closing.attempts:
            self.usd = None
        elif self.usd is not None:
            self.usd += closing.usd or 0.0

    def figures(self, elapsed_s: float) -> dict[str, Any]:
        """What `GET /v1/sessions/{id}` shows, JSON-able."""
        return {
            "calls": self.calls,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "usd": self.usd,
            "seconds": round(elapsed_s, 3),
            "latency_ms": self._latency(),
            "judge": None if self._marking is None else asdict(self._marking),
        }

    def _latency(self) -> dict[str, float] | None:
        """Which half of the answers, and all but a twentieth, did not take longer than."""
        n = len(self._latencies)
        if not n:
            return None
        shares = {"p50": 0.5, "p95": 0.95}
        return {name: self._latencies[math.ceil(q * n) - 1] for name, q in shares.items()}

    def _is_unknown(self, closing: Closing) -> bool:
        no_tokens = closing.tokens_in is None or closing.tokens_out is None
        return (self._budget.tokens is not None and no_tokens) or (
            self._budget.usd is not None and closing.usd is None
        )


def effort_of(figures: Mapping[str, Any]) -> dict[str, Any]:
    """What a question of an ended session took: `usd_per_item`, and `latency_ms` of its answers."""
    usage, items = figures["usage"], figures["progress"]["items"]
    usd = usage["usd"]
    return {
        "usd_per_item": usd / items if usd is not None and items else None,
        "latency_ms": usage.get("latency_ms"),
    }
