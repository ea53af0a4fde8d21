"""The checker finds manipulated data: one honest run, then one with manipulated rows."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from app.exchange.item_record import parse_item
from app.records.banks import BankSpec
from app.records.endpoints import EndpointSettings
from app.services.banks.imports import BankImport
from app.services.endpoints.specs import EndpointSpec
from app.settings import Settings
from app.storage.database import Database
from app.worker.loop import running_worker
from tests.chaos.checker import Facts, check, replayed_apart
from tests.chaos.model_server import PARAMETERS, Model, bank_items
from tests.chaos.replay import replay
from tests.databases import libpq
from tests.services.sessions import opened, spec, until

WANTED = {"sessions": 1, "rankings": 0, "calibrations": 0}


@pytest.fixture
async def model(tmp_path: Path) -> AsyncIterator[tuple[str, Path]]:
    """Return address and log of a faulty model."""
    path = tmp_path / "model.jsonl"
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    model = Model(log, seed=4, fault_rate=0.3, latency_s=0.0)
    server = await asyncio.start_server(model.serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", path
    os.close(log)


@pytest.fixture
async def honest(
    settings: Settings, database: Database, database_url: str, model: tuple[str, Path]
) -> tuple[str, Path]:
    """Return database and log after one complete session."""
    url, log = model
    records = [
        parse_item({**item, "a": PARAMETERS[item["key"]][0], "b": PARAMETERS[item["key"]][1]})
        for item in bank_items()
    ]
    endpoint = EndpointSettings(kind="openai_chat", model="s0", base_url=url)
    stopping = {"se": None, "min_items": 25, "max_items": 25}
    plan = {"stopping": stopping, "failures": {"max_consecutive": 100, "max_share": 1.0}}
    async with opened(settings, database) as services, running_worker(services):
        await services.banks.import_bank(BankSpec(name="chaos"), BankImport(items=records))
        made = await services.sessions.create(
            spec(bank="chaos", endpoint=EndpointSpec(settings=endpoint), plan=plan)
        )
        await until(services, made.id)
    return libpq(database_url), log


#: The manipulation, and a word of the fault it must cause.
TAMPERINGS: dict[LiteralString, str] = {
    "DELETE FROM administrations WHERE step = 9": "steps are",
    "UPDATE administrations SET arrival = NULL, outcome = NULL WHERE step = 9": "missing",
    "INSERT INTO administrations (session_id, step, position, arrival, outcome, score, answer_text)"
    " SELECT session_id, 26, (SELECT max(position) + 1 FROM administrations), 26, 'scored', score,"
    " answer_text FROM administrations WHERE step = 9": "was for",
    "UPDATE administrations SET outcome = 'scored', score = 0 WHERE step ="
    " (SELECT min(step) FROM administrations WHERE outcome <> 'scored')": "was no answer",
    "UPDATE administrations SET score = 1 - score WHERE step = 9": "is marked",
    "UPDATE administrations SET theta = theta + 1e-6 WHERE step = 9": "by a replay",
    "UPDATE sessions SET summary = jsonb_set(summary, '{estimate,theta}', '0.5')": "by a replay",
    "UPDATE sessions SET arrivals = arrivals + 1": "counts 26 answers of 25",
    "DELETE FROM session_events WHERE seq = 9": "events 1 to",
    "UPDATE sessions SET status = 'running'": "is running",
    "UPDATE administrations SET answer_text = 'The answer is A.' WHERE step = 9": "was no answer",
}


@pytest.mark.slow
async def test_manipulated_data_and_lost_answers_are_found(honest: tuple[str, Path]) -> None:
    url, log = honest
    with psycopg.connect(url) as connection:
        facts = Facts.read(connection, log)
        seen = {(name, row["step"]): row for name, rows in facts.rows.items() for row in rows}
        verdict = check(facts, wanted=WANTED, disturbed_model=0, seen=seen, again=replayed_apart)
        assert verdict.faults == []
        assert len(verdict.figures["replies"]) > 5
        for tampering, found in TAMPERINGS.items():
            connection.execute(tampering)
            tampered = Facts.read(connection, log)
            connection.rollback()
            faults = check(tampered, wanted=WANTED, disturbed_model=0, again=replay).faults
            assert any(found in fault for fault in faults), (tampering, faults)

        connection.execute("UPDATE administrations SET score = 1 - score WHERE step = 9")
        forged = Facts.read(connection, log)
        connection.rollback()
        changed = check(forged, wanted=WANTED, disturbed_model=0, seen=seen, again=replay)
        assert any(fault.startswith(f"{(facts.sessions[0]['id'], 9)}") for fault in changed.faults)
        twice = check(facts, wanted={**WANTED, "sessions": 2}, disturbed_model=0, again=replay)
        assert "2 sessions were asked for and 1 are there" in twice.faults

        lines = log.read_text().splitlines()
        good = next(line for line in lines if '"good"' in line)
        number = good.partition('"reply": "')[2].partition('"')[0]
        call = next(line for line in lines if f'"call": "{number}"' in line)
        with log.open("a") as file:
            for again in (f"{number}-again", f"{number}-more"):
                file.write("\n".join([call, good, ""]).replace(number, again))
        facts = Facts.read(connection, log)
    faults = check(facts, wanted=WANTED, disturbed_model=0, again=replay).faults
    assert [fault.partition(": ")[2].partition(",")[0] for fault in faults] == [
        "2 answers were not taken"
    ]
    assert check(facts, wanted=WANTED, disturbed_model=2, again=replay).faults == []
