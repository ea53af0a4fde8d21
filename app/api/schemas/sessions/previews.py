"""Previews of items as JSON."""

from typing import Literal, Self

from pydantic import ConfigDict, Field

from app.adapters.prompting import Mode
from app.api.schemas.common import Output
from app.api.schemas.endpoints import ChosenEndpoint
from app.api.schemas.scorers import Obtained
from app.api.schemas.sessions.sessions import PromptChange
from app.items import JsonObject, Outcome
from app.services.sessions.previews import Preview, PreviewSpec


class PreviewCreate(ChosenEndpoint):
    """The endpoint to ask, and how."""

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

    prompt: PromptChange = Field(default_factory=PromptChange)
    """Prompt settings that differ from the bank's."""
    send: bool = True
    """Call the endpoint, once or once per option, and score the answer."""

    def to_domain(self, bank: str, item: str) -> PreviewSpec:
        """As the service takes it."""
        return PreviewSpec(
            bank=bank,
            item=item,
            endpoint=self.chosen(),
            prompt=self.prompt.changes(),
            send=self.send,
        )


class RequestRead(Output):
    """A call as it is sent. Headers are not shown, because they may contain keys."""

    url: str
    body: JsonObject


class PreviewAnswer(Obtained):
    """The answer and its score.

    Estimates use `scored` answers, and `unparsed` ones that count as wrong.
    """

    outcome: Outcome


class PreviewRead(Output):
    """The request that puts one item to an endpoint, the answer, and how it is scored."""

    object: Literal["preview"] = "preview"
    item_id: str
    mode: Mode
    shots: int
    scorer: str
    """Name of the scorer."""
    target: list[str]
    requests: list[RequestRead]
    """One per option if likelihoods are compared; none for simulated examinees."""
    answer: PreviewAnswer | None
    """Null if nothing was sent."""

    @classmethod
    def of(cls, preview: Preview) -> Self:
        """From the service's value."""
        closing = preview.closing
        return cls(
            item_id=preview.item.key,
            mode=preview.style.mode,
            shots=preview.style.shots,
            scorer=preview.item.scorer.name,
            target=list(preview.item.content.target),
            requests=[RequestRead(url=r.url, body=dict(r.body)) for r in preview.requests],
            answer=closing and PreviewAnswer.read(closing),
        )
