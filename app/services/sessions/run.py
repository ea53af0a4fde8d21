"""One adaptive test as it runs: which items it asks, what each answer changes. No I/O.

A `SessionRun` does no I/O. `ManualSessions` and `SessionRunner` (live endpoints) drive it and store
its results. A run that is opened again from the stored administrations equals the lost one bit for
bit.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from app.engine import AdaptiveTest, CatState, ItemIndex, Response, Stop, StopReason, Usage
from app.engine.multidimensional import ProfileBelief
from app.engine.prediction.p_irt import ALL_ITEMS, Prediction
from app.engine.prediction.sample_size import equivalent_random_items, items_for
from app.engine.prediction.targets import WHOLE_BANK
from app.items import Json, Outcome
from app.records.fields import finite, interval
from app.records.figures import ExtrapolationFigures, ProfileFigures, SessionFigures, StoredScore
from app.records.sessions import (
    Administration,
    Advance,
    Closing,
    Ending,
    NewSession,
    SelectedItem,
    SessionEvent,
    SessionRecord,
)
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService
from app.services.endpoints.specs import price_in
from app.services.sessions.figures import (
    Meter,
    SpareTime,
    no_result,
    outcomes_in,
    person_fit_of,
    position_of,
    profile_of,
    right_in,
    shown,
)
from app.services.sessions.plan import (
    Advice,
    Failures,
    PretestItems,
    SessionPlan,
    ended_event,
    ending_of,
)

#: Largest age in seconds of the prediction in a step, even if the worker has no time to spare: on a
#: large bank, a prediction costs more than the rest of the step.
OLDEST_PREDICTION_S = 2.0
#: In larger banks, the whole-bank score is predicted only at the end of the test, because this
#: takes a pass over the bank.
LIVE_PREDICTION_MAX_ITEMS = 10_000
#: What the event of an answer tells of it.
_TOLD_OF_ANSWER = ("outcome", "score", "extracted", "reason", "latency_ms")


class SessionRun:
    """The state of one running session.

    Attributes:
        steps: All items, also pretest items, by the step that asked them.
        pending: Those of them that are not closed.
        score: Predicted score as of the last summary; None without a result.
        population_position: Position among the reference models as of the last summary.
    """

    def __init__(
        self,
        session: SessionRecord | NewSession,
        administrations: Sequence[Administration] = (),
        *,
        test: AdaptiveTest,
        plan: SessionPlan,
        version: LoadedVersion,
        spare: SpareTime | None = None,
    ) -> None:
        self._spare = spare or SpareTime()
        self.plan = plan
        self.test = test
        self.version = version
        self._seed = session.seed
        self._advice = Advice.on(session)
        self._failures = Failures(plan.failures, self._advice)
        self.steps: dict[int, ItemIndex] = {}
        self.pending: dict[int, ItemIndex] = {}
        self._outcomes: Counter[str] = Counter()
        self._precise_since: int | None = None
        self._predicts_live = version.bank.n_items <= LIVE_PREDICTION_MAX_ITEMS
        self.meter = Meter(plan.budget)
        self.score: StoredScore | None
        self._margin: float | None
        self._profile: ProfileFigures | None
        self.population_position: ExtrapolationFigures | None
        self.forget_figures()
        self._pretest = PretestItems(plan.pretest, plan.stopping, seed=session.seed)
        self.state: CatState = test.start()
        for effort in session.provenance.get("dropped", ()):
            # What an answer took that is no answer of this session.
            closing = Closing(**effort)
            usage, n = self.state.usage + _usage(closing), self.state.n_dropped + 1
            self.state = replace(self.state, usage=usage, n_dropped=n)
            self.meter.take(closing, None)
        for item in administrations:
            self._administer(item.step, ItemIndex(item.position), item.probability)
        arrived = {item.arrival: item for item in administrations if item.arrival is not None}
        for _, item in sorted(arrived.items()):
            if item.closing is not None:
                self._absorb(item.step, item.closing)

    @property
    def precision_reached(self) -> bool | None:
        """Whether the SE of theta and the margin of the score reach the targets of the design.

        None if the design has no such target.
        """
        stopping = self.plan.stopping
        if stopping.se is None and stopping.score_margin is None:
            return None
        if no_result(self.state.n_scored) is not None:
            return False
        if stopping.se is not None and self.state.belief.se > stopping.se:
            return False
        wanted = stopping.score_margin
        return wanted is None or self.test.predict(self.state).margin <= wanted

    def forget_figures(self) -> None:
        """Discard all figures, so that the next summary computes them as in a newly opened run."""
        self._information = math.inf
        self.score = self._margin = self._profile = self.population_position = None
        self._predicted_at_s = -math.inf

    def blocked(self) -> Stop | None:
        """Why this examinee can be asked nothing more, whatever the test says; else None."""
        scored, parsed = len(self.state.responses), self._outcomes[Outcome.SCORED]
        stop = self._failures.stop(closed=self._closed, scored=scored, parsed=parsed)
        if stop is not None:
            return stop
        if self.meter.is_blind:
            return Stop(
                StopReason.BUDGET_EXHAUSTED,
                "The endpoint, or the client, does not say how many tokens an answer took or what "
                "it cost, so the budget cannot be kept: it counts as spent.",
            )
        return None

    def choose(self, *, elapsed_s: float) -> tuple[list[SelectedItem], Stop | None]:
        """Choose new items until as many as allowed are in flight, and why there are no more."""
        asked: list[SelectedItem] = []
        while len(self.pending) < self.state.may_be_pending(self.plan.concurrency):
            if (stop := self.blocked()) is not None:
                return asked, stop
            # Pretest items do not count here, so the test is the same with or without them.
            nth = self.state.n_asked
            decision = self.test.ask(
                self.state, np.random.default_rng([self._seed, nth + 1]), elapsed_s=elapsed_s
            )
            if isinstance(decision, Stop):
                return asked, decision
            due = self._pretest.due(nth)
            if due is None:
                asked.append(self.ask_item(decision.item, decision.probability))
            else:
                step = len(self.steps) + 1
                self._administer(step, ItemIndex(due))
                asked.append(SelectedItem(step=step, position=due))
        return asked, None

    def ask_item(self, item: ItemIndex, probability: float) -> SelectedItem:
        """Note an item as asked that this run chose or, in a ranking, that all members get."""
        step = len(self.steps) + 1
        theta = self.state.belief.theta
        self._information = float(self.test.bank.information(theta, [item])[0])
        self._administer(step, item, probability)
        return SelectedItem(
            step=step, position=int(item), information=self._information, probability=probability
        )

    def close(self, step: int, closing: Closing) -> Closing:
        """Take in the closing of an item, and return it with theta and SE after it."""
        self._absorb(step, closing)
        belief = self.state.belief
        return replace(closing, theta=finite(belief.theta), se=finite(belief.se))

    def summary(self, *, elapsed_s: float, final: bool = False) -> SessionFigures:
        """The figures of `GET /v1/sessions/{id}` as of now."""
        estimate = self.test.estimate(self.state)
        is_old = elapsed_s - self._predicted_at_s >= OLDEST_PREDICTION_S
        has_result = no_result(self.state.n_scored) is None
        is_first = has_result and self._predicts_live and self.score is None
        if final or is_old or is_first or self._spare.is_left():
            with self._spare.spent():
                self.score = self._margin = self._profile = self.population_position = None
                about = self.version, self.test, self.state, self.plan.selection.target
                predicts = final or self._predicts_live
                if predicts and self.state.responses:
                    predicted = self.test.predict(self.state)
                    # Few answers give no result, but tell how many more are needed.
                    self._margin = predicted.margin
                    self.score = self._score(predicted) if has_result else None
                if has_result:
                    self.population_position = position_of(*about) if predicts else None
                    self._profile = profile_of(*about)
            self._predicted_at_s = elapsed_s
        figures: SessionFigures = {
            "estimate": {
                "theta": finite(estimate.theta),
                "se": finite(estimate.se),
                "interval": interval(estimate.lo, estimate.hi),
                "interval_raw": estimate.raw and interval(*estimate.raw),
                "method": estimate.method,
                "at_bound": estimate.at_bound,
                "extrapolation": self.population_position,
            },
            "score": self.score,
            "profile": self._profile,
            "progress": {
                "items": self._closed,
                "scored": len(self.state.responses),
                **right_in([response.score for response in self.state.responses]),
                "in_flight": len(self.state.pending),
                "expected_items": self._closed if final else self._expected_items(),
            },
            "usage": self.meter.figures(elapsed_s),
            "repeats": self.meter.repeats(self.test, self.state),
            "outcomes": outcomes_in(self._outcomes),
            "pretest": self._pretest.figures(),
        }
        if final and self.state.responses:
            belief = self.state.belief
            known = belief.profile.mean if isinstance(belief, ProfileBelief) else estimate.theta
            figures["person_fit"] = person_fit_of(self.version, self.state.responses, known)
        return shown(figures, self.version.theta_withheld)

    def ending(self, stop: Stop) -> Ending:
        """The ending of the session for this reason."""
        return ending_of(
            stop,
            closed=self._closed,
            parsed=self._outcomes[Outcome.SCORED],
            last_failure=self._failures.last,
            precision_reached=self.precision_reached,
            precise_since=self._precise_since,
            min_items=self.plan.stopping.min_items or 0,
            advice=self._advice,
        )

    def step_forward(
        self,
        *,
        closed: dict[int, Closing],
        asked: Sequence[SelectedItem],
        elapsed_s: float,
        ending: Ending | None = None,
        status: str = "running",
    ) -> Advance:
        """All that storage must write for this step: rows, events and figures."""
        figures = self.summary(elapsed_s=elapsed_s, final=ending is not None)
        about: dict[int, dict[str, Json]] = {
            step: {
                "step": step,
                "item_id": self.version.key_at(self.steps[step]),
                "pretest": self.version.is_pretest(self.steps[step]),
            }
            for step in (*closed, *(item.step for item in asked))
        }
        events = [
            SessionEvent(
                "response.received",
                about[step] | {name: getattr(closing, name) for name in _TOLD_OF_ANSWER},
            )
            for step, closing in closed.items()
        ]
        if closed:
            told = {name: figures[name] for name in ("estimate", "score", "progress", "usage")}
            events.append(SessionEvent("estimate.updated", told))
        events += [
            SessionEvent(
                "session.item_selected", about[item.step] | {"information": item.information}
            )
            for item in asked
        ]
        if ending is not None:
            events.append(ended_event(ending, figures))
        return Advance(
            closed=closed,
            asked=asked,
            events=events,
            summary=figures,
            status=status,
            active_s=elapsed_s,
            ending=ending,
        )

    @property
    def _closed(self) -> int:
        return self.state.n_asked - len(self.state.pending)

    def _administer(self, step: int, item: ItemIndex, probability: float | None = None) -> None:
        if self.version.is_pretest(item):
            self._pretest.ask(item)
        else:
            # Items of older sessions have no stored sampling probability.
            self.state = self.state.with_pending(item, probability or 1.0)
        self.steps[step] = self.pending[step] = item

    def _absorb(self, step: int, closing: Closing) -> None:
        item = self.pending.pop(step)
        usage, is_pretest = _usage(closing), self.version.is_pretest(item)
        if is_pretest:
            # A pretest item counts towards the budget, but does not affect the test otherwise.
            self._pretest.close(item, closing)
            self.state = replace(self.state, usage=self.state.usage + usage)
        else:
            if closing.score is None:
                self.state = self.state.with_unscored(item, usage)
            else:
                self.state = self.test.tell(self.state, Response(item, closing.score, usage))
                target = self.plan.stopping.se
                if target is None or self.state.belief.se > target:
                    self._precise_since = None
                elif self._precise_since is None:
                    self._precise_since = self.state.n_scored
            self._failures.take(closing)
            self._outcomes[closing.outcome] += 1
        self.meter.take(closing, None if is_pretest else int(item))

    def _score(self, predicted: Prediction) -> StoredScore:
        is_known, agents = predicted.method == ALL_ITEMS, self.version.recent_agents
        target = self.plan.selection.target
        is_of_all = set(target or (WHOLE_BANK,)) == {WHOLE_BANK}
        askable, weights = self.version.active, self.test.weights
        if weights is not None:
            askable = askable & (weights > 0.0)
        return {
            "value": predicted.value,
            "interval": None if is_known else interval(predicted.lo, predicted.hi),
            "equivalent_random_items": equivalent_random_items(
                predicted.value,
                predicted.margin,
                self.test.n_counted,
                np.array([one.score for one in self.state.responses]),
            ),
            "interval_raw": predicted.raw and interval(*predicted.raw),
            "nonresponse": predicted.nonresponse,
            "method": predicted.method,
            "target": target,
            "recent": agents.rank(predicted.value) if agents and is_of_all else None,
            "n_items": self.test.n_counted,
            "n_askable": int(np.count_nonzero(askable)),
        }

    def _expected_items(self) -> int | None:
        """Expected number of items at the end, if precision improves as now; None if unknown.

        No test ends for precision before `min_items` scored answers. The expected share of answers
        without a score is that of the answers so far.
        """
        stopping, scored, se = self.plan.stopping, self.state.n_scored, self.state.belief.se
        if stopping.se is not None and 0 < se < math.inf and 0 < self._information < math.inf:
            missing = math.ceil((1 / stopping.se**2 - 1 / se**2) / self._information)
        elif stopping.score_margin is not None and self._margin is not None and scored:
            wanted, n_items = stopping.score_margin, self.test.n_counted
            enough = items_for(wanted, reached=self._margin, n_asked=scored, n_items=n_items)
            missing = enough - scored
        else:
            return None
        more = max(0, missing, (stopping.min_items or 0) - scored)
        expected = self._closed + math.ceil(more * self._closed / scored if scored else more)
        ceilings = (stopping.max_items, self.version.n_active)
        return min(expected, *(ceiling for ceiling in ceilings if ceiling is not None))


async def open_run(
    versions: VersionService,
    session: SessionRecord | NewSession,
    administrations: Sequence[Administration] = (),
    *,
    version: LoadedVersion | None = None,
    plan: SessionPlan | None = None,
    spare: SpareTime | None = None,
) -> SessionRun:
    """Open the run of a session from its stored answers.

    Raises:
        InvalidInputError: The design cannot be built on the bank version.
        NotFoundError: The bank version does not exist.
    """
    if version is None:
        version = await versions.load_as(session.bank_version_id, session.provenance["asking"])
    if plan is None:
        plan = SessionPlan.from_dict(session.design)
    test = await versions.adaptive_test(version, plan.design, price_in(session.provenance))
    return SessionRun(session, administrations, test=test, plan=plan, version=version, spare=spare)


def _usage(closing: Closing) -> Usage:
    tokens = (closing.tokens_in or 0) + (closing.tokens_out or 0)
    return Usage(usd=closing.usd or 0.0, tokens=tokens, calls=closing.attempts or 0)
