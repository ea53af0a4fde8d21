"""Short ways to score one answer."""

from typing import Any

from app.items import Answer, ItemContent, ScorerSpec
from app.scorers import Mark, Scored, build, mark


async def result_of(name: str, text: str, *targets: str, choices: Any = (), **params: Any) -> Mark:
    """Score an answer by a scorer with these parameters."""
    item = ItemContent(prompt="?", choices=choices, target=targets)
    return await mark(build(ScorerSpec(name, params)), item, Answer(text=text))


async def score_of(name: str, text: str, *targets: str, **params: Any) -> float | str:
    """Return the score, or the outcome of an answer without one."""
    result = await result_of(name, text, *targets, **params)
    return result.score if isinstance(result, Scored) else result.outcome.value
