"""Scores similarity in meaning by the vectors of an embedding model."""

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field
from typing_extensions import override

from app.items import Answer, ItemContent, Outcome
from app.scorers.base import Mark, NotScored, Scale, Scored
from app.scorers.calling import CallingScorer, EndpointName, Need, Tools
from app.scorers.differential import IncorrectReferences, share
from app.scorers.text import MAX_CHARS, declined


class Embedding(CallingScorer):
    """Cosine of the answer's vector and the nearest target's, by an endpoint's `/embeddings`.

    The cosine lies in [-1, 1]; higher is better. By some models, unrelated texts have a cosine well
    above 0, so the score is 0 up to `floor` and rises linearly to 1 at a cosine of 1. With
    incorrect references, the score is (1 + right - wrong) / 2, as for `differential`.

    Attributes:
        endpoint: Id or name of an endpoint that speaks OpenAI's API; its model makes the vectors.
        floor: Cosine up to which two texts count as unrelated.
        incorrect: Wrong answers; similarity to them lowers the score.
    """

    measure: ClassVar[Scale] = Scale(min=-1.0, max=1.0)
    failure_prefix: ClassVar[str] = "embedding"
    needs: ClassVar[Need] = "embeddings"

    endpoint: EndpointName
    floor: Annotated[float, Field(ge=-1, lt=1)] = 0.0
    incorrect: IncorrectReferences | None = None

    @override
    def endpoints(self) -> tuple[str, ...]:
        return (self.endpoint,)

    @override
    async def score_with(self, tools: Tools, item: ItemContent, answer: Answer) -> Mark:
        targets = [target for target in item.target if target.strip()]
        if not targets:
            return NotScored(outcome=Outcome.ERROR, reason="The item has no target.")
        if refusal := declined(answer.text, targets):
            return refusal
        wrong = self.incorrect or []
        made = await tools.embed(self.endpoint, [answer.text[-MAX_CHARS:], *targets, *wrong])
        own, *others = made.vectors
        cosines = [_cosine(own, other) for other in others]
        if not all(map(math.isfinite, cosines)):
            return self.missing(
                "embedding_unreadable",
                "The embedding model gave a vector whose length is 0 or not finite.",
            )
        right = max(map(self._above_floor, cosines[: len(targets)]))
        score = right
        if wrong:
            score = share(right, max(map(self._above_floor, cosines[len(targets) :])))
        return Scored(
            score=score,
            extracted=answer.text[-MAX_CHARS:],
            extractor="whole",
            evidence={"model": made.model, "cosines": [round(cosine, 6) for cosine in cosines]},
        )

    def _above_floor(self, cosine: float) -> float:
        return min(1.0, max(0.0, (cosine - self.floor) / (1 - self.floor)))

    @override
    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        right, other = super().examples(item, rng)
        return right, self.incorrect[0] if self.incorrect else other


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    length = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / length if length > 0 else math.nan
