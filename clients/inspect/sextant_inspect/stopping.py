"""Every sample waits until Sextant asks for it: Inspect before 0.3.250, or who wants it so."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from inspect_ai.dataset import Sample
from inspect_ai.log import EvalSample, EvalSpec
from inspect_ai.scorer import SampleScore
from inspect_ai.util import EarlyStop
from pydantic import JsonValue

from sextant_inspect.answers import scored
from sextant_inspect.attempts import Attempt, Plan
from sextant_inspect.running import running

#: How Inspect tells of a sample that was broken off.
_CANCELLED = ("CancelledError(", "Cancelled(")


class _Turns:
    """Whose turn it is, of the samples of one running task."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.fault: Exception | None = None
        self._asked: set[str] = set()
        self._over = False
        self._events: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def comes(self, sample: str) -> bool:
        """Wait until Sextant asks for a sample, or for no more."""
        if not self._over:
            await self._events[sample].wait()
        return sample in self._asked

    def give(self, samples: Iterable[str]) -> None:
        """Let samples run; once the session has ended, let the others go."""
        self._asked |= (asked := set(samples))
        self._over = self.attempt.session.ended or self.fault is not None
        for sample in list(self._events) if self._over else asked:
            self._events[sample].set()

    async def ran(self, sample: EvalSample) -> None:
        """Tell a sample. What a hook raises Inspect only logs: it is kept until the task ends."""
        try:
            if sample.error is not None and sample.error.message.startswith(_CANCELLED):
                # It says nothing of who answers, and is awaited still.
                raise RuntimeError(f"Sample {sample.id!r} was cancelled.")  # noqa: TRY301
            self.give(await self.attempt.ran(sample))
        except Exception as fault:  # noqa: BLE001
            self.fault = self.fault or fault
            self.give(())


class SextantStopping:
    """Samples run when a session asks for them, and are stopped early once it has ended."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._turns: dict[str, _Turns] = {}

    async def start_task(
        self,
        task: EvalSpec,
        samples: list[Sample],
        epochs: int,  # noqa: ARG002
    ) -> str:
        """Begin the session of a task, or go on with it."""
        if (task.config.max_samples or 0) < len(samples):
            raise ValueError(
                f"Each sample waits for its turn: expected --max-samples {len(samples)} at least, "
                f"got {task.config.max_samples}. `concurrency` of `adaptive` says how many run."
            )
        mine = running.get()
        mine.attempt = await Attempt.begin(self._plan, task)
        turns = self._turns[task.eval_id] = _Turns(mine.attempt)
        mine.on_sample_end = turns.ran
        turns.give(await mine.attempt.awaited())
        return "sextant"

    async def schedule_sample(self, id: str | int, epoch: int) -> EarlyStop | None:  # noqa: A002
        """Wait for a sample's turn; stop it if that does not come."""
        if await self._mine.comes(str(id)):
            return None
        return EarlyStop(id=id, epoch=epoch, reason="Sextant did not ask for it.")

    async def complete_sample(
        self,
        id: str | int,  # noqa: A002
        epoch: int,  # noqa: ARG002
        scores: dict[str, SampleScore],
    ) -> None:
        """Tell a sample that an earlier attempt ran and was killed before it told it."""
        known = {name: sample.score for name, sample in scores.items()}
        turns = self._mine
        turns.give(await turns.attempt.tell(id, scored(id, known, self._plan.scorer)))

    async def complete_task(self) -> dict[str, JsonValue]:
        """What was found out.

        Raises:
            RuntimeError: The session has failed, or was cancelled.
        """
        turns = self._mine
        if turns.fault is not None:
            raise turns.fault
        await turns.attempt.end()
        return {"session": turns.attempt.session.id, **turns.attempt.figures()}

    @property
    def _mine(self) -> _Turns:
        return self._turns[running.get().spec.eval_id]
