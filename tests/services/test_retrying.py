"""The retry loop on a virtual clock: nothing sleeps."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.adapters.base import Completion, CompletionRequest, ProbeReport
from app.calling import RetryPolicy
from app.errors import (
    BlockedAddressError,
    ColdStartError,
    EndpointFaultError,
    EndpointRejectedError,
    EndpointUnauthorizedError,
    ExamineeError,
    ExamineeTimeoutError,
    MalformedAnswerError,
    RateLimitedError,
)
from app.services.endpoints.calls import persist
from app.services.waiting import Waiting
from tests.contracts.examinees import ask

START = datetime(2026, 1, 1, tzinfo=UTC)
RIGHT = Completion(text="A", raw="A")


@dataclass
class Scene:
    """An examinee that plays `script` and then answers, with a clock that only waits move."""

    script: list[ExamineeError]
    slept: list[float] = field(default_factory=list)
    waits: list[Waiting | None] = field(default_factory=list)
    calls: int = 0

    async def complete(self, request: CompletionRequest) -> Completion:
        self.calls += 1
        if self.script:
            raise self.script.pop(0)
        return RIGHT

    async def probe(self) -> ProbeReport:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def on_wait(self, waiting: Waiting | None) -> None:
        self.waits.append(waiting)

    def now(self) -> datetime:
        return START + timedelta(seconds=sum(self.slept))

    async def run(self, policy: RetryPolicy | None = None, seed: int = 0) -> tuple[Completion, int]:
        return await persist(
            lambda: self.complete(ask()),
            policy or RetryPolicy(),
            np.random.default_rng(seed),
            self.on_wait,
            sleep=self.sleep,
            now=self.now,
        )


@pytest.mark.parametrize("script", [[], [EndpointFaultError("500"), MalformedAnswerError("cut")]])
async def test_temporary_failures_are_retried(script: list[ExamineeError]) -> None:
    scene = Scene(list(script))
    assert await scene.run() == (RIGHT, 1 + len(script))
    assert len(scene.slept) == len(script)
    assert len(scene.waits) == 2 * len(script)


@pytest.mark.parametrize(
    ("first", "may_cost"),
    [(EndpointFaultError("500"), False), (ExamineeTimeoutError("slow"), True)],
)
async def test_a_failure_costs_nothing_only_if_no_call_before_it_may(
    first: ExamineeError, may_cost: bool
) -> None:
    scene = Scene([first, EndpointRejectedError("400")])
    with pytest.raises(EndpointRejectedError) as failed:
        await scene.run()
    assert failed.value.may_cost == may_cost


async def test_each_wait_is_announced_with_its_end_and_reason_and_then_called_off() -> None:
    scene = Scene([RateLimitedError("Slow down.", retry_after_s=7.0)])
    await scene.run()
    announced, over = scene.waits
    assert over is None
    assert announced == Waiting(
        until=START + timedelta(seconds=scene.slept[0]),
        reason="Slow down.",
        attempt=1,
        error_code="endpoint_rate_limited",
    )


@pytest.mark.parametrize(
    "error", [EndpointUnauthorizedError, EndpointRejectedError, BlockedAddressError]
)
async def test_final_errors_are_raised_after_one_call(error: type[ExamineeError]) -> None:
    scene = Scene([error("no")] * 5)
    with pytest.raises(error) as caught:
        await scene.run()
    assert (scene.calls, caught.value.attempts, scene.waits) == (1, 1, [])


@pytest.mark.parametrize("max_attempts", [1, 2, 5])
async def test_the_last_failure_is_raised_with_the_number_of_calls(max_attempts: int) -> None:
    scene = Scene([EndpointFaultError(f"number {n}") for n in range(1, 9)])
    with pytest.raises(EndpointFaultError, match=f"number {max_attempts}") as caught:
        await scene.run(RetryPolicy(max_attempts=max_attempts))
    assert scene.calls == caught.value.attempts == max_attempts
    assert len(scene.slept) == max_attempts - 1


@example(
    retry_afters=[None, None, None, None, 0.98, 129.0],
    seed=0,
    base_s=1.419921875,
    cap_s=23.0,
    max_wait_s=150.19554246264025,
)
@given(
    retry_afters=st.lists(st.none() | st.floats(0, 1e4), max_size=12),
    seed=st.integers(0, 99),
    base_s=st.floats(0.01, 5),
    cap_s=st.floats(0.01, 60),
    max_wait_s=st.floats(0, 500),
)
def test_waits_grow_within_their_bounds_and_honour_retry_after(
    retry_afters: list[float | None], seed: int, base_s: float, cap_s: float, max_wait_s: float
) -> None:
    scene = Scene([RateLimitedError("slow", retry_after_s=wait) for wait in retry_afters])
    policy = RetryPolicy(
        max_attempts=20, base_s=base_s, cap_s=cap_s, max_wait_s=max_wait_s, cold_start_wait_s=0
    )
    try:
        asyncio.run(scene.run(policy, seed))
    except RateLimitedError:
        assert sum(scene.slept) == pytest.approx(max_wait_s, abs=1e-6)
    assert sum(scene.slept) <= max_wait_s + 1e-6
    for number, (slept, asked) in enumerate(zip(scene.slept[:-1], retry_afters, strict=False)):
        jitter = slept - (asked or 0.0)
        assert -1e-6 <= jitter <= min(cap_s, base_s * 2**number) + 1e-6


def test_jitter_comes_from_the_generator_alone() -> None:
    def slept(seed: int) -> list[float]:
        scene = Scene([EndpointFaultError("500")] * 3)
        asyncio.run(scene.run(seed=seed))
        return scene.slept

    assert slept(1) == slept(1) != slept(2)


async def test_a_cold_start_is_waited_out_beyond_the_number_of_attempts() -> None:
    scene = Scene([ColdStartError("loading", retry_after_s=20.0)] * 30)
    policy = RetryPolicy(max_attempts=1, cold_start_wait_s=3600.0)
    assert await scene.run(policy) == (RIGHT, 31)
    assert all(slept >= 20 for slept in scene.slept)


async def test_a_cold_start_has_an_end() -> None:
    scene = Scene([ColdStartError("loading")] * 1000)
    with pytest.raises(ColdStartError):
        await scene.run(RetryPolicy(cold_start_wait_s=120.0))
    assert sum(scene.slept) == pytest.approx(120.0)


async def test_cancelling_ends_a_wait_at_once_and_asks_no_more() -> None:
    scene = Scene([EndpointFaultError("500")])
    is_waiting = asyncio.Event()

    async def wait_for_ever(seconds: float) -> None:
        is_waiting.set()
        await asyncio.Event().wait()

    scene.sleep = wait_for_ever  # type: ignore[method-assign]  # no virtual time
    task = asyncio.create_task(scene.run())
    await is_waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert scene.calls == 1
