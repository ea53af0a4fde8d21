"""Fair queueing: many sessions of one key do not delay those of another key."""

import asyncio
from collections import Counter

from app.fair_semaphore import Owner
from app.worker.queue import Turns


class Work:
    """Runs until it is told to end."""

    def __init__(self, alone: int) -> None:
        self.ends: dict[str, asyncio.Event] = {}
        self.jobs: list[asyncio.Task[None]] = []
        self.turns = Turns(alone, run=self._run, owner_of=self._owner_of)

    async def _owner_of(self, resource_id: str) -> Owner:
        project, key, _ = resource_id.split()
        return Owner(project, key)

    async def _run(self, resource_id: str) -> None:
        self.ends[resource_id] = asyncio.Event()
        await self.ends[resource_id].wait()
        del self.ends[resource_id]

    async def asked(self, owner: str, count: int) -> None:
        self.jobs += [asyncio.create_task(self.turns.run(f"{owner} {n}")) for n in range(count)]
        await self.settled()

    async def settled(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    @property
    def running(self) -> Counter[str]:
        return Counter(name.rpartition(" ")[0] for name in self.ends)


async def test_one_key_runs_up_to_its_limit_and_others_start_at_once() -> None:
    work = Work(128)
    await work.asked("a one", 10_000)
    assert work.running == {"a one": 128}
    assert sum(not job.done() for job in work.jobs) == 128  # the rest is not in the queue
    assert work.turns.waiting == [f"a one {n}" for n in range(128, 10_000)]
    for owner in ("a two", "b one", "c one", "d one", "b two"):
        await work.asked(owner, 1)
        assert work.running[owner] == 1
    assert work.running.total() <= work.turns.places


async def test_a_freed_slot_goes_to_the_key_with_the_least_work() -> None:
    work = Work(2)  # four slots
    await work.asked("a one", 5)
    await work.asked("b one", 3)
    before = work.running
    assert before["a one"] == 2
    assert before["b one"] >= 1
    ended = 0
    while work.ends:
        next(iter(work.ends.values())).set()
        ended += 1
        await work.settled()
        assert work.running.total() <= work.turns.places
    assert ended == 8
    await asyncio.gather(*work.jobs)
