"""One attempt at an Inspect task, its session, and the task that is running."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from inspect_ai.hooks import Hooks, SampleEnd, TaskStart, hooks
from inspect_ai.log import EvalSample, EvalSpec
from inspect_ai.scorer import Metric, SampleScore, Value, metric
from typing_extensions import override

from sextant_client import Answer, AsyncSextant, Examinee, Item, Session
from sextant_client.answering import Begun, Loop
from sextant_client.models import Interval
from sextant_client.requests import Json
from sextant_inspect.answers import answer_of
from sextant_inspect.matching import Samples

#: In a session's metadata. Retries of a task keep its id, and find the session by it.
_TASK_ID: Final = "inspect_task_id"
USUALLY_IN_FLIGHT: Final = 4
_MOST_IN_FLIGHT: Final = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """Settings of the measurement: the arguments of `adaptive`."""

    bank: str
    samples: Samples
    scorer: str
    examinee: Examinee | None
    design: Mapping[str, Json]
    connect: Callable[[], AsyncSextant]

    async def session(self, client: AsyncSextant, spec: EvalSpec) -> Session:
        """The session of a task, which an earlier attempt may have begun."""
        named = {_TASK_ID: spec.task_id}
        for begun in await client.list_sessions(metadata=named):
            is_of_bank = self.bank in {begun.bank.id, begun.bank.name}
            if is_of_bank and begun.status not in {"failed", "cancelled"}:
                return begun
        examinee = self.examinee or Examinee(name=spec.model)
        if examinee.model is None and examinee.kind != "person":
            examinee = examinee.model_copy(update={"model": spec.model})
        in_flight = min(spec.config.max_samples or USUALLY_IN_FLIGHT, _MOST_IN_FLIGHT)
        fields = {"concurrency": in_flight, **self.design, "mode": "manual"}
        own = fields.get("metadata")
        fields["metadata"] = {**own, **named} if isinstance(own, Mapping) else named
        return await client.create_session(self.bank, examinee=examinee, **fields)


class Attempt:
    """An attempt at a task. It continues the session of earlier attempts.

    Attributes:
        session: The session, as in the last reply.
    """

    def __init__(
        self, plan: Plan, client: AsyncSextant, session: Session, sample_of: Mapping[str, str]
    ) -> None:
        self.session = session
        self._plan = plan
        self._client = client
        self._sample_of = sample_of
        self._loop = Loop(session.id)
        self._awaited: dict[str, Item] = {}
        self._begun: set[str] = set()
        self._waiting: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._fault: Exception | None = None
        # Answers go one after the other: the last reply is the last state.
        self._turn = asyncio.Lock()

    @classmethod
    async def begin(cls, plan: Plan, spec: EvalSpec) -> "Attempt":
        """Begin the session of a task, or find it. `spec` then names it in its metadata.

        Raises:
            ValueError: Inspect should run only certain samples, or the task lacks items of the
                bank.
            SextantError: The server refused, or cannot be reached.
        """
        config = spec.config
        if config.limit or config.sample_id or (config.epochs or 1) > 1:
            raise ValueError(
                "Sextant chooses the samples and runs each once: leave out --limit, --sample-id "
                "and --epochs. `stopping` of `adaptive` says how many are run."
            )
        if config.log_samples is False:
            raise ValueError("A retry needs the samples in the log: leave out --no-log-samples.")
        client = plan.connect()
        try:
            sample_of = await plan.samples.by_item(client, plan.bank, spec.task)
            await _require_all(client, plan, sample_of)
            session = await plan.session(client, spec)
        except BaseException:
            await client.aclose()
            raise
        # For whoever reads the log, which is written anew at the end: Inspect has no other place
        # for what is known only once a task runs. Nothing here depends on it.
        spec.metadata = {**(spec.metadata or {}), "sextant_session": session.id}
        return cls(plan, client, session, sample_of)

    async def answered(self) -> list[str]:
        """Samples that were answered before; failed ones are not run again."""
        steps = await self._client.list_responses(self.session.id)
        return [self._sample(s.item_id) for s in steps if s.outcome not in {None, "error"}]

    async def awaited(self) -> list[str]:
        """Samples that the session waits for and that were not begun here."""
        return [] if self.session.ended else await self._advanced(self._loop.awaited())

    async def ran(self, sample: EvalSample) -> list[str]:
        """Send the result of a sample; returns the samples to begin next."""
        who = self._plan.examinee
        is_agent = who is not None and who.kind == "agent"
        return await self.tell(sample.id, answer_of(sample, self._plan.scorer, is_agent=is_agent))

    async def tell(self, sample: int | str, answer: Answer) -> list[str]:
        """Send an answer; nothing changes if an earlier attempt sent it already."""
        item = self._awaited.pop(str(sample), None)
        return [] if item is None else await self._advanced(self._loop.tell(item, answer))

    async def comes(self, sample: int | str) -> bool:
        """Wait until the session asks for a sample, or ends; returns whether it asks."""
        if not self._is_over:
            await self._waiting[str(sample)].wait()
        return str(sample) in self._begun

    def fail(self, fault: Exception) -> None:
        """Begin no more samples; `end` raises the error."""
        self._fault = self._fault or fault
        self._call()

    async def end(self) -> None:
        """Close the connection, and check that the session has a result.

        Raises:
            RuntimeError: It has none.
        """
        await self._client.aclose()
        if self._fault is not None:
            raise self._fault
        session = self.session
        if session.status != "completed":
            why = session.stop_detail or ""
            if session.failure and session.failure.detail not in why:
                why = f"{why} {session.failure.detail}".strip()
            raise RuntimeError(f"Session {session.id} of Sextant is {session.status}: {why}")

    def figures(self) -> dict[str, float]:
        """The results so far."""
        score, ability = self.session.score, self.session.estimate
        told: dict[str, float | None] = {}
        if score is not None:
            told = {"score": score.value, **_ends("score", score.interval)}
            told["equivalent_random_items"] = score.equivalent_random_items
        told |= {"theta": ability.theta, "theta_se": ability.se}
        told |= _ends("theta", ability.interval)
        return {name: float(value) for name, value in told.items() if value is not None}

    async def _advanced(self, flow: Begun) -> list[str]:
        async with self._turn:
            items = await self._client.run(flow)
            self.session = self._loop.session or self.session
        begun = {self._sample(item.item.id): item for item in items}
        self._awaited |= begun
        self._begun |= begun.keys()
        self._call()
        return list(begun)

    @property
    def _is_over(self) -> bool:
        return self.session.ended or self._fault is not None

    def _call(self) -> None:
        for sample in list(self._waiting) if self._is_over else self._begun:
            self._waiting[sample].set()

    def _sample(self, item: str) -> str:
        if item not in self._sample_of:
            raise ValueError(
                f"Session {self.session.id} asks item {item!r}, which is not a sample of the task."
            )
        return self._sample_of[item]


async def _require_all(client: AsyncSextant, plan: Plan, sample_of: Mapping[str, str]) -> None:
    """Refuse a task that lacks items of its bank, before anything is asked."""
    bank = await client.request("GET", f"/v1/banks/{quote(plan.bank, safe='')}")
    version = bank["latest_version"]
    asked = version["lint"]["items"]["active"]
    if len(sample_of) < asked:
        by = "content" if version["has_content"] else "id"
        raise ValueError(
            f"Expected a sample for each of the {asked} items of bank {bank['name']!r}, by {by}: "
            f"{len(sample_of)} of the task's {len(plan.samples.by_id)} samples are among them."
        )


def _ends(name: str, known: Interval | None) -> dict[str, float | None]:
    return {} if known is None else {f"{name}_lo": known.lo, f"{name}_hi": known.hi}


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
