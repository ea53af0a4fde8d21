"""From an entry of the catalogue to a bank with a version: everything, or nothing."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.adapters.downloads import Progress
from app.adapters.guard import AddressGuard
from app.errors import ConflictError, InvalidInputError, NotFoundError
from app.exchange.catalog.entry import AgentsEntry, Entry, Listed
from app.items import BY_KIND, ScorerSpec
from app.records.banks import BankSpec, BankVersion
from app.records.sessions import AskedJson
from app.services.banks.imports import BankImport
from app.services.banks.origins import ASKED
from app.services.banks.service import BankService
from app.services.banks.spec import calls_out, require_usable
from app.services.calibrations.service import CalibrationService
from app.services.catalog.agents import prepare_agents
from app.services.catalog.files import (
    INSTALLED,
    FoundFiles,
    Prepared,
    Report,
    fetched_files,
    files_in_folder,
)
from app.services.catalog.joined import Joined, joined
from app.storage.unit_of_work import UnitOfWork

#: Rows that were left out and are listed.
_LISTED = 20


async def prepare(
    listed: Listed,
    guard: AddressGuard,
    report: Report,
    folder: Path | None = None,
    *,
    banks: BankService,
    calibrations: CalibrationService,
    installed: str | None = None,
) -> Prepared:
    """Get the files of an entry and join or calibrate them; nothing is written.

    Args:
        listed: The entry.
        guard: Decides which addresses may be called.
        report: Told of progress.
        folder: Where the files lie; None: fetch them.
        banks: Makes the bank.
        calibrations: Keeps a calibration.
        installed: Hash of the agents' results that the bank of that name was made of, if it was.

    Raises:
        DownloadError: A file did not come.
        InvalidInputError: A file that is not the entry's, or files that do not fit.
        CalibrationError: Answers from which nothing can be estimated.
    """
    entry = listed.entry

    def fetching(progress: Progress) -> None:
        report(
            {
                "phase": "fetching",
                "file": progress.name,
                "bytes": progress.done,
                "of_bytes": progress.total,
            }
        )

    report({"phase": "fetching"})
    if folder is None:
        files = await fetched_files(listed, guard, fetching)
    else:
        files = await files_in_folder(listed, folder)
    if isinstance(entry, AgentsEntry):
        (file,) = files.found.values()
        if file.checked_by == "nothing":
            origin = file.origin if folder is None else f"{file.name} of a folder"
            file = replace(file, checked_by="content", origin=origin)
        return await prepare_agents(entry, file, calibrations, report, installed=installed)
    report({"phase": "joining"})
    made = await joined(entry, files.found)
    spec = _spec(entry, made)
    await require_usable(spec.default_scorer)
    if calls_out(spec.default_scorer):
        raise InvalidInputError(
            f"Entry {entry.name!r} names the scorer {spec.default_scorer.name!r}, which calls an "
            "endpoint: a bank of the catalogue is scored here."
        )
    facts = _facts(entry, files, made)
    request = BankImport(
        items=made.records,
        response_model=entry.parameters.response_model,
        scale=entry.parameters.scale,
        unparsed_policy=entry.asked.unparsed,
        notes=f"Installed from the catalogue's entry {entry.name!r}.",
        knowledge={ASKED: _asked(entry), INSTALLED: facts},
    )
    return Prepared(
        spec=spec,
        knowledge=request.knowledge,
        facts=facts,
        publish=lambda uow: banks.publish(uow, spec, request),
    )


async def write(uow: UnitOfWork, prepared: Prepared) -> tuple[BankVersion, Mapping[str, Any]]:
    """Write the bank within the caller's transaction; what is there already stays as it is.

    Returns:
        The version, and what is told of the installation.

    Raises:
        ConflictError: A bank of that name that is something else.
    """
    name = prepared.spec.name
    try:
        bank = await uow.banks.find(name, for_update=True)
    except NotFoundError:
        version = await prepared.publish(uow)
        return version, _result(version, prepared.facts, was_there=False)
    latest = (await uow.versions.latest([bank.id])).get(bank.id)
    if latest is None or not _same(latest.knowledge, prepared.knowledge):
        raise ConflictError(
            f"There is a bank {name!r} already, and its latest version is not what the catalogue "
            "would install: give that bank another name, or delete it."
        )
    return latest, _result(latest, latest.knowledge[INSTALLED], was_there=True)


def _same(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether two versions were installed from the same files, joined and asked in the same way."""
    one, other = before.get(INSTALLED), now[INSTALLED]
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
    # Versions of before it was kept have none.
    return files[0] == files[1] and one.get("form", other.get("form")) == other.get("form")


def _asked(entry: Entry) -> AskedJson:
    """How the answers behind the parameters were obtained, as far as the entry says."""
    asked, scorer = entry.asked, entry.item.scorer
    known = {
        "mode": asked.mode,
        "normalise": asked.normalise,
        "shots": asked.shots,
        "scorer": None if scorer is None or asked.mode != "generate" else scorer.name,
        "source": asked.source,
    }
    return {name: value for name, value in known.items() if value is not None}


def _spec(entry: Entry, made: Joined) -> BankSpec:
    scorer = ScorerSpec(BY_KIND)
    if entry.item.scorer is not None:
        scorer = ScorerSpec(entry.item.scorer.name, dict(entry.item.scorer.params))
    return BankSpec(
        name=entry.name,
        description=entry.description,
        licence=entry.licence,
        source=entry.homepage,
        visibility=entry.visibility,
        default_scorer=scorer,
        prompt=made.prompt,
        metadata={"catalogue": entry.name},
    )


def _facts(entry: Entry, files: FoundFiles, made: Joined) -> dict[str, Any]:
    wanted = 0 if entry.few_shot is None else entry.few_shot.number
    examples: dict[str, Any] = {
        "number": len(made.example_rows),
        "wanted": wanted,
        "from": made.examples_from,
        "rows": list(made.example_rows),
    }
    if "few_shot" in files.missing:
        examples["why"] = files.missing["few_shot"]
    return {
        "entry": entry.name,
        "form": entry.form_hash,
        "files": {group: file.to_dict() for group, file in files.found.items()},
        "rows": made.n_rows,
        "split": entry.questions.split,
        "join": {
            "order": entry.join.order,
            "seed": entry.join.seed,
            "evidence": entry.join.evidence,
        },
        "few_shot": examples,
        "join_check": made.join_check,
        "left_out": list(made.left_out[:_LISTED]),
        "n_left_out": len(made.left_out),
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
