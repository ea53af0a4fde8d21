"""A bank as one file: questions, parameters, the version's knowledge, and a hash over all of it.

The file holds JSON lines, in this order:

| line | content |
|---|---|
| `{"format": "sextant-bank", "format_version": 1}` | |
| `{"bank": {...}}` | name, licence, source, prompt, scorer, policies |
| `{"version": {...}}` | response model, scale, hash, overrides, knowledge, report card |
| `{"item": {...}}` | one line for each item, as in item files, with parameters |
| `{"sha256": "..."}` | hash of every byte before this line |

The hash detects a file that was changed or cut off. It is not a signature, as whoever changes a
file can hash it again. So everything in the file is checked before it is used.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError

from app.engine.bank import ItemBank
from app.engine.knowledge import with_abilities
from app.engine.lint import Finding, lint, quarantine
from app.engine.models.base import BoolArray
from app.errors import FileFormatError
from app.exchange.item_record import ItemRecord, parse_item
from app.exchange.parameters import bank_of_written
from app.items import ItemContent, Json
from app.validation import problems_of

Text = Annotated[str, StringConstraints(max_length=10_000, pattern=r"^[^\x00]*$")]
Short = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00]*$")]
Count = Annotated[int, Field(ge=0, le=10_000_000)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="allow")


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
    prompt: dict[str, Any]
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


FORMAT, FORMAT_VERSION = "sextant-bank", 1
SUFFIX = "sextant-bank.jsonl"
#: First bytes of every bundle, of any format version.
BEGINNING = f'{{"format": "{FORMAT}"'.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The contents of a bundle.

    Attributes:
        items: Fields of the items in order, as in item files, with parameters except for pretest
            items.
    """

    bank: Mapping[str, Any]
    version: Mapping[str, Any]
    items: tuple[Mapping[str, JsonValue], ...]

    def parameters(self, name: str) -> ItemBank:
        """A bank of the items that have parameters, with the version's abilities.

        Raises:
            FileFormatError: No item has parameters.
            ItemBankError: Invalid item parameters.
        """
        records = [item_of(fields, row, name) for row, fields in enumerate(self.items, start=4)]
        known = [(one.key, one.parameters) for one in records if one.parameters is not None]
        if not known:
            raise FileFormatError(f"{name} has no parameters.")
        bank = bank_of_written(known, scale=self.version["scale"])
        return with_abilities(bank, self.version["knowledge"])

    def active(self, bank: ItemBank) -> BoolArray:
        """Which items of `bank` are not quarantined, by parameters or findings; (n_items,)."""
        told = [Finding(**finding) for finding in self.version["findings"]]
        found = quarantine([*lint(bank), *told], allow=self.version["allow"])
        return ~np.isin(bank.item_ids, list(found - set(self.version["keep"])))


def line(document: Mapping[str, Json]) -> bytes:
    """Write one line; equal documents give equal bytes."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, sort_keys=True)
    return text.encode() + b"\n"


async def sealed(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Add the first line and the last line, with the hash, to the lines between them."""
    digest = hashlib.sha256()
    first = line({"format": FORMAT, "format_version": FORMAT_VERSION})
    digest.update(first)
    yield first
    async for block in lines:
        digest.update(block)
        yield block
    yield line({"sha256": digest.hexdigest()})


def read_bundle(content: bytes, name: str) -> Bundle:
    """Read a bundle and check that it is complete and unchanged.

    Raises:
        FileFormatError: Not a bundle, a later format version, or changed since it was written.
    """
    head, _, _ = content.partition(b"\n")
    first = _document(head, name)
    if first.get("format") != FORMAT:
        raise FileFormatError(
            f"{name} is no bundle: expected a file that banks export --bundle wrote."
        )
    form = first.get("format_version")
    if form != FORMAT_VERSION:
        raise FileFormatError(
            f"{name}: expected a bundle of form {FORMAT_VERSION}, got {form!r:.40}."
        )
    last = content.rstrip(b"\n").rfind(b"\n") + 1
    told = _document(content[last:], name).get("sha256")
    if told != hashlib.sha256(content[:last]).hexdigest():
        raise FileFormatError(
            f"{name} was changed or cut after it was written: its content does not have the hash "
            "in its last line. Export the bank again, or import items and parameters as files of "
            "their own."
        )
    documents = (_document(text, name) for text in content[:last].split(b"\n") if text)
    next(documents)
    bank, version = next(documents, {}).get("bank"), next(documents, {}).get("version")
    if not isinstance(bank, dict) or not isinstance(version, dict):
        raise FileFormatError(f"{name} is no bundle: expected a bank, and then a version.")
    try:
        _Head.model_validate({"bank": bank, "version": version})
    except ValidationError as exc:
        problems = problems_of(exc.errors(include_url=False))
        raise FileFormatError(
            f"{name} was not written by an export: {problems[0].pointer}: {problems[0].detail}.",
            problems=problems[:20],
        ) from None
    items = []
    for number, document in enumerate(documents, start=4):
        fields = document.get("item")
        if not isinstance(fields, dict):
            raise FileFormatError(f"{name}:{number}: expected an item.")
        item_of(fields, number, name)
        items.append(fields)
    return Bundle(bank=bank, version=version, items=tuple(items))


def item_of(fields: Mapping[str, JsonValue], row: int, name: str) -> ItemRecord:
    """Read an item of a bundle, which may have parameters and no content.

    Raises:
        InvalidInputError: Faulty fields, as in `parse_item`.
    """
    place = f"{name}:{row}:{{}}".format
    if "prompt" in fields or "messages" in fields:
        return parse_item(fields, row=row, place=place)
    bare = parse_item({**fields, "prompt": "-"}, row=row, place=place)
    return replace(bare, content=ItemContent())


def _document(text: bytes, name: str) -> dict[str, JsonValue]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise FileFormatError(f"{name} is no bundle: expected one JSON object a line.")
    return document
