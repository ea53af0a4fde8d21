"""Work that several callers want at once: done once, and cancelled when the last one leaves."""

import asyncio

from app.services.waiting import InProgress


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
