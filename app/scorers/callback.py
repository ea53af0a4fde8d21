"""Scores with a scorer of the user's own, which runs anywhere and is reached over HTTP."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import override

from app.items import Answer, ItemContent, Json, Outcome
from app.scorers.base import Mark, NotScored, Scored
from app.scorers.calling import CallingScorer, EndpointName, Need, Tools


class Callback(CallingScorer):
    """POSTs item and answer to an endpoint of kind `callback`, which replies with a score.

    The parameters declare the scale of the reply's score, which is rescaled to [0, 1]. A score
    outside this scale does not count. The docs describe request, signature and reply.

    Attributes:
        endpoint: Id or name of an endpoint of kind `callback`.
        lowest: Lowest score on the scale.
        highest: Highest score on the scale.
        higher_is_better: Whether higher scores are better.
        params: Parameters that are sent to the callback with each request.
    """

    failure_prefix: ClassVar[str] = "callback"
    needs: ClassVar[Need] = "callback"

    endpoint: EndpointName
    lowest: float = 0.0
    highest: float = 1.0
    higher_is_better: bool = True
    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.lowest >= self.highest:
            raise ValueError(
                f"highest must be above lowest ({self.lowest:g}), got {self.highest:g}"
            )
        if not math.isfinite(self.highest - self.lowest):
            raise ValueError("lowest and highest are too far apart for a scale")
        return self

    @override
    def endpoints(self) -> tuple[str, ...]:
        return (self.endpoint,)

    @override
    async def score_with(self, tools: Tools, item: ItemContent, answer: Answer) -> Mark:
        reply = await tools.post(self.endpoint, self._request(item, answer))
        try:
            read = _Reply.model_validate(reply)
        except ValidationError as error:
            fault = error.errors()[0]
            where = "/".join(map(str, fault["loc"])) or "the reply"
            what = str(fault["msg"]).removeprefix("Value error, ")
            return self.missing(
                "callback_unreadable",
                f"The callback's reply is not as agreed: {where}: {what}.",
            )
        evidence = {"version": read.version} if read.version else None
        if read.score is None:
            return NotScored(
                outcome=Outcome(read.outcome or "unparsed"),
                reason=read.reason or "The callback gave no score.",
                evidence=evidence,
            )
        if not self.lowest <= read.score <= self.highest:
            return self.missing(
                "callback_out_of_range",
                f"The callback gave the score {read.score:g}, outside its scale of "
                f"{self.lowest:g} to {self.highest:g}.",
            )
        place = (read.score - self.lowest) / (self.highest - self.lowest)
        return Scored(
            score=place if self.higher_is_better else 1 - place,
            extracted=read.reason or f"{read.score:g}",
            extractor="callback",
            evidence=evidence,
        )

    def _request(self, item: ItemContent, answer: Answer) -> Mapping[str, Json]:
        return {
            "item": {
                "prompt": item.prompt,
                "messages": [{"role": m.role, "content": m.content} for m in item.messages],
                "choices": list(item.choices),
                "target": list(item.target),
            },
            "answer": {"text": answer.text, "finish": answer.finish.value},
            "scale": {
                "lowest": self.lowest,
                "highest": self.highest,
                "higher_is_better": self.higher_is_better,
            },
            "params": self.params,
        }


class _Reply(BaseModel):
    """Reply of a callback: a score, or an outcome if it could not give one."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)

    score: Annotated[float, Field()] | None = None
    outcome: Literal["unparsed", "refused"] | None = None
    reason: Annotated[str, Field(max_length=10_000)] | None = None
    version: Annotated[str, Field(max_length=200)] | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.score is None) == (self.outcome is None):
            raise ValueError("give exactly one of score and outcome")
        return self
