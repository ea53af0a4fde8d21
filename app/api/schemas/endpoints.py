"""Endpoints as JSON. `EndpointCreate` is also the inline endpoint of a session."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, SecretStr, StringConstraints

from app.api.schemas.common import (
    ABSENT,
    Input,
    Metadata,
    Name,
    OwnedRead,
    Text,
    exactly_one,
)
from app.api.schemas.projects import TokensPerDay, UsdPerDay
from app.calling import GenerationParams, RetryPolicy
from app.items import JsonObject
from app.records.endpoints import Endpoint, EndpointSettings, Limits, Price
from app.records.fields import convert, shallow
from app.services.endpoints.specs import EndpointChange, EndpointSpec
from app.validation import HEADER_NAME

_DEFAULT: Final = EndpointSettings(kind="")
Kind = Annotated[
    str,
    Field(
        pattern=r"^[a-z][a-z0-9_]{0,63}$",
        description=(
            "How to talk to it: `openai_chat`, `openai_completions`, `hf_tgi`, `hf_endpoint`, "
            "`scripted`, `callback` (scores answers, see the `callback` scorer), or the name of an "
            "installed adapter."
        ),
    ),
]
BaseUrl = Annotated[
    Text,
    Field(
        max_length=2048,
        description="Absolute http or https URL, usually ending in `/v1`. Stored and shown as it "
        "is: a query (`?api-version=...`) may not hold a key.",
    ),
]
ModelName = Annotated[Text, Field(max_length=500, description="Sent with each call.")]
Secret = Annotated[SecretStr, Field(min_length=1, max_length=8192)]
HeaderName = Annotated[str, StringConstraints(pattern=HEADER_NAME)]
Headers = Annotated[
    dict[HeaderName, Secret],
    Field(max_length=32, description="Sent with each call. Only the names are ever shown."),
]
TimeoutS = Annotated[
    float, Field(gt=0, le=3600, description="Seconds for one attempt, to the last byte.")
]
Options = Annotated[
    dict[Annotated[str, StringConstraints(pattern=r"^[^\x00]{1,64}$")], JsonValue],
    Field(
        max_length=32,
        description="Settings of one kind only: `theta`, `seed`, `latency_ms` and `skills` of "
        "`scripted`; `extra_body` (an object, whose fields go into the body of each call; of "
        "`hf_tgi` into its `parameters`) and `extra_headers` of those that are called. Stored and "
        "shown in the clear: what looks like a secret is refused.",
    ),
]


class Sampling(Input):
    """Sampling settings of every call; `null` leaves the endpoint's own default."""

    temperature: Annotated[float, Field(ge=0, le=10)] | None = _DEFAULT.sampling.temperature
    top_p: Annotated[float, Field(gt=0, le=1)] | None = _DEFAULT.sampling.top_p
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = _DEFAULT.sampling.max_tokens
    seed: Annotated[int, Field(ge=0, le=2**53)] | None = _DEFAULT.sampling.seed
    stop: Annotated[
        list[Annotated[Text, StringConstraints(min_length=1, max_length=200)]],
        Field(max_length=16),
    ] = Field(default_factory=list)

    def to_domain(self) -> GenerationParams:
        """The same for an adapter."""
        return convert(GenerationParams, self, stop=tuple(self.stop))


class ReasoningTags(Input):
    """What opens and closes a thought inside the answer's text; it is split off and kept."""

    open: Annotated[Text, StringConstraints(min_length=1, max_length=100)] = "<think>"
    close: Annotated[Text, StringConstraints(min_length=1, max_length=100)] = "</think>"


class LimitsModel(Input):
    """How hard the endpoint may be driven, over all sessions and workers; `null` is no limit."""

    rpm: Annotated[float, Field(gt=0, le=1e9, description="Requests a minute.")] | None = None
    tpm: (
        Annotated[
            float, Field(gt=0, le=1e12, description="Tokens a minute: prompt plus `max_tokens`.")
        ]
        | None
    ) = None
    concurrency: (
        Annotated[int, Field(ge=1, le=1024, description="Calls in flight per worker process.")]
        | None
    ) = None
    usd_per_day: UsdPerDay | None = None
    tokens_per_day: TokensPerDay | None = None


class PriceModel(Input):
    """US dollars per million tokens; `null` where not known."""

    input_per_1m: Annotated[float, Field(ge=0, le=1e9)] | None = None
    output_per_1m: Annotated[float, Field(ge=0, le=1e9)] | None = None
    currency: Literal["USD"] = "USD"


class RetryModel(Input):
    """How long to go on asking for one answer after failures that may pass."""

    max_attempts: Annotated[int, Field(ge=1, le=100)] = _DEFAULT.retry.max_attempts
    base_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=_DEFAULT.retry.base_s, description="First wait is drawn from 0 to this; it doubles."
    )
    cap_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=_DEFAULT.retry.cap_s, description="Longest range a wait is drawn from."
    )
    max_wait_s: Annotated[float, Field(ge=0, le=86400)] = Field(
        default=_DEFAULT.retry.max_wait_s, description="Sum of all waits for one answer."
    )
    cold_start_wait_s: Annotated[float, Field(ge=0, le=86400)] = Field(
        default=_DEFAULT.retry.cold_start_wait_s, description="Sum of all waits for a cold start."
    )


class EndpointCreate(Input):
    """A language model that can be called."""

    name: Name | None = Field(default=None, description="How you call it; unique.")
    kind: Kind
    base_url: BaseUrl = _DEFAULT.base_url
    model: ModelName = _DEFAULT.model
    api_key: Secret | None = Field(default=None, description="Stored encrypted, never shown.")
    headers: Headers = Field(default_factory=dict)
    sampling: Sampling = Field(default_factory=Sampling)
    reasoning: ReasoningTags = Field(default_factory=ReasoningTags)
    limits: LimitsModel = Field(default_factory=LimitsModel)
    price: PriceModel = Field(default_factory=PriceModel)
    retry: RetryModel = Field(default_factory=RetryModel)
    timeout_s: TimeoutS = _DEFAULT.timeout_s
    options: Options = Field(default_factory=dict)
    metadata: Metadata = Field(default_factory=dict)

    def to_spec(self) -> EndpointSpec:
        """The same for the service."""
        return EndpointSpec(
            settings=convert(
                EndpointSettings,
                self,
                sampling=self.sampling.to_domain(),
                reasoning_tags=(self.reasoning.open, self.reasoning.close),
                limits=convert(Limits, self.limits),
                price=convert(Price, self.price),
                retry=convert(RetryPolicy, self.retry),
            ),
            api_key=self.api_key.get_secret_value() if self.api_key else None,
            headers=_revealed(self.headers),
        )


class ChosenEndpoint(Input):
    """Who is asked: exactly one of the two."""

    endpoint_id: Name | None = Field(default=None, description="A saved endpoint.")
    endpoint: EndpointCreate | None = Field(
        default=None,
        description="Or an endpoint in place, stored with the ranking; of a preview it is not.",
    )

    _one_of_both = exactly_one("endpoint", "endpoint_id")

    def chosen(self) -> str | EndpointSpec:
        """Its id or name, or what is to be made."""
        return self.endpoint.to_spec() if self.endpoint else self.endpoint_id or ""


class NamedEndpointCreate(EndpointCreate):
    """A language model that can be called, saved under a name."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "llama-local",
                    "kind": "openai_chat",
                    "base_url": "http://localhost:8080/v1",
                    "model": "llama-3.2-3b-instruct",
                    "price": {"input_per_1m": 0.1, "output_per_1m": 0.4},
                    "limits": {"rpm": 600},
                }
            ]
        }
    )

    name: Name


class EndpointUpdate(Input):
    """What shall be different. A field that is left out stays as it is.

    `api_key: null` removes the key. When `base_url` names another host, `api_key` and `headers`
    have to be given again.
    """

    name: Name = ABSENT
    base_url: BaseUrl = ABSENT
    model: ModelName = ABSENT
    api_key: Secret | None = ABSENT
    headers: Headers = ABSENT
    sampling: Sampling = ABSENT
    reasoning: ReasoningTags = ABSENT
    limits: LimitsModel = ABSENT
    price: PriceModel = ABSENT
    retry: RetryModel = ABSENT
    timeout_s: TimeoutS = ABSENT
    options: Options = ABSENT
    metadata: Metadata = ABSENT

    def to_change(self) -> EndpointChange:
        """The same for the service."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        api_key = given.pop("api_key", ...)
        headers = given.pop("headers", ...)
        if "reasoning" in given:
            marks = given.pop("reasoning")
            given["reasoning_tags"] = (marks.open, marks.close)
        if "sampling" in given:
            given["sampling"] = given["sampling"].to_domain()
        for name, kind in (("limits", Limits), ("price", Price), ("retry", RetryPolicy)):
            if name in given:
                given[name] = convert(kind, given[name])
        return EndpointChange(
            settings=given,
            api_key=api_key.get_secret_value() if isinstance(api_key, SecretStr) else api_key,
            headers=headers if headers is ... else _revealed(headers),
        )


class EndpointRead(OwnedRead):
    """A stored endpoint; secrets are not part of it."""

    id: str
    object: Literal["endpoint"] = "endpoint"
    name: str | None
    kind: str
    base_url: str
    model: str
    api_key_set: bool
    header_names: list[str]
    sampling: Sampling
    reasoning: ReasoningTags
    limits: LimitsModel
    price: PriceModel
    retry: RetryModel
    timeout_s: float
    options: JsonObject
    metadata: dict[str, str]
    revision: int
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, endpoint: Endpoint) -> Self:
        """The outgoing shape of `endpoint`."""
        sealed = endpoint.sealed
        opening, closing = endpoint.settings.reasoning_tags
        return cls.read(
            {
                **shallow(endpoint.settings),
                **shallow(endpoint),
                "api_key_set": sealed.api_key is not None,
                "header_names": sealed.header_names,
                "reasoning": {"open": opening, "close": closing},
            }
        )


def _revealed(headers: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in headers.items()}
