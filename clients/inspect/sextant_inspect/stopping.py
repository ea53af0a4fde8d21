"""Every sample waits until Sextant asks for it: Inspect before 0.3.250, or who wants it so."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from inspect_ai.dataset import Sample
from inspect_ai.log import EvalSample, EvalSpec
from inspect_ai.scorer import SampleScore
from inspect_ai.util import EarlyStop
from pydantic import JsonValue

from sextant_client import Answer
from sextant_inspect.answers import answer_of, scored
from sextant_inspect.attempts import Attempt, Plan
from sextant_inspect.running import running


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

    async def tell(self, sample: str, answer: Answer) -> None:
        """Tell an answer, and let those run that are asked because of it."""
        self.give(await self.attempt.tell(sample, answer))

    async def ran(self, sample: EvalSample) -> None:
        """Tell a sample that has run. Inspect only logs what its hooks raise: it is kept here."""
        try:
            plan, error = self.attempt.plan, sample.error
            # One that Inspect broke off says nothing of who answers; it is awaited still.
            if error is not None and error.message.startswith(("CancelledError(", "Cancelled(")):
                raise RuntimeError(f"Sample {sample.id!r} was cancelled.")  # noqa: TRY301
            answer = answer_of(sample, plan.scorer, is_agent=plan.is_agent)
            await self.tell(str(sample.id), answer)
        except Exception as fault:  # noqa: BLE001
            self.fault = self.fault or fault
            self.give(())


class SextantStopping:
    """Samples run when a session asks for them, and are stopped early when it has ended.

    Args:
        plan: What is to be found out.
    """

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
        if await self._mine().comes(str(id)):
            return None
        return EarlyStop(id=id, epoch=epoch, reason="Sextant did not ask for it.")

    async def complete_sample(
        self,
        id: str | int,  # noqa: A002
        epoch: int,  # noqa: ARG002
        scores: dict[str, SampleScore],
    ) -> None:
        """Tell a sample of an earlier attempt, which ended before it had told it."""
        known = {name: sample.score for name, sample in scores.items()}
        await self._mine().tell(str(id), scored(id, known, self._plan.scorer))

    async def complete_task(self) -> dict[str, JsonValue]:
        """What was found out.

        Raises:
            RuntimeError: The session has failed, or was cancelled.
        """
        turns = self._turns.pop(running.get().spec.eval_id)
        if turns.fault is not None:
            raise turns.fault
        await turns.attempt.end()
        return {"session": turns.attempt.session.id, **turns.attempt.figures()}

    def _mine(self) -> _Turns:
        return self._turns[running.get().spec.eval_id]
