"""Where a version's parameters come from: how answers were obtained, and of which agents."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import Any, Self

from app.adapters.prompting import LOGLIKELIHOOD, PromptStyle
from app.items import ScorerSpec
from app.records.figures import RecentRankFigures
from app.records.sessions import AskedJson

#: Part of a bank version's knowledge: how the answers behind its parameters were obtained.
ASKED = "asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How answers were obtained; None where nobody knows.

    Attributes:
        mode: `generate` or `loglikelihood`.
        normalise: Of likelihoods: `bytes`, `characters` or `none`.
        shots: Examples before each item.
        template_hash: Of the prompt around the items, see `PromptStyle.template_hash`.
        scorer: Name of the scorer that marked.
        max_tokens: Longest answer.
        temperature: At which answers were drawn.
        wanted: The mode that the bank wants, where a session asks otherwise.
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
        """What a prompt and a default scorer say."""
        likely = style.mode == LOGLIKELIHOOD
        return cls(
            mode=style.mode,
            normalise=style.normalise if likely else None,
            shots=style.shots,
            template_hash=style.template_hash,
            scorer=None if likely else scorer.name,
        )

    def to_dict(self) -> AskedJson:
        """What is known, JSON-able."""
        return {name: value for name, value in asdict(self).items() if value is not None}


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

    def rank(self, score: float) -> RecentRankFigures:
        """Where a score stands among them."""
        weaker = sum(other < score for other in self.scores)
        n_agents = len(self.scores)
        return {"since": self.since, "agents": n_agents, "better_than": weaker / n_agents}
