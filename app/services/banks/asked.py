"""How answers were obtained: those that a version's parameters were made from, and a session's."""

from dataclasses import asdict, dataclass
from typing import Any

from app.adapters.prompting import LOGLIKELIHOOD, PromptStyle
from app.items import ScorerSpec

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

    def to_dict(self) -> dict[str, Any]:
        """What is known, JSON-able."""
        return {name: value for name, value in asdict(self).items() if value is not None}
