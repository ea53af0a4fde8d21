"""Pretest items in live sessions: over HTTP, several in flight, across lost workers."""

import pytest

from app.services.container import Services
from app.settings import Settings
from app.worker.loop import running_worker
from tests.services.living import BANK, living_bank
from tests.services.sessions import scripted, spec, until
from tests.worker.test_live_sessions import asked
from tests.worker.test_recovery import epoch_above, worker_process

PLAN = {
    "stopping": {"se": None, "min_items": 30, "max_items": 30},
    "pretest": {"items_per_session": 8},
    "concurrency": 3,
}


@pytest.mark.slow
async def test_pretest_items_survive_killed_workers(services: Services, settings: Settings) -> None:
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
        # The other session draws other pretest items, as those of the first are no longer rarest.
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
