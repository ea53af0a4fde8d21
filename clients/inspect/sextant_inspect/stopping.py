"""Every sample waits until Sextant asks for it: for Inspect before 0.3.250, or on request."""

from inspect_ai.dataset import Sample
from inspect_ai.log import EvalSample, EvalSpec
from inspect_ai.scorer import SampleScore
from inspect_ai.util import EarlyStop
from pydantic import JsonValue

from sextant_inspect.answers import scored
from sextant_inspect.attempts import Attempt, Plan, attempt, running

#: How Inspect tells of a sample that was broken off.
_CANCELLED = ("CancelledError(", "Cancelled(")


class SextantStopping:
    """Runs samples when a session asks for them, and stops the others once it has ended."""

    # Arguments are those of Inspect's protocol, whatever their names and whether used or not.

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    async def start_task(
        self,
        task: EvalSpec,
        samples: list[Sample],
        epochs: int,  # noqa: ARG002
    ) -> str:
        """Begin the session of a task, or continue it."""
        if (task.config.max_samples or 0) < len(samples):
            raise ValueError(
                f"Expected --max-samples of at least {len(samples)}, as each sample waits for "
                f"its turn, got {task.config.max_samples}. `concurrency` of `adaptive` says how "
                "many run."
            )
        mine = running.get()
        mine.attempt = await Attempt.begin(self._plan, task)
        mine.on_sample_end = _tell
        await mine.attempt.awaited()
        return "sextant"

    async def schedule_sample(self, id: str | int, epoch: int) -> EarlyStop | None:  # noqa: A002
        """Wait for a sample's turn; stop the sample if the turn does not come."""
        if await attempt().comes(id):
            return None
        return EarlyStop(id=id, epoch=epoch, reason="Sextant did not ask for it.")

    async def complete_sample(
        self,
        id: str | int,  # noqa: A002
        epoch: int,  # noqa: ARG002
        scores: dict[str, SampleScore],
    ) -> None:
        """Send the result of a sample that an earlier attempt ran without sending it."""
        known = {name: sample.score for name, sample in scores.items()}
        await attempt().tell(id, scored(id, known, self._plan.scorer))

    async def complete_task(self) -> dict[str, JsonValue]:
        """Return the results.

        Raises:
            RuntimeError: The session has failed, or was cancelled.
        """
        await attempt().end()
        return {"session": attempt().session.id, **attempt().figures()}


async def _tell(sample: EvalSample) -> None:
    """Send a sample's result. Inspect only logs errors in hooks: keep them until the task ends."""
    try:
        if sample.error is not None and sample.error.message.startswith(_CANCELLED):
            # It says nothing of who answers, and is awaited still.
            raise RuntimeError(f"Sample {sample.id!r} was cancelled.")  # noqa: TRY301  (kept below)
        await attempt().ran(sample)
    except Exception as fault:  # noqa: BLE001  (it fails the task)
        attempt().fail(fault)
