"""An endpoint that sends megabytes of garbage: the worker keeps the leases of all sessions."""

import pytest

from app.records.endpoints import EndpointSettings
from app.services.container import Services
from app.services.endpoints.specs import EndpointSpec
from tests.adapters.test_large_replies import FEW_ENOUGH, LISTS, LONGEST_S, full, longest_pause
from tests.servers.fault_server import FaultServer
from tests.services.sessions import spec, until

ANSWER = '{"choices":[{"finish_reason":"stop","message":{"content":"'


@pytest.mark.parametrize(
    "body",
    [
        full(ANSWER, "<think></think>", '"}}]}', 2 * 2**20),
        LISTS,
        full(ANSWER + 'A"}}],"more":[', "[],", "[]]}", FEW_ENOUGH),
    ],
    ids=["thoughts", "lists", "fewer lists"],
)
async def test_sessions_of_a_hostile_endpoint_ask_each_question_once_and_keep_their_leases(
    body: bytes, working: Services, faults: FaultServer, faults_url: str
) -> None:
    address = faults_url + faults.canned("hostile", body)
    endpoint = EndpointSpec(
        settings=EndpointSettings(kind="openai_chat", model="m", base_url=address)
    )
    plan = {"stopping": {"se": None, "min_items": 1, "max_items": 2}}

    async def session() -> tuple[str, int, int]:
        made = await working.sessions.create(spec(endpoint=endpoint, plan=plan))
        ended = await until(working, made.id)
        return ended.status, ended.lapses, len(await working.sessions.responses(made.id))

    paused_s, ended = await longest_pause([session() for _ in range(2)])

    assert {status for status, *_ in ended} <= {"completed", "failed"}
    assert all(lapses == 0 for _, lapses, _ in ended)
    assert len(faults.calls) == sum(asked for *_, asked in ended)
    assert paused_s < LONGEST_S
