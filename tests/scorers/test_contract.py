from typing import ClassVar

import pytest
from typing_extensions import override

from app.items import Answer, ItemContent, ScorerSpec
from app.scorers import Scored
from tests.contracts.scorers import ScorerContract

CAPITAL = ItemContent(
    prompt="What is the capital of the United Kingdom?",
    choices=("Paris", "London", "Rome", "Oslo"),
    target=("London",),
)
SUMMARY = ItemContent(
    prompt="Sum it up.",
    target=("The council approved the new bridge on Monday.", "A new bridge was approved."),
)
PRODUCT = ItemContent(prompt="5 x 5?", target=("25", "25.0"))
EXTRACT = {"pattern": r"#### (\-?[0-9\.\,]+)", "remove": [",", r"(?s).*#### "], "ignore_case": True}
WRONG = ["A tunnel collapsed yesterday."]

CASES = {
    "choice": (ScorerSpec("choice"), CAPITAL),
    "numeric": (ScorerSpec("numeric", {"rel_tol": 0.01}), PRODUCT),
    "formula": (ScorerSpec("numeric"), ItemContent(prompt="Root of 12?", target=(r"2\sqrt{3}",))),
    "exact": (
        ScorerSpec("exact", {"ignore_articles": True}),
        ItemContent(prompt="Reverse 'stressed'", target=("desserts",)),
    ),
    "includes": (
        ScorerSpec("includes"),
        ItemContent(prompt="A capital?", target=("London", "Oslo")),
    ),
    "pattern": (
        ScorerSpec("pattern", {"pattern": r"answer is (\w+)", "group": 1}),
        ItemContent(prompt="A capital?", target=("London",)),
    ),
    "extract": (
        ScorerSpec("extract", EXTRACT),
        ItemContent(prompt="2 + 1?", target=("2+1=3\n#### 3",)),
    ),
    "rouge_l": (ScorerSpec("rouge_l"), SUMMARY),
    "bleu": (ScorerSpec("bleu"), SUMMARY),
    "chrf": (ScorerSpec("chrf", {"word_order": 2}), SUMMARY),
    "token_f1": (ScorerSpec("token_f1", {"part": "stated"}), SUMMARY),
    "similarity": (ScorerSpec("similarity", {"method": "token_set"}), SUMMARY),
    "span_f1": (
        ScorerSpec("span_f1", {"separator": ";"}),
        ItemContent(prompt="Capitals?", target=("London", "Oslo")),
    ),
    "closeness": (ScorerSpec("closeness", {"rel_limit": 0.5}), PRODUCT),
    "differential": (ScorerSpec("differential", {"incorrect": WRONG}), SUMMARY),
}


class TestScorer(ScorerContract):
    @pytest.fixture(autouse=True, scope="class", params=CASES.values(), ids=[*CASES])
    @classmethod
    def _case(cls, request: pytest.FixtureRequest) -> None:
        cls.spec, cls.item = request.param


class TestReadability(ScorerContract):
    spec: ClassVar[ScorerSpec] = ScorerSpec("readability")
    item: ClassVar[ItemContent] = ItemContent(prompt="Explain rain.")

    @override
    async def test_an_item_without_target_is_an_error_not_a_wrong_answer(self) -> None:
        """This scorer reads only the answer."""
        assert not self.item.target
        result = await self.mark(self.item, Answer(text="Rain falls. It is wet."))
        assert isinstance(result, Scored), result
