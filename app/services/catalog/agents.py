"""Turn the results of an agent benchmark into a response set, a calibration and a bank."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, BinaryIO

import numpy as np

from app.calibration.pipeline.fit import decided, prepared
from app.calibration.pipeline.plan import CalibrationPlan
from app.engine.responses import ResponseTable
from app.errors import ConflictError, InvalidInputError
from app.exchange.catalog.agents import read_agents
from app.exchange.catalog.entry import AgentsEntry, Responses
from app.exchange.response_files import ResponseFormat
from app.exchange.results.recorded import FIRST_TRIAL, Choices, TrialTable
from app.records.banks import BankVersion
from app.sandbox.pool import Limits, sandbox
from app.services.banks.origins import REFERENCE_AGENTS
from app.services.banks.spec import new_bank
from app.services.calibrations.process import fit_in_process
from app.services.calibrations.publication import Publication, output_of
from app.services.calibrations.service import CalibrationService
from app.services.catalog.files import INSTALLED, FoundFile, Prepared, Report, spec_of
from app.services.responses.imports import Draft
from app.services.responses.service import import_draft, new_set
from app.storage.unit_of_work import UnitOfWork

#: The default plan of calibrations.
_PLAN = CalibrationPlan(report_card=True)
_LIMITS = Limits(memory=1024 * 2**20, seconds=120.0, output=512 * 2**20)


async def prepare_agents(
    entry: AgentsEntry,
    file: FoundFile,
    calibrations: CalibrationService,
    report: Report,
    *,
    installed: str | None,
) -> Prepared:
    """Read and calibrate the results of agents; nothing is written.

    `installed` is the hash of the results behind the bank of that name, if one is installed.

    Raises:
        InvalidInputError: The file is not the entry's, or lacks an answer.
        CalibrationError: Nothing can be estimated from the answers.
    """
    try:
        agents, table = await _read(entry, file)
    except InvalidInputError:
        file.forget()
        raise
    facts = {
        "entry": entry.name,
        "files": {"responses": file.to_dict()},
        "rows": table.n_items,
        "agents": table.n_examinees,
        "licence": entry.licence,
    }
    spec = spec_of(entry)
    if installed == file.sha256:
        return Prepared(spec=spec, facts=facts, publish=_gone)
    report({"phase": "calibrating"})
    started = time.monotonic()
    filtered = await asyncio.to_thread(prepared, table, _PLAN)
    plan = await asyncio.to_thread(decided, filtered.matrix, _PLAN)

    async def tell(progress: Mapping[str, Any]) -> None:
        report({"phase": "testing" if progress["phase"] == "testing" else "calibrating"})

    fitted = await fit_in_process(filtered.matrix, plan, tell)
    seconds = time.monotonic() - started
    knowledge = {**fitted.knowledge, INSTALLED: facts, REFERENCE_AGENTS: agents}
    fitted = fitted._replace(knowledge=knowledge)

    async def publish(uow: UnitOfWork) -> BankVersion:
        bank = new_bank(spec)
        await uow.banks.add(bank)
        made = new_set(entry.name, description=f"{file.origin}, sha256 {file.sha256}")
        await uow.response_sets.add(made)
        draft = await asyncio.to_thread(_draft, table, file.name)
        held = await uow.response_sets.find(made.id, for_update=True)
        source = (await import_draft(uow, held, draft)).response_set
        return await calibrations.publish_done(
            uow,
            _PLAN,
            output_of(source, filtered, fitted, seconds),
            Publication(
                bank=bank.id, notes=f"Installed from the catalogue's entry {entry.name!r}."
            ),
        )

    return Prepared(spec=spec, facts=facts, publish=publish)


def _draft(table: ResponseTable, name: str) -> Draft:
    draft = Draft(Choices(), rows_read=table.n_answers)
    draft.add_table(TrialTable(FIRST_TRIAL, table), name)
    draft.note_file(name, ResponseFormat.PY_IRT, table.n_answers)
    return draft


async def _gone(_: UnitOfWork) -> BankVersion:
    raise ConflictError("The bank was removed while it was looked at: install it again.")


async def _read(
    entry: AgentsEntry, file: FoundFile
) -> tuple[Sequence[Mapping[str, Any]], ResponseTable]:
    """The agents of a file and their results; the file is read in a child process."""
    argument = {"name": file.name, "expected": entry.responses.model_dump(mode="json")}
    async with sandbox().made(
        read_confined,
        argument,
        [file.content],
        limits=_LIMITS,
        subject=f"The catalogue's {entry.name}",
        advice="the file is not what the entry says",
    ) as (value, written):
        content = await asyncio.to_thread(written.read)
    names, tasks = tuple(agent["name"] for agent in value["agents"]), tuple(value["tasks"])
    scores = np.frombuffer(content, np.int8).reshape(len(names), len(tasks)).astype(np.float64)
    return value["agents"], ResponseTable(names, tasks, scores)


def read_confined(argument: Any, attachments: Sequence[bytes], output: BinaryIO) -> Any:
    """Read results in the child process: write one byte per answer, and return the rest."""
    expected = Responses.model_validate(argument["expected"], strict=False)
    solved = read_agents(attachments[0], argument["name"], expected)
    output.write(solved.scores.tobytes())
    return {"agents": [asdict(agent) for agent in solved.agents], "tasks": solved.tasks}
