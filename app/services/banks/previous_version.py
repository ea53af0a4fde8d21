"""What an import finds in a bank that is there: how it asks, and what its versions know."""

import asyncio
from dataclasses import replace

from app.adapters.prompting import PromptStyle
from app.engine.bank import ItemBank
from app.engine.lint import OF_ANSWERS, Finding
from app.errors import ConflictError, InvalidInputError
from app.records.banks import Bank
from app.services.banks.imports import BankImport, parameters_of
from app.services.banks.loaded import LoadedVersion
from app.services.banks.spec import BankSpec
from app.storage.unit_of_work import UnitOfWork


async def asking_as(uow: UnitOfWork, bank: Bank, spec: BankSpec) -> Bank:
    """The bank, once it asks as `spec` says.

    Raises:
        ConflictError: It has questions, and asks them otherwise.
    """
    new, old = PromptStyle.from_dict(spec.prompt), PromptStyle.from_dict(bank.prompt)
    if new == old and bank.default_scorer == spec.default_scorer:
        return bank
    if any(item.has_content for item in await uow.items.outlines(bank.id)):
        what = "puts its questions otherwise" if new != old else "scores by another scorer"
        raise ConflictError(
            f"There is a bank {bank.name!r} already, and it {what}: give the new one another name."
        )
    changes = {"prompt": dict(spec.prompt), "default_scorer": spec.default_scorer}
    return await uow.banks.update(bank.id, bank.revision, changes)


async def from_version(uow: UnitOfWork, bank: Bank, request: BankImport) -> BankImport:
    """The import with all that a version of the bank has instead of new parameters."""
    version = await uow.versions.find(bank, request.from_version)
    if parameters_of(request) is not None or request.scale or request.response_model:
        raise InvalidInputError(
            f"Version {version.number} brings its parameters, scale and response model along: give "
            "from_version, or others, not both."
        )
    columns = await uow.versions.columns(version.id)
    flags = await uow.versions.flags(version.id)
    loaded = await asyncio.to_thread(LoadedVersion.of, bank, version, columns)
    return replace(
        request,
        parameters=loaded.bank,
        scale=version.scale,
        response_model=version.response_model,
        provisional=request.provisional or version.provisional,
        allow={*request.allow, *version.lint["allow"]},
        keep={*request.keep, *version.lint["keep"]},
        # What parameters and texts show is found again; what answers have shown is carried on.
        findings=[
            Finding(item_id=key, **flag) for key, flag in flags if flag["code"] in OF_ANSWERS
        ],
        calibration=version.calibration,
        knowledge=version.knowledge,
    )


async def with_texts(
    uow: UnitOfWork, bank: Bank, request: BankImport
) -> tuple[BankImport, ItemBank | None]:
    """The import with the parameters of the bank's latest version, if it has one."""
    if await uow.versions.newest(bank.id) is None:
        return request, None
    latest = await from_version(uow, bank, replace(request, from_version="latest"))
    return latest, latest.parameters
