"""Calls in flight, on a virtual clock, and work that several callers want at once."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from types import SimpleNamespace
from typing import Any, ParamSpec

import pytest
from typing_extensions import override

from app.services.sessions.plan import SessionPlan
from app.services.sessions.runner import InFlight, LiveSession
from app.services.waiting import InProgress, Recent

P = ParamSpec("P")


class _Jumping(selectors.DefaultSelector):
    """Advances the clock instead of waiting."""

    now = 0.0

    @override
    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise AssertionError("Nothing is due: the test would wait for ever.")
        self.now += max(timeout, 0.0)
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Jumping()
        super().__init__(self._clock)

    @override
    def time(self) -> float:
        return self._clock.now


def on_virtual_time(main: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on virtual time that begins at 0."""

    @wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.run(main(*args, **kwargs))

    return run


async def after(seconds: float, answer: str) -> str:
    await asyncio.sleep(seconds)
    return answer


def begun(*seconds: float) -> InFlight[str]:
    """Return calls of steps 1, 2, ... that are answered after so many seconds."""
    calls: InFlight[str] = InFlight()
    for step, each in enumerate(seconds, 1):
        calls.begin(step, after(each, f"answer {step}"))
    return calls


def now() -> float:
    return asyncio.get_running_loop().time()


@on_virtual_time
async def test_answers_of_one_moment_are_taken_in_together_in_the_order_of_their_steps() -> None:
    ended = await begun(1.04, 1.02, 1.0).ended()

    assert list(ended.items()) == [(1, "answer 1"), (2, "answer 2"), (3, "answer 3")]
    assert now() == pytest.approx(1.04)


@on_virtual_time
async def test_a_slow_call_delays_others_by_at_most_a_tenth() -> None:
    await asyncio.sleep(3.0)
    calls = begun(1.0, 5.0)

    assert await calls.ended() == {1: "answer 1"}
    assert now() == pytest.approx(4.1)
    assert await calls.ended() == {2: "answer 2"}
    assert now() == pytest.approx(8.0)


@on_virtual_time
async def test_a_later_call_is_not_waited_for() -> None:
    calls = begun(1.0)
    await asyncio.sleep(0.5)
    calls.begin(2, after(0.55, "second"))

    assert await calls.ended() == {1: "answer 1"}
    assert now() == pytest.approx(1.0)


@pytest.mark.parametrize(("limit_s", "ended"), [(0.5, {}), (1.02, {1: "answer 1"})])
@on_virtual_time
async def test_no_wait_exceeds_the_remaining_time(limit_s: float, ended: dict[int, str]) -> None:
    calls = begun(1.0, 1.05)

    assert await calls.ended(limit_s) == ended
    assert now() == pytest.approx(limit_s)
    assert await calls.give_up() == [step for step in (1, 2) if step not in ended]


@on_virtual_time
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


@on_virtual_time
async def test_calls_given_up_are_cancelled() -> None:
    calls: InFlight[str] = InFlight()
    calls.begin(2, after(1.0, "never"))
    calls.begin(1, after(2.0, "never"))
    await asyncio.sleep(0)

    assert await calls.give_up() == [1, 2]
    assert await calls.give_up() == []
    assert now() == 0.0


@pytest.mark.parametrize(("limit_s", "left_s"), [(None, None), (9.0, 4.0), (5.5, 0.5), (3.0, 0.0)])
def test_earlier_leases_take_from_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch, limit_s: float | None, left_s: float | None
) -> None:
    monkeypatch.setattr("app.services.sessions.runner.time", SimpleNamespace(monotonic=lambda: 8.0))
    run = SimpleNamespace(plan=SessionPlan.from_dict({"budget": {"seconds": limit_s}}))
    live: Any = {"record": SimpleNamespace(active_s=3.0), "run": run, "asker": None, "started": 6.0}
    assert LiveSession(**live).time_left_s() == left_s


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


async def test_a_value_is_looked_up_once_until_it_is_forgotten() -> None:
    looked: list[str] = []

    async def look_up(key: str) -> str:
        looked.append(key)
        return key

    recent = Recent(look_up, 3600.0)
    assert await asyncio.gather(*map(recent.get, ("a", "a", "b"))) == ["a", "a", "b"]
    assert (await recent.get("a"), looked) == ("a", ["a", "b"])
    recent.forget(lambda value: value == "a")
    assert [await recent.get(key) for key in ("a", "b")] == ["a", "b"]
    assert looked == ["a", "b", "a"]
    assert [await recent.get("") for _ in range(2)] == ["", ""]  # an empty value is not kept
    assert looked[3:] == ["", ""]


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
