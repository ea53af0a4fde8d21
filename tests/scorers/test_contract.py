from typing import ClassVar

from app.items import ItemContent, ScorerSpec
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
