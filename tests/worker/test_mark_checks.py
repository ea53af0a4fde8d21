"""Stored answers marked again as provenance says: falsified ones are found, and nothing else."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text

from app.demo.model_server import create_model_server
from app.items import ScorerSpec
from app.records.sessions import SessionRecord
from app.services.container import Services
from app.services.sessions.manual import ManualAnswer
from app.storage.database import Database
from app.storage.scoping import of_opened
from tests.servers import serving
from tests.services.judged import judged_bank, marker
from tests.services.sessions import scripted, spec, until

PLAN = {"stopping": {"se": None, "min_items": 1, "max_items": 6}, "concurrency": 3}
IT_IS = ScorerSpec("pattern", {"pattern": "It is"})
MORE = {"stopping": {"se": None, "max_items": 8}}


@pytest.fixture
def model_url() -> Iterator[str]:
    with serving(create_model_server(theta=0, seed=1)) as url:
        yield f"{url}/v1"


async def measured(services: Services, bank: str = "judged") -> SessionRecord:
    given = {"endpoint": scripted(theta=-3.0, seed=5), "plan": PLAN}
    return await until(services, (await services.sessions.create(spec(bank=bank, **given))).id)


async def write(database: Database, statement: str, session: SessionRecord) -> None:
    async with database.unit_of_work() as uow:
        own = text(statement).execution_options(**of_opened("the session"))
        await uow.sessions._db.execute(own, {"id": session.id})


async def test_falsified_answers_are_found_wherever_they_were_taken_over(
    working: Services, database: Database
) -> None:
    await judged_bank(working, "includes")
    sessions = working.derived_sessions
    old = await measured(working)
    rescored = await until(working, (await sessions.rescore(old.id, IT_IS, {})).id)
    again = await sessions.replay(rescored.id, {}, bank_version_id=None, metadata={})
    extended = await until(working, (await sessions.extend(again.id, MORE, {})).id)
    assert extended.summary["progress"]["items"] == 8
    bank = (await working.banks.get_bank("judged")).bank
    await working.banks.update_bank(bank.id, bank.revision, {"default_scorer": ScorerSpec("exact")})
    by_hand = await working.sessions.create(
        spec(bank="judged", mode="manual", endpoint=None, plan={"stopping": {"max_items": 2}})
    )
    given: dict[str, Any]
    for given in ({"score": 1.0}, {"response": ""}):
        awaited = await working.manual_sessions.next_item(by_hand.id)
        answer = ManualAnswer(step_token=awaited.step_token, **given)
        await working.manual_sessions.answer(by_hand.id, answer)

    async def differing() -> dict[str, int]:
        sessions = (old, rescored, again, extended, by_hand)
        found = [await working.mark_checks.of(each.id) for each in sessions]
        assert sum(check.checked for check in found) == 27
        assert sum(check.left_out["no_answer"] for check in found) == 1
        return {check.session.id: len(check.differences) for check in found if check.differences}

    assert await differing() == {}
    # An answer of before the hash was kept, and one marked by another scorer to the same score.
    await write(
        database,
        "UPDATE administrations SET score = 1, scorer_hash = NULL WHERE session_id = :id "
        "AND step = (SELECT min(step) FROM administrations WHERE session_id = :id AND score = 0)",
        old,
    )
    assert await differing() == {old.id: 1}
    await write(
        database,
        "UPDATE administrations SET scorer_hash = 'other' WHERE session_id = :id AND step <= 2",
        again,
    )
    assert await differing() == {old.id: 1, again.id: 2}


async def test_who_calls_out_is_asked_again_on_request_only(
    working: Services, model_url: str, database: Database
) -> None:
    await marker(working, model_url)
    await judged_bank(working, "judge", judges=["judge"])
    record = await measured(working)

    plain = await working.mark_checks.of(record.id)
    asked = await working.mark_checks.of(record.id, call=True)

    assert (plain.checked, dict(plain.left_out), plain.differences) == (0, {"calls_out": 6}, [])
    assert (asked.checked, asked.differences) == (6, [])
    await write(
        database,
        "UPDATE administrations SET scorer_hash = 'of another' WHERE session_id = :id AND step = 1",
        record,
    )
    found = await working.mark_checks.of(record.id)
    assert [(difference.step, difference.again) for difference in found.differences] == [(1, None)]
