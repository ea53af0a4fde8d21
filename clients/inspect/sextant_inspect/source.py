"""Sextant chooses the next sample: Inspect from 0.3.250 on."""

from inspect_ai import SampleSource
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalSample
from typing_extensions import override

from sextant_client import Answer
from sextant_inspect.answers import answer_of
from sextant_inspect.attempts import Attempt, Plan
from sextant_inspect.running import running


class SextantSource(SampleSource):
    """Samples as a session asks them, as many at once as it has in flight.

    Args:
        plan: What is to be found out.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    @override
    async def next_samples(self) -> list[Sample] | None:
        task = running.get()
        before: list[str] = []
        if task.attempt is None:
            task.attempt = await Attempt.begin(self._plan, task.spec)
            before = await task.attempt.answered()
        # Inspect takes those before from the log of the attempt that ran them.
        samples = before + await task.attempt.awaited()
        if not samples:
            await task.attempt.end()
            return None
        return self._copies(samples, task.attempt)

    @override
    async def sample_complete(self, sample: EvalSample) -> list[Sample] | None:
        answer = answer_of(sample, self._plan.scorer, is_agent=self._plan.is_agent)
        return await self._told(str(sample.id), answer)

    @override
    async def sample_abandoned(self, sample: Sample, epoch: int) -> list[Sample] | None:
        return await self._told(str(sample.id), Answer(outcome="error", explanation="Abandoned."))

    async def _told(self, sample: str, answer: Answer) -> list[Sample]:
        attempt = running.get().attempt
        assert attempt is not None  # noqa: S101 (it asked for the sample)
        return self._copies(await attempt.tell(sample, answer), attempt)

    def _copies(self, samples: list[str], attempt: Attempt) -> list[Sample]:
        """Copies that name their session: the log of a run that is killed has their metadata."""
        named = {"sextant_session": attempt.session.id}
        copies = [self._plan.samples.by_id[sample].model_copy(deep=True) for sample in samples]
        for copy in copies:
            copy.metadata = {**(copy.metadata or {}), **named}
        return copies
