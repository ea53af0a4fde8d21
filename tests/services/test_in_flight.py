"""Calls in flight, on a virtual clock, and work that several callers want at once."""

import asyncio

import pytest

from app.services.sessions.runner import InFlight
from app.services.waiting import InProgress
from tests.services import virtual_time


async def after(seconds: float, answer: str) -> str:
    await asyncio.sleep(seconds)
    return answer


def now() -> float:
    return asyncio.get_running_loop().time()


@virtual_time.test
async def test_answers_of_one_moment_are_taken_in_together_in_the_order_of_their_steps() -> None:
    calls: InFlight[str] = InFlight()
    for step, seconds in enumerate((1.04, 1.02, 1.0), 1):
        calls.begin(step, after(seconds, f"answer {step}"))

    ended = await calls.ended()

    assert list(ended.items()) == [(1, "answer 1"), (2, "answer 2"), (3, "answer 3")]
    assert now() == pytest.approx(1.04)


@virtual_time.test
async def test_a_slow_call_delays_others_by_at_most_a_tenth() -> None:
    calls: InFlight[str] = InFlight()
    await asyncio.sleep(3.0)
    calls.begin(1, after(1.0, "soon"))
    calls.begin(2, after(5.0, "late"))

    assert await calls.ended() == {1: "soon"}
    assert now() == pytest.approx(4.1)
    assert await calls.ended() == {2: "late"}
    assert now() == pytest.approx(8.0)


@virtual_time.test
async def test_a_later_call_is_not_waited_for() -> None:
    calls: InFlight[str] = InFlight()
    calls.begin(1, after(1.0, "first"))
    await asyncio.sleep(0.5)
    calls.begin(2, after(0.55, "second"))

    assert await calls.ended() == {1: "first"}
    assert now() == pytest.approx(1.0)


@pytest.mark.parametrize(("limit_s", "ended"), [(0.5, {}), (1.02, {1: "soon"})])
@virtual_time.test
async def test_no_wait_exceeds_the_remaining_time(limit_s: float, ended: dict[int, str]) -> None:
    calls: InFlight[str] = InFlight()
    calls.begin(1, after(1.0, "soon"))
    calls.begin(2, after(1.05, "later"))

    assert await calls.ended(limit_s) == ended
    assert now() == pytest.approx(limit_s)
    assert await calls.give_up() == [step for step in (1, 2) if step not in ended]


@virtual_time.test
async def test_what_a_call_raises_is_raised() -> None:
    async def fails() -> str:
        raise LookupError("no such thing")

    calls: InFlight[str] = InFlight()
    calls.begin(1, fails())
    calls.begin(2, fails())
    with pytest.raises(LookupError, match="no such thing"):
        await calls.ended()
    # The second failure is not left for the event loop to report.
    assert await calls.give_up() == [1, 2]


@virtual_time.test
async def test_calls_given_up_are_cancelled() -> None:
    calls: InFlight[str] = InFlight()
    calls.begin(2, after(1.0, "never"))
    calls.begin(1, after(2.0, "never"))
    await asyncio.sleep(0)

    assert await calls.give_up() == [1, 2]
    assert await calls.give_up() == []
    assert now() == 0.0


async def test_several_callers_share_one_result() -> None:
    shared = InProgress[str, int]()
    begun: list[None] = []

    async def work() -> int:
        begun.append(None)
        await asyncio.sleep(0)
        return 7

    assert await asyncio.gather(*(shared.once("key", work) for _ in range(3))) == [7, 7, 7]
    assert len(begun) == 1
    assert await shared.once("key", work) == 7
    assert len(begun) == 2


async def test_the_last_caller_waits_until_the_work_has_cleaned_up() -> None:
    shared = InProgress[str, None]()
    begins, gives_back, given_back = (asyncio.Event() for _ in range(3))

    async def work() -> None:
        try:
            begins.set()
            await asyncio.Event().wait()
        finally:
            gives_back.set()
            await given_back.wait()

    first, last = (asyncio.create_task(shared.once("key", work)) for _ in range(2))
    await begins.wait()
    first.cancel()
    await asyncio.wait([first])
    assert not gives_back.is_set()
    last.cancel()
    await gives_back.wait()
    assert not last.done()
    given_back.set()
    await asyncio.wait([last])
    assert first.cancelled()
    assert last.cancelled()
