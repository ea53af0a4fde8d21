"""Previews of items as JSON."""

from typing import Literal, Self

from pydantic import ConfigDict, Field

from app.adapters.prompting import Mode
from app.api.schemas.common import Output
from app.api.schemas.endpoints import ChosenEndpoint
from app.api.schemas.sessions import PromptChange
from app.items import JsonObject, Outcome
from app.services.sessions.previews import Preview, PreviewSpec


class PreviewCreate(ChosenEndpoint):
    """Who is asked, and how."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "endpoint": {
                        "kind": "openai_chat",
                        "base_url": "http://127.0.0.1:8080/v1",
                        "model": "my-model",
                    },
                    "prompt": {"shots": 0},
                    "send": False,
                }
            ]
        }
    )

    prompt: PromptChange = Field(
        default_factory=PromptChange, description="What is to be otherwise than as the bank asks."
    )
    send: bool = Field(
        default=True, description="Call the endpoint, once or for each option, and mark the answer."
    )

    def to_domain(self, bank: str, item: str) -> PreviewSpec:
        """As the service takes it."""
        return PreviewSpec(
            bank=bank,
            item=item,
            endpoint=self.chosen(),
            prompt=self.prompt.model_dump(exclude_none=True),
            send=self.send,
        )


class RequestRead(Output):
    """A call as it goes over the wire; headers are not shown, for they may hold keys."""

    url: str
    body: JsonObject


class PreviewAnswer(Output):
    """What came back, and its mark. Only `scored` counts in an estimate."""

    answer: str | None
    raw: str | None = Field(description="The whole text where it differs from `answer`.")
    reasoning: str | None
    finish_reason: str | None
    outcome: Outcome
    score: float | None
    extracted: str | None
    extractor: str | None
    reason: str | None
    error_code: str | None
    marking: JsonObject | None
    method: JsonObject | None = Field(description="As in the responses of a session.")
    tokens_in: int | None
    tokens_out: int | None
    usd: float | None
    latency_ms: float | None
    attempts: int | None


class PreviewRead(Output):
    """One item as an endpoint is asked it, its answer, and how that is marked."""

    object: Literal["preview"] = "preview"
    item_id: str
    mode: Mode
    shots: int
    scorer: str = Field(description="Name of the scorer that marks.")
    target: list[str]
    requests: list[RequestRead] = Field(
        description="One for each option where likelihoods are compared; none of a simulated "
        "examinee."
    )
    answer: PreviewAnswer | None = Field(description="Null where nothing was sent.")

    @classmethod
    def of(cls, preview: Preview) -> Self:
        """From the service's value."""
        closing = preview.closing
        renamed = {"answer": "answer_text", "raw": "raw_text"}
        return cls(
            item_id=preview.item.key,
            mode=preview.style.mode,
            shots=preview.style.shots,
            scorer=preview.item.scorer.name,
            target=list(preview.item.content.target),
            requests=[RequestRead(url=r.url, body=dict(r.body)) for r in preview.requests],
            answer=None
            if closing is None
            else PreviewAnswer.model_validate(
                {
                    name: getattr(closing, renamed.get(name, name))
                    for name in PreviewAnswer.model_fields
                }
            ),
        )
