"""Items of a bank as JSON."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints

from app.api.schemas.banks import ScorerModel
from app.api.schemas.versions import Key
from app.exchange.item_record import MAX_CHOICES, MAX_TAGS, MAX_TOKENS
from app.records.banks import Item
from app.records.fields import shallow
from app.services.banks.imports import BatchLine
from app.shapes import ABSENT, MADE_BY, Failure, Input, Output, Text, examples
from app.validation import CONTENT_HASH

Content = Annotated[Text, StringConstraints(min_length=1, max_length=1_000_000)]
Option = Annotated[Text, StringConstraints(min_length=1, max_length=10_000)]
Options = Annotated[
    list[Option | int | float],
    Field(max_length=MAX_CHOICES, description="Options of a multiple-choice item, 2 to 26."),
]
Answer = Option | int | float
Target = Annotated[
    Answer | list[Answer],
    Field(
        description=(
            "Right answer, or several. With choices: the text of an option, else its letter from "
            "A, else its index from 0; a JSON number is always an index."
        )
    ),
]
Tag = Annotated[Text, StringConstraints(min_length=1, max_length=500)]
Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS)]
Group = Annotated[
    Key, Field(description="Group of items that belong together, such as questions on one text.")
]
Count = Annotated[int, Field(ge=0, le=MAX_TOKENS)]


class MessageModel(Input):
    """One turn of a chat prompt."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[Text, StringConstraints(max_length=1_000_000)]


class TokensModel(Input):
    """Expected tokens of asking the item."""

    model_config = ConfigDict(serialize_by_alias=True, validate_by_name=True)

    in_: Count | None = Field(default=None, alias="in")
    out: Count | None = None


class ItemCreate(Input):
    """A new item, with either `prompt` or `messages`."""

    model_config = examples(
        {
            "key": "sum-17",
            "prompt": "What is 8 + 9?",
            "choices": ["15", "16", "17", "18"],
            "target": "C",
            "tags": ["addition"],
        }
    )

    key: Key
    prompt: Content | None = None
    messages: Annotated[list[MessageModel], Field(max_length=100)] | None = None
    choices: Options = Field(default_factory=list)
    target: Target | None = None
    tags: Tags = Field(default_factory=list)
    group: Group | None = None
    scorer: ScorerModel | None = None
    expected_tokens: TokensModel | None = None


class ItemUpdate(Input):
    """Fields to change. A field that is left out keeps its value; `null` removes it."""

    key: Key = ABSENT
    prompt: Content | None = ABSENT
    messages: Annotated[list[MessageModel], Field(max_length=100)] | None = ABSENT
    choices: Options | None = ABSENT
    target: Target | None = ABSENT
    tags: Tags | None = ABSENT
    group: Group | None = ABSENT
    scorer: ScorerModel | None = ABSENT
    expected_tokens: TokensModel | None = ABSENT


class ItemRead(Output):
    """A stored item. Only keys with `banks:write` see the content of an item in a withheld bank."""

    id: str
    object: Literal["item"] = "item"
    bank_id: str
    key: str
    withheld: bool
    """Whether content, target, scorer and hash are hidden."""
    prompt: str | None
    messages: list[MessageModel]
    choices: list[str]
    target: list[str]
    """Full text of each right option or answer."""
    tags: list[str]
    group: str | None
    scorer: ScorerModel | None
    expected_tokens: TokensModel
    content_hash: str | None
    """SHA-256 of question, options and targets; null if they are hidden."""
    revision: int
    created_by: str | None = Field(description=MADE_BY)
    created_at: datetime

    @classmethod
    def of(cls, item: Item) -> Self:
        """The outgoing shape of `item`."""
        return cls.read(
            {
                **shallow(item),
                **shallow(item.content),
                "withheld": not item.content_hash,
                "expected_tokens": {"in": item.expected_tokens_in, "out": item.expected_tokens_out},
                "content_hash": item.content_hash or None,
            }
        )


Keys = Annotated[list[Key], Field(max_length=10_000)]
Hashes = Annotated[list[Annotated[str, Field(pattern=CONTENT_HASH)]], Field(max_length=10_000)]


class MatchCreate(Input):
    """Items to look for in the bank, by key or by content hash."""

    model_config = examples({"keys": ["demo-000"]})

    keys: Keys = Field(default_factory=list)
    content_hashes: Hashes = Field(default_factory=list)
    """SHA-256 of the JSON text `[prompt, messages, choices, target]` without spaces, in UTF-8;
    messages are pairs of role and content."""


class MatchRead(Output):
    """Which of the items the bank has."""

    object: Literal["item_match"] = "item_match"
    matched: dict[str, list[str]]
    """For each key or hash that was found: keys of the bank's items that have it."""
    missing: list[str]
    """Keys and hashes that no item of the bank has."""


class LineRead(Output):
    """Result for one line."""

    line: int = Field(validation_alias="row")
    status: Literal["created", "unchanged", "failed"]
    key: str | None
    item_id: str | None
    error: Failure | None


class BatchRead(Output):
    """Result for each line of a batch."""

    object: Literal["list"] = "list"
    data: list[LineRead]
    created: int
    unchanged: int
    failed: int

    @classmethod
    def of(cls, lines: list[BatchLine]) -> Self:
        """The outgoing shape."""
        states = [line.status for line in lines]
        counts = {state: states.count(state) for state in ("created", "unchanged", "failed")}
        return cls.read({"data": lines, **counts})
