"""From an entry of the catalogue to a bank with a version: everything, or nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.adapters.downloads import Progress
from app.adapters.guard import AddressGuard
from app.errors import ConflictError, InvalidInputError, NotFoundError
from app.exchange.catalog.entry import Entry, Listed
from app.items import BY_KIND, ScorerSpec
from app.records.banks import BankVersion
from app.services.banks.imports import BankImport
from app.services.banks.scorer_checks import require_usable
from app.services.banks.service import BankService
from app.services.banks.spec import BankSpec, calls_out
from app.services.catalog.files import FoundFiles, fetched_files, files_in_folder
from app.services.catalog.joined import Joined, joined
from app.storage.unit_of_work import UnitOfWork

#: Parts of what a version knows: how its answers were got, and where it was installed from.
ASKED, INSTALLED = "asked", "installed"
#: Rows that were left out and are listed.
_LISTED = 20

#: Told of each phase: `fetching`, `joining`, `writing`, with what is known of it.
Report = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A bank that is ready to be written.

    Attributes:
        spec: Of the bank.
        request: Its items and parameters.
        facts: What the result says beside them.
    """

    spec: BankSpec
    request: BankImport
    facts: Mapping[str, Any]


async def prepare(
    listed: Listed, guard: AddressGuard, report: Report, folder: Path | None = None
) -> Prepared:
    """Get the files of an entry and join them; nothing is written.

    Args:
        listed: The entry.
        guard: Decides which addresses may be called.
        report: Told of progress.
        folder: Where the files lie; None: fetch them.

    Raises:
        DownloadError: A file did not come.
        InvalidInputError: A file that is not the entry's, or files that do not fit.
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
    report({"phase": "joining"})
    made = await joined(entry, files.found, own=folder is not None)
    spec = _spec(entry, made)
    await require_usable(spec.default_scorer)
    if calls_out(spec.default_scorer):
        raise InvalidInputError(
            f"Entry {entry.name!r} names the scorer {spec.default_scorer.name!r}, which calls an "
            "endpoint: a bank of the catalogue is marked here."
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
    return Prepared(spec=spec, request=request, facts=facts)


async def write(
    uow: UnitOfWork, banks: BankService, prepared: Prepared
) -> tuple[BankVersion, Mapping[str, Any]]:
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
        version = await banks.publish(uow, prepared.spec, prepared.request)
        return version, _result(version, prepared.facts, was_there=False)
    latest = (await uow.versions.latest([bank.id])).get(bank.id)
    if latest is None or not _same(latest.knowledge, prepared.request.knowledge):
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
            if group in ("questions", "parameters")
        }
        for facts in (one, other)
    ]
    # Versions of before it was kept have none.
    return files[0] == files[1] and one.get("form", other["form"]) == other["form"]


def _asked(entry: Entry) -> dict[str, Any]:
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
        "items": dict(version.lint["items"]),
        "findings": dict(version.lint["findings"]),
        "was_there": was_there,
    }
