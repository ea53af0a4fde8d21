"""Sextant chooses the next sample: Inspect from 0.3.250 on."""

from inspect_ai import SampleSource
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalSample
from typing_extensions import override

from sextant_client import Answer
from sextant_inspect.attempts import Attempt, Plan, attempt, running


class SextantSource(SampleSource):
    """Samples in the order in which a session asks for them, with its number in flight."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    @override
    async def next_samples(self) -> list[Sample] | None:
        task = running.get()
        before: list[str] = []
        if task.attempt is None:
            task.attempt = await Attempt.begin(self._plan, task.spec)
            # Inspect takes them from the log of the attempt that ran them.
            before = await task.attempt.answered()
        samples = before + await task.attempt.awaited()
        if not samples:
            await task.attempt.end()
            return None
        return self._copies(samples)

    @override
    async def sample_complete(self, sample: EvalSample) -> list[Sample] | None:
        return self._copies(await attempt().ran(sample))

    @override
    async def sample_abandoned(self, sample: Sample, epoch: int) -> list[Sample] | None:
        answer = Answer(outcome="error", explanation="Abandoned.")
        return self._copies(await attempt().tell(str(sample.id), answer))

    def _copies(self, samples: list[str]) -> list[Sample]:
        """Copies that name their session, so that the log of a killed run has it, too."""
        copies = [self._plan.samples.by_id[sample].model_copy(deep=True) for sample in samples]
        for copy in copies:
            copy.metadata = {**(copy.metadata or {}), "sextant_session": attempt().session.id}
        return copies
