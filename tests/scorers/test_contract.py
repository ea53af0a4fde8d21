from typing import ClassVar

from typing_extensions import override

from app.items import Answer, ItemContent, ScorerSpec
from app.scorers import Scored
from tests.contracts.scorers import ScorerContract

CAPITAL = ItemContent(
    prompt="What is the capital of the United Kingdom?",
    choices=("Paris", "London", "Rome", "Oslo"),
    target=("London",),
)


class TestChoice(ScorerContract):
    spec: ClassVar[ScorerSpec] = ScorerSpec("choice")
    item: ClassVar[ItemContent] = CAPITAL


class TestNumeric(ScorerContract):
    spec: ClassVar[ScorerSpec] = ScorerSpec("numeric", {"rel_tol": 0.01})
    item: ClassVar[ItemContent] = ItemContent(prompt="5 x 5?", target=("25", "25.0"))


class TestNumericFormula(ScorerContract):
    spec: ClassVar[ScorerSpec] = ScorerSpec("numeric")
    item: ClassVar[ItemContent] = ItemContent(prompt="Root of 12?", target=(r"2\sqrt{3}",))


class TestExact(ScorerContract):
    spec: ClassVar[ScorerSpec] = ScorerSpec("exact", {"ignore_articles": True})
    item: ClassVar[ItemContent] = ItemContent(prompt="Reverse 'stressed'", target=("desserts",))


class TestIncludes(ScorerContract):
    spec: ClassVar[ScorerSpec] = ScorerSpec("includes")
    item: ClassVar[ItemContent] = ItemContent(prompt="A capital?", target=("London", "Oslo"))


class TestPattern(ScorerContract):
    spec: ClassVar[ScorerSpec] = ScorerSpec("pattern", {"pattern": r"answer is (\w+)", "group": 1})
    item: ClassVar[ItemContent] = ItemContent(prompt="A capital?", target=("London",))


class TestExtract(ScorerContract):
    spec: ClassVar[ScorerSpec] = ScorerSpec(
        "extract",
        {"pattern": r"#### (\-?[0-9\.\,]+)", "remove": [",", r"(?s).*#### "], "ignore_case": True},
    )
    item: ClassVar[ItemContent] = ItemContent(prompt="2 + 1?", target=("2+1=3\n#### 3",))


SUMMARY = ItemContent(
    prompt="Sum it up.",
    target=("The council approved the new bridge on Monday.", "A new bridge was approved."),
)


class TestRougeL(ScorerContract):
    spec: ClassVar[ScorerSpec] = ScorerSpec("rouge_l")
    item: ClassVar[ItemContent] = SUMMARY


class TestBleu(ScorerContract):
    spec: ClassVar[ScorerSpec] = ScorerSpec("bleu")
    item: ClassVar[ItemContent] = SUMMARY


class TestChrf(ScorerContract):
    spec: ClassVar[ScorerSpec] = ScorerSpec("chrf", {"word_order": 2})
    item: ClassVar[ItemContent] = SUMMARY


class TestTokenF1(ScorerContract):
    spec: ClassVar[ScorerSpec] = ScorerSpec("token_f1", {"part": "stated"})
    item: ClassVar[ItemContent] = SUMMARY


class TestSimilarity(ScorerContract):
    spec: ClassVar[ScorerSpec] = ScorerSpec("similarity", {"method": "token_set"})
    item: ClassVar[ItemContent] = SUMMARY


class TestSpanF1(ScorerContract):
    spec: ClassVar[ScorerSpec] = ScorerSpec("span_f1")
    item: ClassVar[ItemContent] = ItemContent(prompt="Capitals?", target=("London", "Oslo"))


class TestCloseness(ScorerContract):
    spec: ClassVar[ScorerSpec] = ScorerSpec("closeness", {"rel_limit": 0.5})
    item: ClassVar[ItemContent] = ItemContent(prompt="5 x 5?", target=("25", "25.0"))


class TestReadability(ScorerContract):
    spec: ClassVar[ScorerSpec] = ScorerSpec("readability")
    item: ClassVar[ItemContent] = ItemContent(prompt="Explain rain.")

    @override
    async def test_an_item_without_target_is_an_error_not_a_wrong_answer(self) -> None:
        """This scorer reads only the answer."""
        assert not self.item.target
        result = await self.mark(self.item, Answer(text="Rain falls. It is wet."))
        assert isinstance(result, Scored), result


class TestDifferential(ScorerContract):
    spec: ClassVar[ScorerSpec] = ScorerSpec(
        "differential", {"incorrect": ["Nobody voted.", "A tunnel collapsed yesterday."]}
    )
    item: ClassVar[ItemContent] = SUMMARY
