"""Endpoints as JSON. `EndpointCreate` is also the inline endpoint of a session."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal, Self

from pydantic import Field, JsonValue, SecretStr, StringConstraints

from app.calling import GenerationParams, RetryPolicy
from app.items import JsonObject
from app.records.endpoints import (
    CallLimits,
    EndpointSettings,
    Price,
    ReasoningTags,
    StoredEndpoint,
)
from app.records.fields import convert, shallow
from app.services.endpoints.specs import EndpointChange, EndpointSpec
from app.shapes import ABSENT, Input, Metadata, Name, OwnedRead, Text, exactly_one, examples
from app.validation import HEADER_NAME, KIND, SHORT_KEY

_DEFAULT: Final = EndpointSettings(kind="")
Kind = Annotated[
    str,
    Field(
        pattern=KIND,
        description=(
            "API of the endpoint: `openai_chat`, `openai_completions`, `hf_tgi`, `hf_endpoint`, "
            "`scripted`, `callback` (scores answers, see the `callback` scorer), or the name of an "
            "installed adapter."
        ),
    ),
]
BaseUrl = Annotated[
    Text,
    Field(
        max_length=2048,
        description="Absolute http or https URL, usually ending in `/v1`. It is stored and shown "
        "in plain text: a query such as `?api-version=...` may not contain a key.",
    ),
]
ModelName = Annotated[Text, Field(max_length=500, description="Model name, sent with each call.")]
Secret = Annotated[SecretStr, Field(min_length=1, max_length=8192)]
HeaderName = Annotated[str, StringConstraints(pattern=HEADER_NAME)]
Headers = Annotated[
    dict[HeaderName, Secret],
    Field(
        max_length=32, description="Headers sent with each call. Only their names are ever shown."
    ),
]
TimeoutS = Annotated[
    float,
    Field(gt=0, le=3600, description="Seconds that one attempt may take, until the last byte."),
]
Options = Annotated[
    dict[Annotated[str, StringConstraints(pattern=SHORT_KEY)], JsonValue],
    Field(
        max_length=32,
        description="Settings of some kinds. `scripted`: `theta`, `seed`, `latency_ms` and "
        "`skills`. Kinds that are called: `extra_headers`, and `extra_body`, an object whose "
        "fields are added to the body of each call (`hf_tgi`: to its `parameters`). They are "
        "stored and shown in plain text: what looks like a secret is refused.",
    ),
]


class EndpointCreate(Input):
    """A language model that can be called."""

    name: Name | None = None
    """Name of the endpoint, unique in the project."""
    kind: Kind
    base_url: BaseUrl = _DEFAULT.base_url
    model: ModelName = _DEFAULT.model
    api_key: Secret | None = None
    """Stored encrypted, never shown."""
    headers: Headers = Field(default_factory=dict)
    sampling: GenerationParams = Field(default_factory=GenerationParams)
    reasoning: ReasoningTags = Field(default_factory=ReasoningTags)
    limits: CallLimits = Field(default_factory=CallLimits)
    price: Price = Field(default_factory=Price)
    retry: RetryPolicy = Field(default_factory=RetryPolicy)
    timeout_s: TimeoutS = _DEFAULT.timeout_s
    options: Options = Field(default_factory=dict)
    metadata: Metadata = Field(default_factory=dict)

    def to_spec(self) -> EndpointSpec:
        """The same for the service."""
        return EndpointSpec(
            settings=convert(EndpointSettings, self),
            api_key=self.api_key.get_secret_value() if self.api_key else None,
            headers=_revealed(self.headers),
        )


class ChosenEndpoint(Input):
    """The endpoint to ask: exactly one of the two."""

    endpoint_id: Name | None = None
    """Id of a saved endpoint."""
    endpoint: EndpointCreate | None = None
    """An endpoint that is not saved yet; a ranking stores it, a preview does not."""

    _one_of_both = exactly_one("endpoint", "endpoint_id")

    def chosen(self) -> str | EndpointSpec:
        """Its id or name, or what is to be made."""
        return self.endpoint.to_spec() if self.endpoint else self.endpoint_id or ""


class NamedEndpointCreate(EndpointCreate):
    """A language model that can be called, saved under a name."""

    model_config = examples(
        {
            "name": "llama-local",
            "kind": "openai_chat",
            "base_url": "http://localhost:8080/v1",
            "model": "llama-3.2-3b-instruct",
            "price": {"input_per_1m": 0.1, "output_per_1m": 0.4},
            "limits": {"rpm": 600},
        }
    )

    name: Name


class EndpointUpdate(Input):
    """Fields to change. A field that is left out keeps its value.

    `api_key: null` removes the key. If `base_url` names another host, `api_key` and `headers` must
    be given again.
    """

    name: Name = ABSENT
    base_url: BaseUrl = ABSENT
    model: ModelName = ABSENT
    api_key: Secret | None = ABSENT
    headers: Headers = ABSENT
    sampling: GenerationParams = ABSENT
    reasoning: ReasoningTags = ABSENT
    limits: CallLimits = ABSENT
    price: Price = ABSENT
    retry: RetryPolicy = ABSENT
    timeout_s: TimeoutS = ABSENT
    options: Options = ABSENT
    metadata: Metadata = ABSENT

    def to_change(self) -> EndpointChange:
        """The same for the service."""
        given = self.model_fields_set
        api_key = self.api_key if "api_key" in given else ...
        headers = self.headers if "headers" in given else ...
        return EndpointChange(
            settings={name: getattr(self, name) for name in given - {"api_key", "headers"}},
            api_key=api_key.get_secret_value() if isinstance(api_key, SecretStr) else api_key,
            headers=headers if headers is ... else _revealed(headers),
        )


class EndpointRead(OwnedRead):
    """A stored endpoint, without its secrets."""

    id: str
    object: Literal["endpoint"] = "endpoint"
    name: str | None
    kind: str
    base_url: str
    model: str
    api_key_set: bool
    header_names: list[str]
    sampling: GenerationParams
    reasoning: ReasoningTags
    limits: CallLimits
    price: Price
    retry: RetryPolicy
    timeout_s: float
    options: JsonObject
    metadata: dict[str, str]
    revision: int
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, endpoint: StoredEndpoint) -> Self:
        """The outgoing shape of `endpoint`."""
        sealed = endpoint.sealed
        return cls.read(
            {
                **shallow(endpoint.settings),
                **shallow(endpoint),
                "api_key_set": sealed.api_key is not None,
                "header_names": sealed.header_names,
            }
        )


def _revealed(headers: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in headers.items()}
