"""State of the running Inspect task, shared within this package."""

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass

from inspect_ai.hooks import Hooks, SampleEnd, TaskStart, hooks
from inspect_ai.log import EvalSample, EvalSpec
from inspect_ai.scorer import Metric, SampleScore, Value, metric
from typing_extensions import override

from sextant_inspect.attempts import Attempt


@dataclass(slots=True)
class Running:
    """A running task, one of several; it has an attempt once Sextant was asked."""

    spec: EvalSpec
    attempt: Attempt | None = None
    on_sample_end: Callable[[EvalSample], Awaitable[None]] | None = None


#: Set as the task starts: whatever runs in it begins later.
running: ContextVar[Running] = ContextVar("running")


def attempt() -> Attempt:
    """The attempt of the running task, once it has begun."""
    begun = running.get().attempt
    assert begun is not None  # noqa: S101  (Inspect starts a task before its samples)
    return begun


@hooks(name="sextant", description="Tells Sextant what becomes of samples.")
class _Sextant(Hooks):
    @override
    async def on_task_start(self, data: TaskStart) -> None:
        running.set(Running(data.spec))

    @override
    async def on_sample_end(self, data: SampleEnd) -> None:
        task = running.get(None)
        if task is not None and task.on_sample_end is not None:
            await task.on_sample_end(data.sample)


@metric(name="sextant")
def figures() -> Metric:
    """Score and ability from Sextant; empty if a log is scored again."""

    def told(scores: list[SampleScore]) -> Value:  # noqa: ARG001  (a metric takes them)
        task = running.get(None)
        return {} if task is None or task.attempt is None else {**task.attempt.figures()}

    return told
