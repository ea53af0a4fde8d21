"""Log lines of workers name the request that started the work."""

import pytest
from fastapi import FastAPI
from structlog.typing import EventDict

from app.storage.database import Database
from app.worker.loop import running_worker
from tests.api.calls import listing
from tests.api.test_projects import Member, furnished
from tests.waiting import waiting

ENDS = ("session_ended", "ranking_ended", "calibration_completed")


@pytest.mark.usefixtures("fits_here")
async def test_a_workers_lines_bear_the_id_of_the_request_that_made_the_work(
    app: FastAPI, database: Database, logs: list[EventDict]
) -> None:
    member = Member(app, database, "theirs")
    made = await furnished(member)
    async with running_worker(app.state.services), waiting(240) as pause:
        while not {*ENDS} <= {line["event"] for line in logs}:
            await pause()
    async with await member.client("admin") as client:
        for kind, route, event in zip(
            ("session", "ranking", "calibration"),
            ("create_session", "create_ranking", "create_calibration"),
            ENDS,
            strict=True,
        ):
            trail = await listing(client, "/v1/audit", params={"action": route})
            requests = {entry["resources"][0]: entry["request_id"] for entry in trail}
            lines = [line for line in logs if line["event"] == event]
            assert lines
            for line in lines:
                assert requests[line[f"{kind}_id"]] == line["request_id"], line
                assert line["key_id"].startswith("key_")
    assert made["ranking_id"] in {line.get("ranking_id") for line in logs}
