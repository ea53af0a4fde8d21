"""How a session is run, and where its figures come from, as stored in JSON.

What may be missing is missing in sessions older than it.
"""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from app.items import JsonObject

#: How answers were obtained, by what is known: `mode`, `shots`, `scorer`, ...
AskedJson = dict[str, str | float | None]


class Plan(TypedDict, total=False):
    """How a session is run: the sections of a design, and what goes beyond it."""

    preset: str
    estimator: JsonObject
    selection: JsonObject
    stopping: JsonObject
    prediction: JsonObject
    budget: JsonObject
    concurrency: int
    failures: JsonObject
    pretest: JsonObject
    repeats: int
    cache: bool
    answer_within: float
    idle_timeout: float


class PromptChanges(TypedDict, total=False):
    """What a session does otherwise than its bank."""

    mode: Literal["generate", "loglikelihood"]
    shots: int
    system: str


class Asking(TypedDict):
    """How items are put and scored: what a session keeps to until its end."""

    bank_revision: int
    prompt: JsonObject
    wanted_mode: NotRequired[str | None]
    default_scorer: JsonObject
    unparsed_policy: str


class Origin(TypedDict):
    """The endpoint that was called, or who answers by hand, of whom less is known."""

    id: str
    revision: int
    name: str | None
    kind: str
    model: str
    options: JsonObject
    base_url: NotRequired[str]
    sampling: NotRequired[JsonObject]
    price: NotRequired[dict[str, float | None]]
    reasoning_tags: NotRequired[list[str]]
    parameters_hash: NotRequired[str]


class Conditions(TypedDict):
    """In which way a session was asked."""

    asked: NotRequired[AskedJson]
    asking: Asking


class Provenance(Conditions):
    """What a session is made of and under."""

    code_version: str
    bank: str
    bank_version_id: str
    bank_version: int
    parameters_hash: str
    scale: str
    response_model: str
    provisional: bool
    uncertainty: NotRequired[str]
    n_items: int
    n_never_asked: NotRequired[int]
    n_uncalibrated: NotRequired[int]
    asked_when_calibrated: NotRequired[AskedJson]
    unparsed_when_calibrated: NotRequired[str | None]
    prompt_template_hash: str
    endpoint: Origin | None
    scorer_endpoints: NotRequired[dict[str, Origin]]
    private_endpoints: bool
    seed: int
    reachable_se: NotRequired[float]
    left_out: NotRequired[int]
    rescored_with: NotRequired[JsonObject | None]
