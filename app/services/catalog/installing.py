"""Make a bank with a version from an entry of the catalogue, completely or not at all.

The files of an entry are joined in a child process.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, BinaryIO

from app.adapters.prompting import LOGLIKELIHOOD, PromptStyle, build_messages
from app.engine.bank import ItemBank
from app.errors import ConflictError, InvalidInputError
from app.exchange.catalog.build import Built, GivenFile, build_bank
from app.exchange.catalog.entry import Entry, entry_of
from app.exchange.item_record import ItemRecord, parse_item
from app.items import BY_KIND, ItemContent, ScorerSpec
from app.records.banks import BankSpec, BankVersion
from app.records.fields import not_none
from app.records.sessions import AskedJson
from app.reports.joins import join_sentence
from app.sandbox.pool import Limits, sandbox
from app.services.banks.imports import BankImport
from app.services.banks.joins import join_of_table
from app.services.banks.origins import ASKED, Asked
from app.services.banks.service import BankService
from app.services.banks.spec import calls_out, require_usable
from app.services.catalog.files import INSTALLED, FoundFile, FoundFiles, Prepared, spec_of
from app.storage.unit_of_work import UnitOfWork

#: Largest number of skipped rows in the list of the result.
_LISTED = 20
_LIMITS = Limits(memory=1024 * 2**20, seconds=300.0, output=512 * 2**20)
_GROUPS = ("questions", "parameters", "few_shot", "answers")


async def prepare_questions(entry: Entry, files: FoundFiles, banks: BankService) -> Prepared:
    """Join the questions and parameters of an entry; nothing is written.

    Raises:
        InvalidInputError: The files do not fit together, or a limit is exceeded.
    """
    records, prompt, told = await _joined(entry, files.found)
    spec = _spec(entry, prompt)
    await require_usable(spec.default_scorer)
    if calls_out(spec.default_scorer):
        raise InvalidInputError(
            f"Entry {entry.name!r} names the scorer {spec.default_scorer.name!r}, which calls an "
            "endpoint: a bank of the catalogue is scored here."
        )
    facts = _facts(entry, files, told)
    request = BankImport(
        items=records,
        response_model=entry.parameters.response_model,
        scale=entry.parameters.scale,
        unparsed_policy=entry.asked.unparsed,
        notes=f"Installed from the catalogue's entry {entry.name!r}.",
        knowledge={ASKED: _asked(entry), INSTALLED: facts},
    )
    return Prepared(spec=spec, facts=facts, publish=lambda uow: banks.publish(uow, spec, request))


async def write(uow: UnitOfWork, prepared: Prepared) -> tuple[BankVersion, Mapping[str, Any]]:
    """Write the bank within the caller's transaction; an identical installation stays as it is.

    Returns:
        The version, and the result of the installation.

    Raises:
        ConflictError: A different bank has that name.
    """
    name = prepared.spec.name
    bank = await uow.banks.known(name, for_update=True)
    if bank is None:
        version = await prepared.publish(uow)
        return version, _result(version, prepared.facts, was_there=False)
    latest = (await uow.versions.latest([bank.id])).get(bank.id)
    if latest is None or not _same(latest.knowledge, prepared.facts):
        raise ConflictError(
            f"There is a bank {name!r} already, and its latest version is not what the catalogue "
            "would install: give that bank another name, or delete it."
        )
    return latest, _result(latest, latest.knowledge[INSTALLED], was_there=True)


def _same(knowledge: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a version was installed from the same files, joined and asked in the same way."""
    one = knowledge.get(INSTALLED)
    if one is None:
        return False
    files = [
        {
            group: file["sha256"]
            for group, file in facts["files"].items()
            if group in ("questions", "parameters", "responses")
        }
        for facts in (one, other)
    ]
    # Versions from before this was stored have none.
    return files[0] == files[1] and one.get("form", other.get("form")) == other.get("form")


def _asked(entry: Entry) -> AskedJson:
    """How the answers behind the parameters were obtained, as far as the entry says."""
    asked, scorer = entry.asked, entry.item.scorer
    known = Asked(
        mode=asked.mode,
        normalise=asked.normalise,
        shots=asked.shots,
        scorer=None if scorer is None or asked.mode != "generate" else scorer.name,
        source=asked.source,
    )
    return not_none(known)


def _spec(entry: Entry, prompt: Mapping[str, Any]) -> BankSpec:
    scorer = ScorerSpec(BY_KIND)
    if entry.item.scorer is not None:
        scorer = ScorerSpec(entry.item.scorer.name, dict(entry.item.scorer.params))
    spec = spec_of(entry)
    return replace(spec, visibility=entry.visibility, default_scorer=scorer, prompt=prompt)


def _facts(entry: Entry, files: FoundFiles, told: Mapping[str, Any]) -> dict[str, Any]:
    wanted = 0 if entry.few_shot is None else entry.few_shot.number
    why = {"why": files.missing["few_shot"]} if "few_shot" in files.missing else {}
    return {
        **told,
        "entry": entry.name,
        "form": entry.form_hash,
        "files": {group: file.to_dict() for group, file in files.found.items()},
        "split": entry.questions.split,
        "join": entry.join.model_dump(include={"order", "seed", "evidence"}),
        "few_shot": {**told["few_shot"], "wanted": wanted, **why},
        "licence": entry.licence,
        "parameters_licence": entry.parameters_licence,
    }


def _result(version: BankVersion, facts: Mapping[str, Any], *, was_there: bool) -> dict[str, Any]:
    return {
        **facts,
        "bank_id": version.bank_id,
        "bank_version_id": version.id,
        "bank_version": version.number,
        "parameters_hash": version.parameters_hash,
        "calibration_id": (version.calibration or {}).get("id"),
        "items": dict(version.lint["items"]),
        "findings": dict(version.lint["findings"]),
        "was_there": was_there,
    }


async def _joined(
    entry: Entry, found: Mapping[str, FoundFile]
) -> tuple[list[ItemRecord], Mapping[str, Any], Mapping[str, Any]]:
    """Items in the order of the parameters, prompt style of the bank, and facts about the join."""
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
        advice="the files are not what the entry says",
    ) as (value, output):
        records = await asyncio.to_thread(lambda: [parse_item(json.loads(line)) for line in output])
    return records, value["prompt"], value["facts"]


def build_confined(argument: Any, attachments: Sequence[bytes], output: BinaryIO) -> Any:
    """Join files in the child process: write items as lines, and return the rest."""
    entry = entry_of(argument["entry"])
    files = {
        group: GivenFile(name, content)
        for (group, name), content in zip(argument["names"].items(), attachments, strict=True)
    }
    built = build_bank(entry, files["questions"], files["parameters"], files.get("few_shot"))
    join_check = None if "answers" not in files else _join_check(built, files["answers"])
    for item in built.items:
        output.write(json.dumps(item).encode() + b"\n")
    facts = {
        "rows": built.n_rows,
        "few_shot": {
            "number": len(built.examples),
            "from": built.examples_from,
            "rows": [example.row for example in built.examples],
        },
        "join_check": join_check,
        "left_out": [asdict(row) for row in built.left_out[:_LISTED]],
        "n_left_out": len(built.left_out),
    }
    return {"prompt": prompt_style(entry, built), "facts": facts}


def _join_check(built: Built, answers: GivenFile) -> dict[str, Any]:
    """Check by the answers of the entry that its parameters belong to its questions."""
    from app.exchange.responses import read_responses  # imports pyarrow, needed for answers only

    table = read_responses(answers.content, name=answers.name)
    items = built.items
    bank = ItemBank.from_intercepts(
        a=[item["a"] for item in items],
        intercept=[item["intercept"] for item in items],
        c=[item["c"] for item in items],
        d=[item["d"] for item in items],
        item_ids=[item["key"] for item in items],
    )
    check = join_of_table(bank, table)
    if check.verdict == "broken":
        raise InvalidInputError(f"{answers.name}: {join_sentence(check)}")
    return {**asdict(check), "explanation": join_sentence(check)}


def prompt_style(entry: Entry, built: Built) -> dict[str, Any]:
    """Prompt style of the entry's bank, as JSON: instructions and worked examples.

    Without examples, the instructions are the default ones: nothing else tells a model how to
    answer.
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
        # Where options are compared, examples answer with an option's text; otherwise by letter.
        answer = content.target[0] if likely and content.choices else example.answer
        turns += [
            {"role": "user", "content": asked.content},
            {"role": "assistant", "content": answer},
        ]
    return {**style, "prefix": turns}
