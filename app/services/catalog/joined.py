"""The join of an entry's files; those that came over the network are read in a child process."""

import asyncio
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

from app.adapters.prompting import LOGLIKELIHOOD, PromptStyle, build_messages
from app.confined import Limits, confinement
from app.exchange.catalog.build import Built, GivenFile, build_bank
from app.exchange.catalog.entry import Entry, entry_of
from app.exchange.item_record import ItemRecord, parse_item
from app.items import ItemContent
from app.services.catalog.files import FoundFile

_LIMITS = Limits(memory=1024 * 2**20, seconds=300.0, output=512 * 2**20)
_ADVICE = "the files are not what the entry says"


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Items with their parameters, and how they are put.

    Attributes:
        records: In the order of the parameters.
        prompt: Of the bank, as JSON.
        examples_from: `training_file`, `rows_without_parameters` or `none`.
        example_rows: Rows, from 0, of that file that the examples are.
        n_rows: Of the split.
        left_out: Rows that have parameters and are no items: name, row and reason of each.
    """

    records: Sequence[ItemRecord]
    prompt: Mapping[str, Any]
    examples_from: str
    example_rows: Sequence[int]
    n_rows: int
    left_out: Sequence[Mapping[str, Any]]


async def joined(entry: Entry, found: Mapping[str, FoundFile], *, own: bool) -> Joined:
    """Join an entry's questions to its parameters.

    Args:
        entry: Says how.
        found: Its files by group.
        own: They are the operator's own, from this machine's disk.

    Raises:
        InvalidInputError: As `build_bank`, or beyond a limit.
    """
    given = [found[group] for group in ("questions", "parameters", "few_shot") if group in found]
    argument = {"entry": entry.model_dump(mode="json"), "names": [file.name for file in given]}
    contents = [file.content for file in given]
    if own:
        value, records = await asyncio.to_thread(_built_here, argument, contents)
        return _joined(value, records)
    async with confinement().made(
        build_confined,
        argument,
        contents,
        limits=_LIMITS,
        subject=f"The catalogue's {entry.name}",
        advice=_ADVICE,
    ) as (value, output):
        records = await asyncio.to_thread(_records, output)
    return _joined(value, records)


def _built_here(argument: Any, contents: Sequence[bytes]) -> tuple[Any, list[ItemRecord]]:
    output = io.BytesIO()
    value = build_confined(argument, contents, output)
    output.seek(0)
    return value, _records(output)


def _records(output: BinaryIO) -> list[ItemRecord]:
    return [parse_item(json.loads(line)) for line in output]


def _joined(value: Any, records: list[ItemRecord]) -> Joined:
    return Joined(
        records=records,
        prompt=value["prompt"],
        examples_from=value["examples_from"],
        example_rows=value["example_rows"],
        n_rows=value["n_rows"],
        left_out=value["left_out"],
    )


def build_confined(argument: Any, attachments: Sequence[bytes], output: BinaryIO) -> Any:
    """Runs in the child as a rule: items are written as lines, the rest is the value."""
    entry = entry_of(argument["entry"])
    files = [
        GivenFile(name, content)
        for name, content in zip(argument["names"], attachments, strict=True)
    ]
    built = build_bank(entry, *files)
    for item in built.items:
        output.write(json.dumps(item).encode() + b"\n")
    return {
        "prompt": prompt_style(entry, built),
        "examples_from": built.examples_from,
        "example_rows": [example.row for example in built.examples],
        "n_rows": built.n_rows,
        "left_out": [asdict(row) for row in built.left_out],
    }


def prompt_style(entry: Entry, built: Built) -> dict[str, Any]:
    """How a bank of the entry puts its items, as JSON: instructions and worked examples.

    Without an example the instructions are those that any item gets: nothing else tells a model
    how to answer.
    """
    form, likely = entry.item, entry.asked.mode == LOGLIKELIHOOD
    style: dict[str, Any] = {"mode": entry.asked.mode}
    if form.layout is not None:
        style["layout"] = form.layout.model_dump()
    if likely:
        style |= {"normalise": entry.asked.normalise or "none", "blank": form.blank}
    for name in ("free_instruction", "choice_instruction"):
        text = getattr(form, name)
        if text is not None and built.examples:
            style[name] = text
    plain = PromptStyle.from_dict({"free_instruction": "", **style})
    turns = []
    for example in built.examples:
        content: ItemContent = example.content
        (asked,) = build_messages(content, plain)
        # Where options are compared they stand in the examples as they are; else letters do.
        answer = content.target[0] if likely and content.choices else example.answer
        turns += [
            {"role": "user", "content": asked.content},
            {"role": "assistant", "content": answer},
        ]
    return {**style, "prefix": turns}
