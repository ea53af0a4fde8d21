"""The join of an entry's files, read in a child process."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import numpy as np

from app.adapters.prompting import LOGLIKELIHOOD, PromptStyle, build_messages
from app.engine.bank import ItemBank
from app.engine.inference.join import check_join
from app.errors import InvalidInputError
from app.exchange.catalog.build import Built, GivenFile, build_bank
from app.exchange.catalog.entry import Entry, entry_of
from app.exchange.item_record import ItemRecord, parse_item
from app.items import ItemContent
from app.reports.joins import join_sentence
from app.sandbox.pool import Limits, sandbox
from app.services.catalog.files import FoundFile

_LIMITS = Limits(memory=1024 * 2**20, seconds=300.0, output=512 * 2**20)
_GROUPS = ("questions", "parameters", "few_shot", "answers")
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
        join_check: What the answers that came along say of the join; None where none came.
    """

    records: Sequence[ItemRecord]
    prompt: Mapping[str, Any]
    examples_from: str
    example_rows: Sequence[int]
    n_rows: int
    left_out: Sequence[Mapping[str, Any]]
    join_check: Mapping[str, Any] | None


async def joined(entry: Entry, found: Mapping[str, FoundFile]) -> Joined:
    """Join an entry's questions to its parameters.

    Raises:
        InvalidInputError: As `build_bank`, or beyond a limit.
    """
    given = {group: found[group] for group in _GROUPS if group in found}
    argument = {
        "entry": entry.model_dump(mode="json"),
        "names": {group: file.name for group, file in given.items()},
    }
    async with sandbox().made(
        build_confined,
        argument,
        [file.content for file in given.values()],
        limits=_LIMITS,
        subject=f"The catalogue's {entry.name}",
        advice=_ADVICE,
    ) as (value, output):
        records = await asyncio.to_thread(_records, output)
    return Joined(records=records, **value)


def _records(output: BinaryIO) -> list[ItemRecord]:
    return [parse_item(json.loads(line)) for line in output]


def build_confined(argument: Any, attachments: Sequence[bytes], output: BinaryIO) -> Any:
    """Runs in the child: items are written as lines, the rest is the value."""
    entry = entry_of(argument["entry"])
    files = {
        group: GivenFile(name, content)
        for (group, name), content in zip(argument["names"].items(), attachments, strict=True)
    }
    built = build_bank(entry, files["questions"], files["parameters"], files.get("few_shot"))
    join_check = None if "answers" not in files else _join_check(built, files["answers"])
    for item in built.items:
        output.write(json.dumps(item).encode() + b"\n")
    return {
        "prompt": prompt_style(entry, built),
        "examples_from": built.examples_from,
        "example_rows": [example.row for example in built.examples],
        "n_rows": built.n_rows,
        "left_out": [asdict(row) for row in built.left_out],
        "join_check": join_check,
    }


def _join_check(built: Built, answers: GivenFile) -> dict[str, Any]:
    """What answers that came along say of the join.

    Raises:
        InvalidInputError: The parameters are not those of these questions.
    """
    from app.exchange.responses import read_responses  # pyarrow: only where answers come along

    table = read_responses(answers.content, name=answers.name)
    items = built.items
    bank = ItemBank.from_intercepts(
        a=[item["a"] for item in items],
        intercept=[item["intercept"] for item in items],
        c=[item["c"] for item in items],
        d=[item["d"] for item in items],
        item_ids=[item["key"] for item in items],
    )
    columns = {key: place for place, key in enumerate(table.items)}
    scores = np.full((table.n_examinees, bank.n_items), np.nan)
    for place, key in enumerate(bank.item_ids):
        if key in columns:
            scores[:, place] = table.scores[:, columns[key]]
    check = check_join(bank, scores)
    if check.verdict == "broken":
        raise InvalidInputError(f"{answers.name}: {join_sentence(check)}")
    return {**asdict(check), "explanation": join_sentence(check)}


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
