"""The plan of a session, the failures that end it, and its ending; and its pretest items.

Sessions ask some pretest items to learn about these items, not about the examinee. Pretest items
have no parameters yet, so their positions come after those of the engine's bank. Their answers are
scored, stored and paid for like any others, but do not enter the figures of the test.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any, Self, cast

import numpy as np
from pydantic import ConfigDict, Field, model_validator
from scipy.special import bdtrc
from typing_extensions import override

from app.engine import Design, Stop, StopReason
from app.engine.design.parts import FromJson, Part, Share, StoppingDesign
from app.errors import ScorerBudgetError, SextantError
from app.items import Outcome
from app.records.figures import PretestFigures, ProgressFigures, ResultFigures
from app.records.leased import Failure
from app.records.sessions import (
    REPLAY,
    RESCORE,
    Advance,
    Closing,
    Ending,
    NewSession,
    Plan,
    SessionEvent,
    SessionRecord,
)
from app.services.banks.spec import MAX_PER_SESSION
from app.services.sessions.figures import outcomes_in

#: Reasons that may end a session without a scored answer; others then make it a failed one.
_SPENT = (StopReason.TIME_LIMIT, StopReason.BUDGET_EXHAUSTED)
#: Number of answers of which one must be parsed, though unparseable ones count as wrong.
ITEMS_TO_PARSE_ONE = 20
#: The share of failures is checked from this many closed items on; with fewer, chance is too large.
FIRST_ITEMS_FOR_SHARE = 10
#: With this many items the share itself is compared with the limit. With fewer, the lower end of
#: its 95 % interval (Clopper and Pearson) must not be below the limit.
MIN_ITEMS_FOR_SHARE = 50
_TAIL = 0.025


class FailureLimits(Part):
    """Limits on failures: calls in a row without an answer, and the share of unscored items."""

    model_config = ConfigDict(json_schema_extra=None)  # no preset changes these defaults

    # Answers that the scorer fails to score are not the endpoint's failures: see UNMARKED_PER_CALL.
    max_consecutive: Annotated[int, Field(ge=1, le=10_000)] = 5
    max_share: Share = Field(
        default=0.5,
        description="Largest share of items without a score; above it the session ends. From 10 "
        "items on, the lower end of the share's 95 % interval is compared with it; from 50 items "
        "on, the share itself.",
    )

    @model_validator(mode="before")
    @classmethod
    @override
    def _without_nulls(cls, value: Any) -> Any:
        return value  # null is refused: it would be read as no limit

    def exceeded(self, failed: int, closed: int) -> bool:
        """Whether too many of the closed items ended without a score.

        Chance hardly ever ends a session whose true share is within the limit: of ten items, nine
        must fail at a limit of a half, and seven at a limit of a third.
        """
        if closed < FIRST_ITEMS_FOR_SHARE or failed <= self.max_share * closed:
            return False
        if closed >= MIN_ITEMS_FOR_SHARE:
            return True
        # The probability of at least this many failures if the true share is the limit.
        return bool(bdtrc(failed - 1, closed, self.max_share) <= _TAIL)


#: Unscored answers in a row that weigh as much as one call without an answer: occasional failures
#: of a judge are less of a sign that it is down than those of an endpoint.
UNMARKED_PER_CALL = 2


#: Codes of failures that every further call would repeat, so that the session ends at once.
FATAL_CODES = frozenset(
    f"{who}_{what}"
    for who in ("endpoint", "judge", "embedding", "callback")
    for what in ("unauthorized", "address_blocked", "moved", "no_likelihoods")
)

_START = "Start again with the right address, model and key (sextant run, SEXTANT_ENDPOINT_KEY)"


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do where endpoint, scorer, its budget or answers are at fault, for a session."""

    endpoint: str
    scorer: str
    budget: str
    answers: str

    @classmethod
    def on(cls, session: SessionRecord | NewSession) -> Self:
        """Advice on a session; only an endpoint that is saved can be repaired."""
        origin = session.provenance["endpoint"]
        go_on = f"continue the session (sextant sessions extend {session.id} --max-items N)."
        if origin is None:  # a person or a harness answers
            endpoint = f"Mend what answers, or its scorer, then {go_on}"
        elif origin["name"] is not None:
            endpoint = f"Repair the endpoint, then {go_on}"
        else:
            endpoint = f"{_START}; if these are right, {go_on}"
        rescore = f"rescore the session (sextant sessions rescore {session.id})."
        return cls(
            endpoint=endpoint,
            scorer=f"Repair the scorer, then {rescore}",
            budget=f"Answers without a score are kept: {rescore}",
            answers=f"Read some answers (sextant sessions answers {session.id} --unparsed): the "
            "prompt, max_tokens or the scorer does not fit the model.",
        )


#: Suffix of the error code of an answer without a score because the scorer's budget was spent.
SCORER_BUDGET = f"_{ScorerBudgetError.code}"


class Failures:
    """Counts the failures of one session as its items are closed."""

    def __init__(self, limits: FailureLimits, advice: Advice) -> None:
        self._limits, self._advice = limits, advice
        self._unanswered = self._unmarked = 0
        self.last: Closing | None = None

    def take(self, closing: Closing) -> None:
        """Count the closing of an item of the test."""
        if closing.outcome != Outcome.SCORED:
            self.last = closing
        if closing.outcome != Outcome.ERROR:
            self._unanswered = self._unmarked = 0
        elif closing.marking is None:
            self._unanswered += 1
        else:  # the endpoint has answered, but the scorer's call failed
            self._unanswered, self._unmarked = 0, self._unmarked + 1

    def stop(self, *, closed: int, scored: int, parsed: int) -> Stop | None:
        """Why failures end the session; else None.

        Args:
            closed: Number of closed items.
            scored: Number of those with a score, also as unparseable and so wrong.
            parsed: Number of those whose answer was scored.
        """
        last, advice = self.last, self._advice
        if last is None:
            return None  # all answers were scored
        if (last.error_code or "").endswith(SCORER_BUDGET):
            # The scorer may not spend any more, so further answers would get no score.
            return Stop(StopReason.BUDGET_EXHAUSTED, f"{_reason(last)} {advice.budget}")
        if last.error_code == StopReason.TIME_LIMIT:
            return None  # the server itself gave up these calls: the endpoint has not failed
        if last.error_code in FATAL_CODES and (self._unanswered or self._unmarked):
            is_call = last.error_code.startswith("endpoint")
            todo = advice.endpoint if is_call else advice.scorer
            detail = f"Every further call would fail like the last one: {_reason(last)} {todo}"
        elif self._unanswered >= self._limits.max_consecutive:
            detail = (
                f"{self._unanswered} calls in a row failed; the last: {_reason(last)} "
                f"{advice.endpoint}"
            )
        elif self._unmarked >= UNMARKED_PER_CALL * self._limits.max_consecutive:
            detail = (
                f"{self._unmarked} answers in a row could not be scored; the last "
                f"({last.error_code}): {_reason(last)} {advice.scorer}"
            )
        elif found := _too_many(self._limits, closed=closed, scored=scored, parsed=parsed):
            detail = f"{found} {advice.answers}"
        else:
            return None
        return Stop(StopReason.TOO_MANY_FAILURES, detail)


def _too_many(limits: FailureLimits, *, closed: int, scored: int, parsed: int) -> str | None:
    """Sentence on too many answers without a score; None where the limits hold."""
    failed = closed - scored
    if limits.exceeded(failed, closed):
        share = f"{100 * limits.max_share:g} %"
        return f"{failed} of {closed} answers could not be scored (limit {share})."
    if not parsed and closed >= ITEMS_TO_PARSE_ONE and limits.exceeded(closed, closed):
        return f"None of {closed} answers could be parsed."
    return None


def nothing_to_ask(ended: SessionRecord) -> str | None:
    """Why an extension with the same limits on failures could ask nothing; None where it could.

    It keeps all answers but those that ended in an error. Budget, time and goals do not count.
    """
    if ended.relation == RESCORE:
        return f"It scores {ended.parent_id} again: extend that one, and rescore the result."
    figures = ended.summary
    errors = figures["outcomes"]["error"]
    kept = figures["progress"]["items"] - errors
    # A replay has the reason of its parent, which may have asked a smaller version.
    is_exhausted = ended.stop_reason == StopReason.BANK_EXHAUSTED and ended.relation != REPLAY
    if kept >= ended.provenance["n_items"] or (is_exhausted and not errors):
        return f"All {kept:,} questions that may be asked were asked."
    scored, parsed = figures["progress"]["scored"], figures["outcomes"]["scored"]
    if parsed == kept:
        return None
    limits = FailureLimits.model_validate(ended.design.get("failures", {}))
    found = _too_many(limits, closed=kept, scored=scored, parsed=parsed)
    return None if found is None else f"{found} {Advice.on(ended).answers}"


def _reason(closing: Closing) -> str:
    """Why an answer has no score, as a full sentence."""
    return f"{(closing.reason or 'unknown').rstrip('.')}."


def ending_of(
    stop: Stop,
    *,
    closed: int,
    parsed: int,
    last_failure: Closing | None,
    precision_reached: bool | None,
    precise_since: int | None,
    min_items: int,
    advice: Advice,
) -> Ending:
    """The ending for a reason to stop; after too many failures, or if none is `parsed`, a failure.

    Unparseable answers measure the prompt and the scorer, even where they count as wrong.
    """
    is_failed = stop.reason is StopReason.TOO_MANY_FAILURES
    if not is_failed and closed > 0 and parsed == 0 and stop.reason not in _SPENT:
        is_failed = True
        missed = last_failure or Closing(outcome=Outcome.ERROR)
        is_call = missed.outcome == Outcome.ERROR and missed.marking is None
        todo = advice.endpoint if is_call else advice.answers
        done = "parsed" if missed.outcome == Outcome.UNPARSED else "scored"
        stop = Stop(
            StopReason.TOO_MANY_FAILURES,
            f"None of {closed} answers could be {done}; the last: {_reason(missed)} {todo}",
        )
    detail = stop.detail
    failure: Failure | None = None
    if is_failed:
        failure = {
            "code": (last_failure and last_failure.error_code) or "too_many_failures",
            "detail": (last_failure and last_failure.reason) or detail,
        }
    elif precise_since is not None and precise_since < min_items:
        detail += (
            f" The SE target was reached with answer {precise_since}; min_items {min_items} kept "
            "the test going."
        )
    return Ending(
        status="failed" if is_failed else "completed",
        stop_reason=stop.reason.value,
        stop_detail=detail,
        precision_reached=precision_reached,
        failure=failure,
    )


def failed(error: SextantError) -> Ending:
    """The ending of a session by an error that does not belong to an answer."""
    return Ending(
        status="failed",
        stop_reason=StopReason.CUSTOM.value,
        stop_detail=error.detail,
        precision_reached=None,
        failure={"code": error.code, "detail": error.detail},
    )


def abandoned(record: SessionRecord, ending: Ending) -> Advance:
    """The step to store when a session ends by an error of ours, which drops calls in flight."""
    progress: ProgressFigures = {**record.summary["progress"], "in_flight": 0}
    return Advance(
        events=[ended_event(ending, record.summary)],
        summary={**record.summary, "progress": progress},
        active_s=record.active_s,
        ending=ending,
    )


def ended_event(ending: Ending, figures: ResultFigures) -> SessionEvent:
    """The last event of a session."""
    return SessionEvent(
        f"session.{ending.status}",
        {
            "stop_reason": ending.stop_reason,
            "stop_detail": ending.stop_detail,
            "precision_reached": ending.precision_reached,
            "estimate": figures["estimate"],
            "score": figures["score"],
        },
    )


# Key of this stream of random numbers; a session's others are [seed, step] and [seed, position].
_SLOTS = (0, 0)


class PretestPlan(Part):
    """Pretest items that a session asks beside its test.

    Attributes:
        items_per_session: Most pretest items of the session; None takes the bank's number.
        positions: Positions of the chosen items, in the order of asking.
    """

    items_per_session: Annotated[int, Field(ge=0, le=MAX_PER_SESSION)] | None = None
    positions: FromJson[tuple[int, ...]] = ()


class PretestItems:
    """The pretest items of one session as it runs.

    Each pretest item has a random place among the first items of the test. These are at least
    `min_items`, so that usually all pretest items are asked, and at least twice as many as pretest
    items, so that these do not dominate a short test, but at most `max_items`. The test never
    continues only for them.

    Attributes:
        pending: Positions of the pretest items that wait for an answer.
    """

    def __init__(self, plan: PretestPlan, stopping: StoppingDesign, *, seed: int) -> None:
        window = max(stopping.min_items or 0, 2 * len(plan.positions), 1)
        if stopping.max_items is not None:
            window = min(window, stopping.max_items)
        self._waiting = list(plan.positions)
        self._wanted = plan.items_per_session or 0
        self._n_planned = len(plan.positions)
        draws = np.random.default_rng([seed, *_SLOTS]).integers(0, window, self._n_planned)
        self._slots = sorted(draws.tolist())
        self._outcomes: Counter[str] = Counter()
        self.pending: set[int] = set()

    def due(self, n_asked: int) -> int | None:
        """Position of the pretest item to ask after `n_asked` items of the test; else None."""
        nth = self._n_planned - len(self._waiting)
        return self._waiting[0] if self._waiting and self._slots[nth] <= n_asked else None

    def ask(self, position: int) -> None:
        """Note that an item was asked."""
        if position in self._waiting:  # it is not in a session made from another one's answers
            self._waiting.remove(position)
        self.pending.add(position)

    def close(self, position: int, closing: Closing) -> None:
        """Note that an item was answered, or will not be."""
        self.pending.remove(position)
        self._outcomes[closing.outcome] += 1

    def figures(self) -> PretestFigures:
        """Figures of the pretest items in `GET /v1/sessions/{id}`."""
        caution = None
        if self._n_planned < self._wanted:
            there = f"only {self._n_planned}" if self._n_planned else "no"
            items = "item" if self._n_planned == 1 else "items"
            caution = (
                f"The bank version has {there} {items} without parameters that can be asked beside "
                f"the test; up to {self._wanted} were wanted."
            )
        return {
            "planned": self._n_planned,
            "items": self._outcomes.total(),
            "in_flight": len(self.pending),
            "outcomes": outcomes_in(self._outcomes),
            "caution": caution,
        }


#: Most times that one item may be asked.
MAX_REPEATS = 32
#: Most items in flight in a manual session.
MAX_BY_HAND = 64
_PATIENCE = ("answer_within", "idle_timeout")


class SessionPlan(Design):
    """How a session is run: all fields, with those of the preset, and the session's settings."""

    model_config = ConfigDict(json_schema_extra=None)  # described as stored, not as sent

    failures: FailureLimits = FailureLimits()
    pretest: PretestPlan = PretestPlan()
    #: Times that each item is asked; the mean of the scores is the item's score.
    repeats: Annotated[int, Field(ge=1, le=MAX_REPEATS)] = 1
    #: Whether answers are kept, and kept answers are used instead of calls.
    cache: bool = False
    #: Seconds after which a pending item of a manual session is closed as error.
    answer_within: float | None = None
    #: Seconds of silence after which a manual session ends as cancelled.
    idle_timeout: float | None = None

    @property
    def design(self) -> Design:
        """The design alone, which sessions with other settings share."""
        return Design.model_construct(**{name: getattr(self, name) for name in Design.model_fields})

    @classmethod
    def of_new(cls, asked: Plan) -> Self:
        """Make a plan from a request for a new test or for a replay.

        Raises:
            InvalidInputError: As in `from_dict`, or for settings that only stored tests may have.
        """
        plan = cls.from_dict(asked)
        plan.estimator.require_useful()
        return plan

    @override
    def to_dict(self) -> Plan:  # type: ignore[override]  # with the names of its fields
        """The form in which a session stores its plan."""
        unset = {name for name in _PATIENCE if getattr(self, name) is None}
        return cast(Plan, self.model_dump(mode="json", exclude=unset))
