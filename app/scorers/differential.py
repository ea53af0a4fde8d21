"""Scores by whether an answer is nearer to the right references than to incorrect ones."""

from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from app.items import Answer, ItemContent
from app.scorers.base import Mark, Scale, Scored, Scorer
from app.scorers.bertscore import BertScore
from app.scorers.overlap import METRICS, TextMetric

_METRICS: dict[str, type[TextMetric]] = {**METRICS, "bertscore": BertScore}

IncorrectReferences = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=10_000)]],
    Field(min_length=1, max_length=100),
]


class Differential(Scorer):
    """Similarity to the nearest target less that to the nearest incorrect reference.

    The difference lies in [-1, 1]; higher is better. The score is (1 + difference) / 2: 0.5 if the
    answer is equally near to both. Belongs on an item, because it names incorrect references.

    Source: Lin, Hilton and Evans (2022), "TruthfulQA", the `diff` form of its metrics.

    Attributes:
        incorrect: Wrong answers that people typically give.
        metric: Name of a text metric.
        params: Parameters of the metric.
    """

    version: ClassVar[str] = "2"
    measure: ClassVar[Scale] = Scale(min=-1.0, max=1.0)

    incorrect: IncorrectReferences
    metric: Literal["rouge_l", "bleu", "chrf", "token_f1", "similarity", "bertscore"] = "rouge_l"
    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _usable(self) -> Self:
        _ = self.inner
        return self

    @override
    async def check(self) -> None:
        metric = self.inner
        await metric.check()
        if not metric.comparable(self.incorrect):
            raise ValueError("the incorrect references hold nothing to compare with")

    @property
    @override
    def inner(self) -> TextMetric:
        return _METRICS[self.metric].model_validate(self.params)

    @override
    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        """Score the difference of two similarities; no score where the metric gives none."""
        metric = self.inner
        mark = await metric.score(item, answer)
        if not isinstance(mark, Scored):
            return mark
        text = mark.extracted or ""
        right, wrong = metric.nearest(text, item.target), metric.nearest(text, self.incorrect)
        return Scored(score=share(right, wrong), extracted=text, extractor=mark.extractor)

    @override
    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        """The metric's right answer, and the first incorrect reference."""
        right, _ = self.inner.examples(item, rng)
        return right, self.incorrect[0]


def share(right: float, wrong: float) -> float:
    """The difference of two similarities as a score in [0, 1]."""
    return min(1.0, max(0.0, (1 + right - wrong) / 2))
