"""Imports of files of any size into this machine's database, reported as the API reports them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from app.api.schemas.banks import ImportCreate, ImportRead
from app.api.schemas.response_sets import AnswerImportCreate, AnswerImportRead
from app.cli.servers.options import chosen
from app.cli.terminal.console import JsonObject
from app.cli.terminal.runtime import runtime
from app.errors import InvalidInputError
from app.exchange.item_record import ItemRecord
from app.exchange.items import read_items
from app.exchange.parameters import read_parameters
from app.exchange.results.recorded import SourceFile
from app.items import Json, ScorerSpec
from app.records.banks import PROVISIONAL, BankSpec
from app.services.banks.provisional import describe_guesses
from app.services.container import Services
from app.services.responses.confined_reading import SentFile
from app.validation import problems_of

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


def import_bundle(path: Path, name: str) -> JsonObject:
    """Create a bank, or the next version of one, from a bundle."""
    sent = SentFile(path.name, path.read_bytes())
    report = _with(lambda services: services.bundles.import_file(sent, name))
    return ImportRead.read(report).model_dump(mode="json")


def import_files(
    name: str,
    body: JsonObject,
    *,
    items: Path | None,
    parameters: Path | None,
    scorer: str | None,
) -> JsonObject:
    """Import items, parameters or both into a bank; a new bank gets the scorer."""
    wanted = checked(ImportCreate, body)
    records, bank = list[ItemRecord](), None
    if items is not None:
        with items.open("rb") as file:
            records = read_items(file, name=items.name, mapping=wanted.mapping)
    if parameters is not None:
        with parameters.open("rb") as file:
            bank = read_parameters(file, name=parameters.name)
    request = replace(wanted.to_domain(), items=records, parameters=bank)
    spec = BankSpec(name=name)
    if scorer is not None:
        spec = BankSpec(name=name, default_scorer=ScorerSpec(scorer))
    report = _with(
        lambda services: services.banks.import_bank(spec, request, dry_run=wanted.dry_run)
    )
    told: dict[str, Json] = ImportRead.read(report).model_dump(mode="json")
    made = report.version
    if made is not None and PROVISIONAL in made.knowledge and made.calibration is None:
        told["guessed"] = describe_guesses(made.knowledge)
    return told


def import_answers(name: str, files: Sequence[SourceFile], body: JsonObject) -> JsonObject:
    """Import recorded answers into a response set; create the set if there is none."""
    wanted = checked(AnswerImportCreate, body)
    request = replace(wanted.to_domain(), files=files)
    report = _with(
        lambda services: services.response_sets.import_set(name, request, dry_run=wanted.dry_run)
    )
    return AnswerImportRead.read(report).model_dump(mode="json")


def checked(kind: type[M], body: JsonObject) -> M:
    """Validate a request body as a server would; `UNREAD` stands in it for files.

    Raises:
        InvalidInputError: A field is invalid; the message names the option that sets it.
    """
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        fault = problems_of(error.errors(), kind)[0]
        end = "" if fault.detail.endswith("?") else "."
        named = chosen().word(fault.pointer)
        raise InvalidInputError(f"{named}: {fault.detail}{end}") from None


def _with(use: Callable[[Services], Awaitable[T]]) -> T:
    """Run `use` on the configured database."""

    async def run() -> T:
        async with runtime() as services:
            return await use(services)

    return asyncio.run(run())
