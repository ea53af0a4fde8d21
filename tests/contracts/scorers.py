"""The contract of every scorer. Subclass it and provide a spec and an item."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from app.items import Answer, FinishReason, ItemContent, Outcome, ScorerSpec
from app.scorers import Mark, NotScored, Scored, Tools, build, mark


class ScorerContract:
    spec: ClassVar[ScorerSpec]
    item: ClassVar[ItemContent]

    def tools(self) -> Tools | None:
        """Return the tools of a scorer that makes calls."""
        return None

    async def mark(self, item: ItemContent, answer: Answer) -> Mark:
        return await mark(build(self.spec), item, answer, self.tools())

    @given(text=st.text())
    @example(text="\ud800")
    @example(text="9" * 6000)
    @example(text="\\boxed{" * 400)
    @example(text="answer " * 3000)
    @example(text="the answer is " * 1500)
    @example(text="London " * 3000)
    @example(text="1 " * 10_000)
    @example(text=" " * 25_000)
    @example(text="\x00")
    # One inherited test runs for several scorers, which triggers this health check.
    @settings(
        max_examples=60, deadline=None, suppress_health_check=[HealthCheck.differing_executors]
    )
    async def test_any_text_gets_a_result_and_never_an_exception(self, text: str) -> None:
        result = await self.mark(self.item, Answer(text=text))
        assert isinstance(result, NotScored) or 0.0 <= result.score <= 1.0

    async def test_the_right_reference_answer_scores_one(self) -> None:
        for seed in range(20):
            item = replace(self.item, target=self.item.target[: 1 + seed % 2])
            right, _ = build(self.spec).examples(item, np.random.default_rng(seed))
            result = await self.mark(item, Answer(text=right))
            assert isinstance(result, Scored), (right, result)
            assert result.score == 1.0, (right, result)
            assert result.extractor

    async def test_the_wrong_reference_answer_scores_less_than_one(self) -> None:
        for seed in range(20):
            _, wrong = build(self.spec).examples(self.item, np.random.default_rng(seed))
            result = await self.mark(self.item, Answer(text=wrong))
            assert isinstance(result, Scored), (wrong, result)
            assert result.score < 1.0, (wrong, result)

    async def test_no_answer_is_not_a_wrong_answer(self) -> None:
        right, _ = build(self.spec).examples(self.item, np.random.default_rng(0))
        refusal = "I'm sorry, but I can't help with that request."
        for answer, outcome, words in (
            (Answer(text=" \n\u200b"), Outcome.UNPARSED, "is empty"),
            (Answer(text=right, finish=FinishReason.LENGTH), Outcome.TRUNCATED, "was cut off"),
            (Answer(text="", finish=FinishReason.CONTENT_FILTER), Outcome.REFUSED, "filter"),
            (Answer(text=refusal), Outcome.REFUSED, "declined"),
        ):
            result = await self.mark(self.item, answer)
            assert isinstance(result, NotScored), answer
            assert result.outcome is outcome
            assert words in result.reason

    async def test_the_same_answer_gets_the_same_score(self) -> None:
        answer = Answer(text="Perhaps 12, or London, or (B).")
        first = await self.mark(self.item, answer)
        assert await self.mark(self.item, answer) == first

    async def test_an_item_without_target_is_an_error_not_a_wrong_answer(self) -> None:
        bare = ItemContent(prompt=self.item.prompt, choices=self.item.choices)
        result = await self.mark(bare, Answer(text="12"))
        assert isinstance(result, NotScored)
        assert result.outcome is Outcome.ERROR
