"""Scorers as JSON."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from app.items import JsonObject, Outcome
from app.shapes import Input, Output, Text, examples


class ScorerRange(Output):
    """Range of the scores, or of the measure behind them. Null: no bound."""

    min: float | None
    max: float | None
    higher_is_better: bool


class ScorerRead(Output):
    """An installed scorer."""

    name: str
    object: Literal["scorer"] = "scorer"
    description: str
    params: JsonObject
    """JSON Schema of the scorer's parameters."""
    scale: ScorerRange
    """Range of the scores."""
    measure: ScorerRange
    """Range of the measure behind the scores."""
    version: str
    """Changes if the same answer may get another score."""


_Accepted = Annotated[Text, Field(max_length=10_000)]
_Several = Annotated[list[_Accepted], Field(min_length=1, max_length=100)]


class MarkedItem(Input):
    """The parts of an item that a scorer reads."""

    prompt: Annotated[Text, Field(max_length=100_000)] = ""
    choices: Annotated[
        list[Annotated[Text, Field(min_length=1, max_length=10_000)]], Field(max_length=26)
    ] = Field(default_factory=list)
    target: Annotated[
        _Several,
        BeforeValidator(
            lambda given: given if isinstance(given, list) else [given],
            json_schema_input_type=_Accepted | _Several,
        ),
    ]
    """Accepted answer or answers; for multiple choice, the text of right options."""


class ScorerTest(Input):
    """An item and an answer to score."""

    model_config = examples(
        {"item": {"prompt": "2 + 2 = ?", "target": ["4"]}, "answer": "It is 4.", "params": {}}
    )

    item: MarkedItem
    answer: Annotated[Text, Field(max_length=1_000_000)]
    finish: Literal["stop", "length", "content_filter", "unknown"] = "stop"
    """Why the answer ended."""
    params: JsonObject = Field(default_factory=dict)
    """Parameters of the scorer, by the JSON Schema in its `params`."""


class Marked(Output):
    """How an answer was scored."""

    score: float | None
    extracted: str | None
    extractor: str | None
    reason: str | None
    error_code: str | None
    """Code of a failure of the scorer or of the call."""
    marking: JsonObject | None
    """For scorers that make calls: judgements, version of the judge, cost."""


class Obtained(Marked):
    """The answer and how it was scored."""

    method: JsonObject | None
    """How the answer was obtained; null if it was written and read once. `loglikelihood`:
    log-likelihood, number of tokens and length of each option."""
    answer: str | None = Field(validation_alias="answer_text")
    raw: str | None = Field(validation_alias="raw_text")
    """The whole text, if it differs from `answer`."""
    reasoning: str | None
    finish_reason: str | None
    tokens_in: int | None
    tokens_out: int | None
    usd: float | None
    latency_ms: float | None
    attempts: int | None


class MarkRead(Marked):
    """The outcome of an answer.

    Estimates use `scored` answers, and `unparsed` ones that count as wrong.
    """

    outcome: Outcome
