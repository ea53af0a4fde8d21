"""Imports on the database of this machine, of files of any size, told as the API tells them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from app.api.schemas.banks.banks import ImportRead
from app.api.schemas.response_sets import AnswerImportRead
from app.cli.terminal.console import JsonObject
from app.cli.terminal.runtime import runtime
from app.exchange.item_record import ItemRecord
from app.exchange.items import read_items
from app.exchange.mapped_items import FieldMap, read_mapped
from app.exchange.parameters import read_parameters
from app.items import Json, ScorerSpec
from app.records.banks import BankSpec
from app.records.provisional import PROVISIONAL
from app.services.banks.imports import BankImport
from app.services.banks.provisional import describe_guesses
from app.services.container import Services
from app.services.responses.confined_reading import SentFile
from app.services.responses.imports import AnswerImport

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def import_bundle(path: Path, name: str) -> JsonObject:
    """Make a bank, or the next version of one, of a bundle."""
    sent = SentFile(path.name, path.read_bytes())
    report = _with(lambda services: services.bundles.import_file(sent, name))
    return ImportRead.read(report).model_dump(mode="json")


def import_files(
    name: str,
    *,
    items: Path | None,
    mapping: FieldMap | None,
    parameters: Path | None,
    scorer: str | None,
    dry_run: bool,
    **settings: Any,
) -> JsonObject:
    """Import items, parameters or both into a bank, which is made if there is none.

    `mapping` says which field of the items' file is which, where it is no item file; the scorer is
    of a new bank, and other settings are those of `BankImport`.
    """
    records: list[ItemRecord] = []
    bank = None
    if items is not None:
        with items.open("rb") as file:
            records = (
                read_items(file, name=items.name)
                if mapping is None
                else read_mapped(file, name=items.name, mapping=mapping)
            )
    if parameters is not None:
        with parameters.open("rb") as file:
            bank = read_parameters(file, name=parameters.name)
    request = BankImport(items=records, parameters=bank, **settings)
    spec = BankSpec(name=name)
    if scorer is not None:
        spec = BankSpec(name=name, default_scorer=ScorerSpec(scorer))
    report = _with(lambda services: services.banks.import_bank(spec, request, dry_run=dry_run))
    told: dict[str, Json] = ImportRead.read(report).model_dump(mode="json")
    made = report.version
    if made is not None and PROVISIONAL in made.knowledge and made.calibration is None:
        told["guessed"] = describe_guesses(made.knowledge)
    return told


def import_answers(name: str, request: AnswerImport, *, dry_run: bool) -> JsonObject:
    """Import recorded answers into a response set, which is made if there is none."""
    report = _with(
        lambda services: services.response_sets.import_set(name, request, dry_run=dry_run)
    )
    return AnswerImportRead.of(report).model_dump(mode="json")


def _with(use: Callable[[Services], Awaitable[T]]) -> T:
    """Run `use` on the configured database."""

    async def run() -> T:
        async with runtime() as services:
            return await use(services)

    return asyncio.run(run())
