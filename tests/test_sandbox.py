"""Work in child processes: limits, errors, and that no process is left."""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from app.acting import Acting, acting_for
from app.errors import BusyError, FieldProblem, FileFormatError, LimitExceededError
from app.fair_semaphore import MAX_WAITING
from app.sandbox.pool import Limits, Sandbox
from tests.waiting import waiting

MB = 2**20
#: The process that imported this module.
IMPORTER = os.getpid()


def echo(argument: Any, attachments: Sequence[bytes], output: BinaryIO) -> Any:
    for attachment in attachments:
        output.write(attachment)
    return {"argument": argument, "pid": os.getpid()}


def take(argument: int, attachments: Sequence[bytes], output: BinaryIO) -> int:
    return len(bytearray(argument))


def write(argument: int, attachments: Sequence[bytes], output: BinaryIO) -> None:
    output.write(bytes(argument))


def say(argument: int, attachments: Sequence[bytes], output: BinaryIO) -> str:
    return "x" * argument


def wait(argument: float, attachments: Sequence[bytes], output: BinaryIO) -> float:
    time.sleep(argument)
    return argument


def hang(argument: str, attachments: Sequence[bytes], output: BinaryIO) -> None:
    if argument:
        Path(argument).write_text(str(os.getpid()))
    time.sleep(600)


def spin(argument: Any, attachments: Sequence[bytes], output: BinaryIO) -> None:
    while True:
        pass


def crash(argument: Any, attachments: Sequence[bytes], output: BinaryIO) -> None:
    ctypes.string_at(0)


def fail(argument: Any, attachments: Sequence[bytes], output: BinaryIO) -> None:
    raise KeyError(argument)


def refuse(argument: int, attachments: Sequence[bytes], output: BinaryIO) -> None:
    raise FileFormatError("bad", problems=[FieldProblem(f"x:{n}", "y") for n in range(argument)])


@pytest.fixture(scope="module")
def cells() -> Iterator[Sandbox]:
    sandbox = Sandbox(preloaded=["tests.test_sandbox"])
    yield sandbox
    sandbox.close()


async def run(cells: Sandbox, work: Any, argument: Any = None, **limits: Any) -> Any:
    return await cells.run(
        work, argument, limits=Limits(**limits), subject="x.csv", advice="import in parts"
    )


async def until(condition: Callable[[], bool]) -> None:
    async with waiting() as pause:
        while not condition():
            await pause()


async def is_gone(pid: int) -> None:
    await until(lambda: _state(pid) == "Z")


async def told_pid(told: Path) -> int:
    await until(lambda: told.exists() and told.read_text() != "")
    return int(await asyncio.to_thread(told.read_text))


def _state(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "Z"


async def test_a_value_and_a_file_come_back_from_another_process(cells: Sandbox) -> None:
    limits = Limits()
    async with cells.made(
        echo, {"a": [1]}, [b"one", b"two"], limits=limits, subject="x", advice="y"
    ) as (value, output):
        assert value["argument"] == {"a": [1]}
        assert output.read() == b"onetwo"
    assert value["pid"] not in {os.getpid(), cells.helper_pid}
    await is_gone(value["pid"])


def importer(argument: Any, attachments: Sequence[bytes], output: BinaryIO) -> int:
    return IMPORTER


async def test_modules_not_preloaded_are_imported_once_for_all_children() -> None:
    cells = Sandbox(preloaded=[])
    try:
        assert {await run(cells, importer) for _ in range(2)} == {cells.helper_pid}
    finally:
        cells.close()


@pytest.mark.parametrize(
    ("work", "argument", "limits", "message"),
    [
        (take, 300 * MB, {"memory": 64 * MB}, "x.csv takes more than 64 MB of memory: import in"),
        (write, 3 * MB, {"output": 2 * MB}, "x.csv takes more than 2 MB of results: import in"),
        (say, 3 * MB, {"output": 2 * MB}, "x.csv takes more than 2 MB of results: import in"),
        (hang, "", {"seconds": 0.2}, "x.csv takes more than 0.2 s: import in parts."),
        (crash, None, {}, "x.csv takes more than 128 MB of memory"),
        (fail, "k", {}, r"ended without a result \(KeyError\): import in parts."),
    ],
)
async def test_exceeded_limits_and_crashes_give_one_sentence(
    cells: Sandbox, work: Any, argument: Any, limits: dict[str, Any], message: str
) -> None:
    with pytest.raises(LimitExceededError, match=message):
        await run(cells, work, argument, **limits)
    assert await run(cells, take, 8 * MB) == 8 * MB  # the next is not affected


async def test_a_child_that_waits_for_its_turns_has_longer_than_its_cpu_time(
    cells: Sandbox,
) -> None:
    assert await run(cells, wait, 0.4, seconds=0.2) == 0.4


async def test_cpu_time_is_limited_by_the_kernel_too(cells: Sandbox) -> None:
    with pytest.raises(LimitExceededError, match="more than 1 s"):
        await run(cells, spin, seconds=1.0)


async def test_an_error_is_returned_with_its_first_hundred_places(cells: Sandbox) -> None:
    with pytest.raises(FileFormatError, match="bad") as caught:
        await run(cells, refuse, 1000)
    assert len(caught.value.problems) == 100
    assert caught.value.problems[0] == FieldProblem("x:0", "y")


async def test_a_cancelled_task_kills_its_child(cells: Sandbox, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    task = asyncio.create_task(run(cells, hang, str(told)))
    child = await told_pid(told)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await is_gone(child)


async def test_the_queue_is_bounded_and_cancelled_callers_leave_it(cells: Sandbox) -> None:
    limits = {"memory": 512 * MB}
    tasks = [asyncio.create_task(run(cells, hang, "", **limits)) for _ in range(MAX_WAITING + 1)]
    await asyncio.sleep(0)
    with pytest.raises(BusyError, match="are waiting already"):
        await run(cells, take, 1, **limits)
    assert await run(cells, take, 1) == 1  # small work has its own lane
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert await run(cells, take, 1, **limits) == 1


async def test_large_work_of_one_key_leaves_the_spare_place_to_others() -> None:
    cells = Sandbox(preloaded=["tests.test_sandbox"], spare=2)
    async with asyncio.timeout(60), cells._large.turn():
        waits = asyncio.create_task(run(cells, take, 1, memory=512 * MB))
        with acting_for(Acting("another")):
            assert await run(cells, take, 1, memory=512 * MB) == 1
        assert cells._large.n_waiting == 1
    assert await waits == 1
    cells.close()


async def test_a_helper_that_was_killed_is_replaced(cells: Sandbox) -> None:
    first = await run(cells, echo)
    helper = cells.helper_pid
    assert helper is not None
    os.kill(helper, signal.SIGKILL)
    await is_gone(helper)
    assert (await run(cells, echo))["argument"] is None
    assert cells.helper_pid != helper
    await is_gone(first["pid"])


_PROGRAM = """
import asyncio, sys
from app.sandbox.pool import Sandbox, Limits
from tests.test_sandbox import hang

async def main():
    cells = Sandbox(preloaded=["tests.test_sandbox"])
    limits = Limits()
    work = asyncio.create_task(cells.run(hang, sys.argv[1], limits=limits, subject="", advice=""))
    while cells.helper_pid is None:
        await asyncio.sleep(0.01)
    print(cells.helper_pid, flush=True)
    await work

asyncio.run(main())
"""


@pytest.mark.parametrize("fatal", [signal.SIGTERM, signal.SIGKILL])
async def test_nothing_is_left_of_a_process_that_was_killed(
    tmp_path: Path, fatal: signal.Signals
) -> None:
    told = tmp_path / "pid"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PROGRAM, str(told), stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    helper = int(await process.stdout.readline())
    child = await told_pid(told)
    os.kill(helper, signal.SIGINT)  # as Ctrl-C does to the whole group
    os.kill(child, signal.SIGINT)
    assert _state(child) != "Z"
    process.send_signal(fatal)
    await process.wait()
    await is_gone(child)
    await is_gone(helper)
