"""Fair queueing: many requests of one key do not delay those of others."""

import asyncio

import pytest

from app.acting import Acting, acting_for
from app.errors import BusyError
from app.fair_semaphore import FairSemaphore


class Line:
    """Work of several keys in one lane; each piece runs until it is told to end."""

    def __init__(self, lane: FairSemaphore) -> None:
        self.lane = lane
        self.begun: list[str] = []
        self.refused: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def _work(self, name: str) -> None:
        try:
            async with self.lane.turn():
                self.begun.append(name)
                await self._ends[name].wait()
        except BusyError:
            self.refused.append(name)

    async def asked(self, *names: str) -> None:
        """Submit pieces `project/key/...`."""
        for name in names:
            project, key, _ = name.split("/")
            self._ends[name] = asyncio.Event()
            with acting_for(Acting(project, key)):
                self._tasks[name] = asyncio.create_task(self._work(name))
            await self.settled()

    async def ends(self, name: str) -> None:
        """End a piece and wait until the next one has begun."""
        self._ends[name].set()
        await self._tasks[name]
        await self.settled()

    async def leaves(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.gather(self._tasks[name], return_exceptions=True)
        await self.settled()

    @staticmethod
    async def settled() -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_keys_of_one_project_leave_a_place_for_another() -> None:
    line = Line(FairSemaphore(1, spare=2))
    await line.asked("a/one/0", "a/two/0", "a/three/0", "b/one/0")
    assert line.begun == ["a/one/0", "a/two/0", "b/one/0"]
    for name in (*line.begun, "a/three/0"):
        await line.ends(name)


async def test_projects_take_turns_and_their_keys() -> None:
    line = Line(FairSemaphore(1))
    await line.asked(*(f"a/one/{n}" for n in range(4)), "a/two/0", "a/two/1", "b/one/0", "b/one/1")
    while len(line.begun) < 8:
        await line.ends(line.begun[-1])
    assert line.begun == [
        "a/one/0",
        "a/one/1",  # came first
        "b/one/0",
        "a/two/0",
        "b/one/1",
        "a/one/2",
        "a/two/1",
        "a/one/3",
    ]
    await line.ends("a/one/3")
    assert not line.lane.n_waiting


async def test_a_spare_slot_is_for_keys_without_running_work() -> None:
    line = Line(FairSemaphore(2, spare=1))
    await line.asked("a/one/0", "a/one/1", "a/one/2")
    assert line.begun == ["a/one/0", "a/one/1"]
    await line.asked("b/one/0", "b/one/1", "c/one/0")
    assert line.begun[2:] == ["b/one/0"]
    await line.ends("a/one/0")
    assert line.begun[3:] == ["c/one/0"]  # two run, and the third slot goes to the new key
    await line.ends("c/one/0")
    await line.ends("a/one/1")
    assert len(line.begun) == 5
    await line.ends("b/one/0")
    assert sorted(line.begun[4:]) == ["a/one/2", "b/one/1"]


async def test_in_a_full_queue_the_key_with_the_most_work_loses_its_last() -> None:
    line = Line(FairSemaphore(1, waiting=4))
    await line.asked(*(f"a/one/{n}" for n in range(6)))
    assert line.refused == ["a/one/5"]
    await line.asked("b/one/0")
    assert line.refused == ["a/one/5", "a/one/4"]
    await line.asked("b/one/1")
    assert line.refused == ["a/one/5", "a/one/4", "a/one/3"]
    await line.asked("b/one/2", "a/one/6")  # two of each: no key has more than another
    assert line.refused[3:] == ["b/one/2", "a/one/6"]
    await line.leaves("b/one/0")
    await line.asked("c/one/0")
    await line.ends("a/one/0")
    assert line.lane.n_waiting == 3
    assert line.begun == ["a/one/0", "a/one/1"]


@pytest.mark.parametrize("name", ["a/one/0", "a/one/1", "a/one/2"])
async def test_a_cancelled_request_frees_exactly_one_slot(name: str) -> None:
    line = Line(FairSemaphore(1))
    await line.asked("a/one/0", "a/one/1", "a/one/2")
    await line.leaves(name)
    others = [one for one in ("a/one/0", "a/one/1", "a/one/2") if one != name]
    assert [one for one in line.begun if one != name] == others[:1]
    await line.ends(others[0])
    assert line.begun[-1] == others[1]
