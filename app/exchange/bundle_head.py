"""What a bundle says of a bank and of its version, before its items: checked as a request would be.

A bundle is no signature: whoever changes one can hash it again, so that nothing in it is taken as
it stands.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from app.errors import FileFormatError
from app.items import Role
from app.validation import problems_of

Text = Annotated[str, StringConstraints(max_length=10_000, pattern=r"^[^\x00]*$")]
Short = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00]*$")]
Count = Annotated[int, Field(ge=0, le=10_000_000)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="allow")


class _Turn(_Part):
    role: Role
    content: Text


class _Layout(_Part):
    question: Text
    answer: Text
    gap: Text
    separator: Text


class _Prompt(_Part):
    system: Text = ""
    prefix: Annotated[list[_Turn], Field(max_length=100)] = Field(default_factory=list)
    choice_instruction: Text = ""
    free_instruction: Text = ""
    blank: Text = ""
    stop: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=200)]], Field(max_length=16)
    ] = Field(default_factory=list)
    layout: _Layout | None = None


class _Scorer(_Part):
    name: Short
    params: dict[str, Any]


class _Bank(_Part):
    name: Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00]*$")]
    description: Text
    licence: Short | None
    source: Short | None
    unparsed_policy: Literal["wrong", "missing"]
    pretest_items: Count
    prompt: _Prompt
    metadata: Annotated[dict[Short, Text], Field(max_length=100)]
    default_scorer: _Scorer


class _Asked(_Part):
    mode: Literal["generate", "loglikelihood"] | None = None
    normalise: Literal["none", "characters", "bytes"] | None = None
    shots: Count | None = None
    template_hash: Short | None = None
    scorer: Short | None = None
    max_tokens: Count | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    source: Text | None = None


class _Knowledge(_Part):
    asked: _Asked | None = None
    unparsed_policy: Literal["wrong", "missing"] | None = None


class _Finding(_Part):
    item_id: Text
    code: Short
    severity: Literal["error", "warning", "info"]
    message: Text


class _Version(_Part):
    response_model: Short
    scale: Short
    parameters_hash: Short
    provisional: bool
    notes: Text
    allow: list[Short]
    keep: list[Text]
    findings: list[_Finding]
    knowledge: _Knowledge
    origin: dict[str, Any]


class _Head(_Part):
    bank: _Bank
    version: _Version


def check_head(bank: dict[str, Any], version: dict[str, Any], name: str) -> None:
    """Refuse what no export writes.

    Raises:
        FileFormatError: With the place in the bundle.
    """
    try:
        _Head.model_validate({"bank": bank, "version": version})
    except ValidationError as exc:
        problems = problems_of(exc.errors(include_url=False))
        first = problems[0]
        raise FileFormatError(
            f"{name} was not written by an export: {first.pointer}: {first.detail}.",
            problems=problems[:20],
        ) from None
