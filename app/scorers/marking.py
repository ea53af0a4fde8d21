"""One answer, one mark: what no scorer need see is settled first."""

from app.items import Answer, FinishReason, ItemContent, Outcome
from app.scorers.base import Mark, NotScored, Scorer
from app.scorers.text import is_blank


async def mark(scorer: Scorer, item: ItemContent, answer: Answer) -> Mark:
    """Mark `answer` to `item` with `scorer`.

    Cut-off, filtered and empty answers are not marked: they say nothing about ability.
    """
    if answer.finish is FinishReason.LENGTH:
        return NotScored(
            outcome=Outcome.TRUNCATED, reason="The answer was cut off at the token limit."
        )
    if answer.finish is FinishReason.CONTENT_FILTER:
        return NotScored(
            outcome=Outcome.REFUSED, reason="The endpoint's content filter withheld the answer."
        )
    if is_blank(answer.text):
        return NotScored(outcome=Outcome.UNPARSED, reason="empty answer")
    return await scorer.score(item, answer)
