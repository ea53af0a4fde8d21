"""Items in pretest in live sessions: over HTTP, several at a time, through lost workers."""

from collections.abc import Iterator

import pytest

from app.demo.model_server import create_model_server
from app.services.container import Services
from app.settings import Settings
from app.worker.loop import running_worker
from tests.servers import serving
from tests.services.living import BANK, living_bank
from tests.services.sessions import scripted, spec, until
from tests.worker.test_live_sessions import asked, model_at
from tests.worker.test_recovery import epoch_above, worker_process

PLAN = {
    "stopping": {"se": None, "min_items": 30, "max_items": 30},
    "pretest": {"items_per_session": 8},
    "concurrency": 3,
}


@pytest.fixture
def demo_url() -> Iterator[str]:
    with serving(create_model_server(theta=0.6, seed=4)) as url:
        yield f"{url}/v1"


async def test_a_live_model_answers_items_that_have_no_parameters(
    working: Services, demo_url: str
) -> None:
    await living_bank(working)

    created = await working.sessions.create(spec(bank=BANK, plan=PLAN, endpoint=model_at(demo_url)))
    ended = await until(working, created.id)

    rows = await working.sessions.responses(created.id)
    events = await working.sessions.events(created.id)
    assert ended.status == "completed", ended.failure
    assert ended.summary["outcomes"]["scored"] == 30
    assert ended.summary["pretest"]["outcomes"]["scored"] == 8
    assert ended.summary["usage"]["calls"] == 38
    assert len({row.item_key for row in rows}) == 38
    assert {row.closing.score for row in rows if row.is_pretest} <= {0.0, 1.0}  # type: ignore[union-attr]  # all are closed
    received = [event for event in events if event.type == "response.received"]
    assert sum(event.data["pretest"] for event in received) == 8


@pytest.mark.slow
async def test_items_in_pretest_outlive_killed_workers(
    services: Services, settings: Settings
) -> None:
    await living_bank(services)
    plan = {**PLAN, "concurrency": 1}
    slow = scripted(theta=0.6, seed=4, latency_ms=60)
    created = await services.sessions.create(spec(bank=BANK, plan=plan, endpoint=slow))
    epoch = 0
    for _ in range(2):
        with worker_process(settings):
            epoch = (await epoch_above(services, created.id, epoch)).lease_epoch
            await until(services, created.id, "running")
    async with running_worker(services):
        ended = await until(services, created.id)
        # The other session draws other items in pretest: those of the first are no longer rarest.
        quick = scripted(theta=0.6, seed=4)
        other = await services.sessions.create(spec(bank=BANK, plan=plan, endpoint=quick))
        straight = await until(services, other.id)

    rows = await services.sessions.responses(ended.id)
    steps = [row.step for row in rows]
    assert ended.status == "completed", ended.failure
    assert ended.lease_epoch >= 3
    assert steps == list(range(1, 39))
    assert [row.position for row in rows if row.is_pretest] == ended.design["pretest"]["positions"]
    seeded = {row.item_key for row in rows if row.is_pretest}
    of_test = [pair for pair in await asked(services, ended) if pair[0] not in seeded]
    others = await services.sessions.responses(straight.id)
    assert not seeded & {row.item_key for row in others if row.is_pretest}
    assert of_test == [(row.item_key, "scored") for row in others if not row.is_pretest]
    assert ended.summary["estimate"] == straight.summary["estimate"]
