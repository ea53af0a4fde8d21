"""Origin of a version's parameters: how the answers were obtained, and from which agents."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Self

from app.adapters.prompting import LOGLIKELIHOOD, PromptStyle
from app.items import ScorerSpec
from app.records.figures import RecentRankFigures

#: Part of a bank version's knowledge: how the answers behind its parameters were obtained.
ASKED = "asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How answers were obtained; fields are None where unknown.

    Attributes:
        mode: `generate` or `loglikelihood`.
        normalise: How likelihoods are normalised: by `bytes`, by `characters` or `none`.
        shots: Number of worked examples before each item.
        template_hash: Hash of the prompt around the items, see `PromptStyle.template_hash`.
        wanted: The bank's mode, where a session asks in another mode.
        source: Where the answers come from, in words.
    """

    mode: str | None = None
    normalise: str | None = None
    shots: int | None = None
    template_hash: str | None = None
    scorer: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    wanted: str | None = None
    source: str | None = None

    @classmethod
    def of(cls, style: PromptStyle, scorer: ScorerSpec) -> "Asked":
        """Describe a prompt style and a default scorer."""
        likely = style.mode == LOGLIKELIHOOD
        return cls(
            mode=style.mode,
            normalise=style.normalise if likely else None,
            shots=style.shots,
            template_hash=style.template_hash,
            scorer=None if likely else scorer.name,
        )


#: Part of a version's knowledge: the reference agents, as `app.exchange.catalog.agents.Agent`.
REFERENCE_AGENTS = "reference_agents"
#: Age limit before the bank's newest agent: agents improve by the month, so older ones say little.
_RECENT = timedelta(days=182)
#: Smallest number of agents of which a share is reported; a share of fewer says nothing.
_LEAST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentAgents:
    """The reference agents from the half-year before the newest one of a bank.

    Attributes:
        since: Start of the half-year, an ISO date on the first of a month.
    """

    since: str
    scores: tuple[float, ...]

    @classmethod
    def of(cls, knowledge: Mapping[str, Any]) -> Self | None:
        """The recent agents of a version; None where too few have a date."""
        agents = [agent for agent in knowledge.get(REFERENCE_AGENTS, ()) if agent["day"]]
        if not agents:
            return None
        newest = date.fromisoformat(max(agent["day"] for agent in agents))
        since = (newest - _RECENT).replace(day=1).isoformat()
        scores = tuple(agent["score"] for agent in agents if agent["day"] >= since)
        return cls(since=since, scores=scores) if len(scores) >= _LEAST else None

    def rank(self, score: float) -> RecentRankFigures:
        """Where a score stands among them."""
        weaker = sum(other < score for other in self.scores)
        n_agents = len(self.scores)
        return {"since": self.since, "agents": n_agents, "better_than": weaker / n_agents}
