"""The agents that a bank was calibrated on: what each solved, and when it was submitted."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Self

#: Part of what a version knows: a mapping of each agent, as `app.exchange.catalog.agents.Agent`.
REFERENCE_AGENTS = "reference_agents"
#: Before the newest agent of a bank; agents get better by the month, and others tell little.
_RECENT = timedelta(days=182)
#: Agents; a share of fewer says nothing.
_LEAST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentAgents:
    """The agents of the last half-year that a bank knows.

    Attributes:
        since: ISO date, the first of a month.
        scores: Of each, on the whole bank.
    """

    since: str
    scores: tuple[float, ...]

    @classmethod
    def of(cls, knowledge: Mapping[str, Any]) -> Self | None:
        """Those of a version; None where too few have a day."""
        agents = [agent for agent in knowledge.get(REFERENCE_AGENTS, ()) if agent["day"]]
        if not agents:
            return None
        newest = date.fromisoformat(max(agent["day"] for agent in agents))
        since = (newest - _RECENT).replace(day=1).isoformat()
        scores = tuple(agent["score"] for agent in agents if agent["day"] >= since)
        return cls(since=since, scores=scores) if len(scores) >= _LEAST else None

    def rank(self, score: float) -> dict[str, Any]:
        """Where a score stands among them, as JSON."""
        weaker = sum(other < score for other in self.scores)
        n_agents = len(self.scores)
        return {"since": self.since, "agents": n_agents, "better_than": weaker / n_agents}
