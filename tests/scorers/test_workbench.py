import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from app.errors import BusyError
from app.items import Answer, ItemContent, Outcome, ScorerSpec
from app.scorers import NotScored, Scored, aclose, build, mark
from app.scorers.turns import workbench
from app.scorers.workbench import Failed, Workbench, _Process

HANGING: dict[str, Any] = {
    "pattern": r"^(a+)+$",
    "ignore_case": False,
    "group": 0,
    "texts": ["a" * 40 + "!"],
}
QUICK: dict[str, Any] = {"pattern": "b", "ignore_case": False, "group": 0, "texts": ["abc"]}


@pytest.fixture
def bench() -> Iterator[Workbench]:
    bench = Workbench(size=1)
    yield bench
    bench.close()


def _exists(pid: int) -> bool:
    """Whether the process is there, be it as a zombie."""
    return Path(f"/proc/{pid}").exists()


async def test_no_process_runs_before_there_is_work(bench: Workbench) -> None:
    assert bench.pids == ()


async def test_one_process_does_job_after_job(bench: Workbench) -> None:
    assert await bench.run("search", timeout_s=5, **QUICK) == {"found": ["b"]}
    pids = bench.pids
    assert await bench.run("search", timeout_s=5, **QUICK) == {"found": ["b"]}
    assert bench.pids == pids


async def test_a_hung_process_is_killed_collected_and_replaced(bench: Workbench) -> None:
    await bench.run("search", timeout_s=5, **QUICK)
    (hung,) = bench.pids
    result = await bench.run("search", timeout_s=0.2, **HANGING)
    assert result == Failed("no result within 0.2 s")
    assert not _exists(hung)
    assert await bench.run("search", timeout_s=5, **QUICK) == {"found": ["b"]}
    assert bench.pids != (hung,)


async def test_a_process_that_dies_idle_is_replaced(bench: Workbench) -> None:
    await bench.run("search", timeout_s=5, **QUICK)
    (dead,) = bench.pids
    os.kill(dead, signal.SIGKILL)
    assert await bench.run("search", timeout_s=5, **QUICK) == {"found": ["b"]}
    assert dead not in bench.pids


async def test_a_job_given_up_as_its_reply_arrives_leaves_no_dead_process(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_reply, is_dropped = Event(), Event()
    receive = _Process.receive

    def received(self: _Process, timeout_s: float) -> dict[str, Any] | None:
        reply = receive(self, timeout_s)
        if reply is not None and "found" in reply and not is_dropped.is_set():
            has_reply.set()
            is_dropped.wait(30)
        return reply

    monkeypatch.setattr(_Process, "receive", received)
    job = asyncio.create_task(bench.run("search", timeout_s=5, **QUICK))
    assert await asyncio.to_thread(has_reply.wait, 30)
    (given_up,) = bench.pids
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)
    is_dropped.set()
    assert await bench.run("search", timeout_s=5, **QUICK) == {"found": ["b"]}
    assert given_up not in bench.pids
    assert not _exists(given_up)


async def test_the_event_loop_goes_on_while_a_job_hangs(bench: Workbench) -> None:
    await bench.run("search", timeout_s=5, **QUICK)
    job = asyncio.create_task(bench.run("search", timeout_s=0.5, **HANGING))
    turns = 0
    while not job.done():
        await asyncio.sleep(0)
        turns += 1
    assert isinstance(job.result(), Failed)
    assert turns > 100


async def test_work_beyond_the_processes_waits_its_turn(bench: Workbench) -> None:
    jobs = [bench.run("search", timeout_s=5, **QUICK) for _ in range(20)]
    assert await asyncio.gather(*jobs) == [{"found": ["b"]}] * 20
    assert len(bench.pids) == 1


async def test_a_fault_of_a_library_is_a_failure_and_keeps_the_process(bench: Workbench) -> None:
    result = await bench.run("search", timeout_s=5, **{**QUICK, "pattern": "("})
    assert isinstance(result, Failed)
    assert "unterminated" in result.reason
    assert len(bench.pids) == 1


async def test_closing_ends_even_a_hung_process(bench: Workbench) -> None:
    await bench.run("search", timeout_s=5, **QUICK)
    (pid,) = bench.pids
    job = asyncio.create_task(bench.run("search", timeout_s=60, **HANGING))
    await asyncio.sleep(0)
    await asyncio.to_thread(bench.close)
    assert isinstance(await job, Failed)
    assert not _exists(pid)


async def test_a_closed_workbench_says_so(bench: Workbench) -> None:
    await bench.run("search", timeout_s=5, **QUICK)
    job = asyncio.create_task(bench.run("search", timeout_s=60, **HANGING))
    waiting = asyncio.create_task(bench.run("search", timeout_s=60, **QUICK))
    await asyncio.sleep(0)
    await asyncio.to_thread(bench.close)
    assert isinstance(await job, Failed)
    assert await waiting == Failed("the workbench is closed", is_lost=True)
    assert await bench.run("search", timeout_s=5, **QUICK) == Failed(
        "the workbench is closed", is_lost=True
    )


async def test_scorers_work_again_after_aclose() -> None:
    scorer = build(ScorerSpec("pattern", {"pattern": "b"}))
    await mark(scorer, ItemContent(prompt="?"), Answer(text="abc"))
    pids = workbench().pids
    assert pids
    await aclose()
    assert not any(_exists(pid) for pid in pids)
    result = await mark(scorer, ItemContent(prompt="?"), Answer(text="abc"))
    assert isinstance(result, Scored)


def test_scorers_work_off_the_main_thread_and_on_any_loop() -> None:
    item = ItemContent(prompt="?", target=(r"2\sqrt{3}",))
    results = []

    def work() -> None:
        answer = Answer(text=r"\boxed{\sqrt{12}}")
        results.append(asyncio.run(mark(build(ScorerSpec("numeric")), item, answer)))

    threads = [Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [r.score for r in results if isinstance(r, Scored)] == [1.0] * 2


async def test_a_hung_formula_does_not_hold_up_other_answers() -> None:
    scorer = build(ScorerSpec("numeric", {"timeout_s": 2.0}))
    item = ItemContent(prompt="?", target=("25",))
    texts = ["The answer is 9**9**9**9", "25", "The answer is 5*5"]
    marks = await asyncio.gather(*(mark(scorer, item, Answer(text=t)) for t in texts))
    assert isinstance(marks[0], NotScored)
    assert marks[0].outcome is Outcome.UNPARSED
    assert [m.score for m in marks[1:] if isinstance(m, Scored)] == [1.0, 1.0]


SCRIPT = """
import asyncio, os, sys
from app.items import Answer, ItemContent, ScorerSpec
from app.scorers import build, mark
from app.scorers.turns import workbench

async def main():
    scorer = build(ScorerSpec("pattern", {"pattern": "b", "timeout_s": 60}))
    await mark(scorer, ItemContent(prompt="?"), Answer(text="abc"))
    print(*workbench().pids, flush=True)
    if sys.argv[1] == "hang":
        hanging = build(ScorerSpec("pattern", {"pattern": "^(a+)+$", "timeout_s": 1}))
        answer = Answer(text="a" * 40 + "!")
        task = asyncio.create_task(mark(hanging, ItemContent(prompt="?"), answer))
        while not workbench()._busy:
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), 9)

asyncio.run(main())
"""


@pytest.mark.parametrize("way", ["end", "hang"])
def test_no_process_outlives_its_parent(way: str) -> None:
    """Neither after a normal end without `aclose`, nor after SIGKILL in the middle of a job."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, way], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == (0 if way == "end" else -signal.SIGKILL), done.stderr
    pid = int(done.stdout)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and _is_running(pid):
        time.sleep(0.05)
    assert not _is_running(pid)


def _is_running(pid: int) -> bool:
    """Whether the process runs; an orphan's zombie is left to the system's first process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def test_owners_take_turns(bench: Workbench) -> None:
    await bench.run("search", timeout_s=5, **QUICK)
    held = asyncio.create_task(bench.run("search", timeout_s=0.4, owner="a", **HANGING))
    ended: list[str] = []

    async def job(owner: str) -> None:
        await bench.run("search", timeout_s=5, owner=owner, **QUICK)
        ended.append(owner)

    await asyncio.sleep(0)
    await asyncio.gather(held, *(job(owner) for owner in ("a", "a", "a", "b")))
    assert ended.index("b") < 2


async def test_slow_work_of_others_does_not_hold_up_quick_work(bench: Workbench) -> None:
    """Of more jobs that never end than there are places: another owner's is done before any."""
    slow = [
        asyncio.create_task(bench.run("search", timeout_s=60, owner=f"slow {i}", **HANGING))
        for i in range(3)
    ]
    await asyncio.sleep(0)
    for _ in range(3):
        assert await bench.run("search", timeout_s=5, owner="b", **QUICK) == {"found": ["b"]}
    assert not any(job.done() for job in slow)
    for job in slow:
        job.cancel()
    await asyncio.gather(*slow, return_exceptions=True)


async def test_cancelled_work_ends(bench: Workbench) -> None:
    await bench.run("search", timeout_s=5, **QUICK)
    (pid,) = bench.pids
    job = asyncio.create_task(bench.run("search", timeout_s=60, **HANGING))
    async with asyncio.timeout(10):
        while not bench._busy:  # noqa: ASYNC110  a thread fills it, without an event
            await asyncio.sleep(0.01)
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)
    assert await bench.run("search", timeout_s=5, **QUICK) == {"found": ["b"]}
    assert not _exists(pid)


async def test_a_full_queue_says_so() -> None:
    bench = Workbench(size=1, slow=0, waiting=1)
    try:
        jobs = [asyncio.create_task(bench.run("search", timeout_s=60, **HANGING)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await bench.run("search", timeout_s=5, **QUICK)
    finally:
        for job in jobs:
            job.cancel()
        await asyncio.to_thread(bench.close)


async def test_who_has_waited_too_long_is_told() -> None:
    bench = Workbench(size=1, slow=0, patience_s=0.05)
    job = asyncio.create_task(bench.run("search", timeout_s=60, **HANGING))
    try:
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await bench.run("search", timeout_s=5, **QUICK)
    finally:
        job.cancel()
        await asyncio.to_thread(bench.close)
