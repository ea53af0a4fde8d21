"""Rankings: created, read, cancelled, deleted, and continued when another examinee joins."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from app.adapters.prompting import GENERATE, LOGLIKELIHOOD
from app.engine.design.design import Preset
from app.engine.design.parts import BudgetDesign
from app.engine.ranking.ranking import Ranking
from app.engine.ranking.rules import Metric, RankingBudget, RankingRules, usual_criterion
from app.errors import AlreadyExistsError, FieldProblem, InvalidInputError, InvalidStateError
from app.printable import plain
from app.records.endpoints import Endpoint, EndpointSettings, Price
from app.records.rankings import RankingFigures, RankingRecord
from app.records.sessions import Examinee, Plan, PromptChanges, SessionEvent
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService
from app.services.endpoints.service import EndpointService
from app.services.endpoints.specs import EndpointSpec
from app.services.leased import Queue
from app.services.rankings.run import RankingPlan
from app.services.sessions.drafts import require_content, require_theta
from app.services.sessions.plan import SessionPlan
from app.services.sessions.service import SessionService
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.paging import Page, PageRequest

#: Most endpoints of one ranking: the number of pairs to decide grows with its square.
MAX_ENDPOINTS = 64
_SEED_BITS = 31

_WHAT_ANSWERS = ("kind", "base_url", "model", "sampling", "options")

EndpointChoice = str | EndpointSpec | Examinee
"""Id of a saved endpoint, an endpoint to store with the ranking, or an examinee by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingSpec:
    """Request to create a ranking."""

    endpoints: Sequence[EndpointChoice]
    bank_version_id: str | None = None
    bank: str | None = None
    rules: RankingRules = field(default_factory=RankingRules)
    budget: RankingBudget = field(default_factory=RankingBudget)
    asking: Plan = field(default_factory=Plan)
    prompt: PromptChanges = field(default_factory=PromptChanges)
    seed: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, kw_only=True)
class RankingService:
    """Creates, continues, reads, cancels and deletes rankings. `RankingRunner` runs them.

    Raises:
        NotFoundError: There is no such ranking, endpoint or bank version; true of all methods.
    """

    database: Database
    versions: VersionService
    endpoints: EndpointService
    sessions: SessionService
    queue: Queue

    async def create(self, spec: RankingSpec, *, is_admin: bool = False) -> RankingRecord:
        """Create a ranking with a session for each endpoint; nothing is spent yet.

        The ranking waits for a worker, or by hand for its client. With `is_admin`, the caller may
        answer for examinees that other keys named.

        Raises:
            AlreadyExistsError: Another examinee has the name of one that answers by hand.
            MissingScopeError: Another key named an examinee.
            InvalidInputError: Fewer than two endpoints, the same one twice, a budget below the
                cost of the warm-up, or a design that makes no sense for this bank.
        """
        version = await self.versions.load(spec.bank_version_id, bank=spec.bank)
        if spec.rules.metric is Metric.THETA:
            require_theta(version, "/metric")
        budget = spec.budget
        if budget.items is None:
            budget = replace(budget, items=spec.rules.usual_budget(len(spec.endpoints)))
        plan = RankingPlan(
            rules=spec.rules,
            budget=budget,
            asking=_asking(spec, version, budget),
            prompt=spec.prompt,
            by_hand=any(isinstance(chosen, Examinee) for chosen in spec.endpoints),
        )
        endpoints = [
            await self._member(chosen, at=f"/endpoints/{nth}/endpoint", is_admin=is_admin)
            for nth, chosen in enumerate(spec.endpoints)
        ]
        settings = [endpoint.settings for endpoint in endpoints]
        _require_different(settings)
        if not plan.by_hand:
            require_content(version)
        _require_warm_up(plan, version, [each.price for each in settings])
        seed = secrets.randbits(_SEED_BITS) if spec.seed is None else spec.seed
        prompt: PromptChanges = {**self._in_common(version, settings), **spec.prompt}
        members = [
            await self.sessions.draft(
                endpoint, version, plan.asking, prompt=prompt, seed=_seed_of(seed, position)
            )
            for position, endpoint in enumerate(endpoints)
        ]
        # Raises for settings that no ranking can have.
        Ranking(tests=tuple(each.test for each in members), rules=plan.rules, budget=budget)
        figures = members[0].run().summary(elapsed_s=0.0)  # equal for all: nobody has answered
        ranking_id = new_id("rnk")
        try:
            async with self.database.unit_of_work() as uow:
                await uow.rankings.add(
                    ranking_id,
                    bank_version_id=version.id,
                    settings=plan.to_dict(),
                    seed=seed,
                    metadata=spec.metadata,
                )
                # Sorted, so that two requests with the same names cannot wait for each other.
                fresh = [draft.endpoint for draft in members if draft.endpoint is not None]
                for endpoint in sorted(fresh, key=lambda one: one.settings.name or ""):
                    await uow.endpoints.add(endpoint)
                for position, draft in enumerate(members):
                    member = replace(draft.new, ranking_id=ranking_id, ranking_member=position)
                    await uow.sessions.add(member, summary=figures)
                if not plan.by_hand:
                    await self.queue.enqueue(uow, ranking_id, is_new=True)
                return await uow.rankings.get(ranking_id)
        except AlreadyExistsError:
            if not plan.by_hand:
                raise
            # Another request has just named an examinee: try again, as its name is known now.
            return await self.create(spec, is_admin=is_admin)

    async def _member(
        self, chosen: EndpointChoice, *, at: str = "/endpoint", is_admin: bool
    ) -> Endpoint:
        if isinstance(chosen, Examinee):
            return await self.sessions.named(chosen, is_admin=is_admin)
        return await self.endpoints.to_ask(chosen, at=at)

    async def join(
        self,
        ranking_id: str,
        endpoint: EndpointChoice,
        budget: RankingBudget,
        *,
        is_admin: bool = False,
    ) -> RankingRecord:
        """Continue a completed ranking with one more endpoint: only that one is asked.

        Raises:
            InvalidStateError: The ranking is not completed.
            InvalidInputError: The endpoint is a member already, the budget is below the cost of
                the warm-up, or an endpoint is to join named examinees or the reverse.
            AlreadyExistsError: Another examinee has the name of the one that joins.
            MissingScopeError: Another key named the examinee that joins.
        """
        record = await self.get(ranking_id)
        _require_completed(record)
        before = RankingPlan.model_validate(record.settings)
        if isinstance(endpoint, Examinee) != before.by_hand:
            alike = "an examinee" if before.by_hand else "an endpoint"
            detail = f"Ranking {ranking_id} takes {alike}, as all its members are."
            raise InvalidInputError.at("/endpoint" if before.by_hand else "/examinee", detail)
        in_it = [entry["endpoint_id"] for entry in record.summary["order"]]
        if len(in_it) >= MAX_ENDPOINTS:
            raise InvalidInputError(
                f"A ranking has at most {MAX_ENDPOINTS} endpoints; {ranking_id} has {len(in_it)}."
            )
        joining = await self._member(endpoint, is_admin=is_admin)
        settings = [(await self.endpoints.get(each, archived=True)).settings for each in in_it]
        _require_different([*settings, joining.settings])
        caps = BudgetDesign(usd=budget.usd, tokens=budget.tokens)
        asking = before.asking.model_copy(update={"budget": caps})
        asking.estimator.require_useful()
        plan = before.model_copy(update={"budget": budget, "asking": asking})
        version = await self.versions.load(record.bank_version_id)
        _require_warm_up(plan, version, [joining.settings.price])
        async with self.database.reading() as uow:
            members = await uow.sessions.of_ranking(ranking_id)
        asked = members[0].provenance.get("asked", {})
        prompt = {**before.prompt, **({"mode": asked["mode"]} if "mode" in asked else {})}
        draft = await self.sessions.draft(
            joining,
            version,
            plan.asking,
            prompt=cast(PromptChanges, prompt),
            seed=_seed_of(record.seed, len(in_it)),
        )
        # Raises for settings that no ranking can have.
        tests, closed = (draft.test,) * (len(in_it) + 1), frozenset(range(len(in_it)))
        Ranking(tests=tests, rules=plan.rules, budget=budget, closed=closed)
        figures = draft.run().summary(elapsed_s=0.0)
        async with self.database.unit_of_work() as uow:
            record = await uow.rankings.get(ranking_id, for_update=True)
            _require_completed(record)
            if len(record.summary["order"]) != len(in_it):
                raise InvalidStateError(
                    f"Another examinee joined ranking {ranking_id} just now: try again."
                )
            if draft.endpoint is not None:
                await uow.endpoints.add(draft.endpoint)
            member = replace(draft.new, ranking_id=ranking_id, ranking_member=len(in_it))
            await uow.sessions.add(member, summary=figures)
            continued = plan.model_copy(update={"budget": _beyond(record, budget)}).to_dict()
            event = SessionEvent("ranking.joined", {"endpoint_id": draft.new.endpoint_id})
            await uow.rankings.reopen(ranking_id, settings=continued, event=event)
            if not plan.by_hand:
                await self.queue.enqueue(uow, ranking_id)
            return await uow.rankings.get(ranking_id)

    async def get(self, ranking_id: str) -> RankingRecord:
        """One ranking; its summary gives the reason where all sessions in progress wait."""
        async with self.database.reading() as uow:
            record = await uow.rankings.get(ranking_id)
            if record.status != "running" or record.summary.get("waiting_reason"):
                return record
            waiting = await uow.rankings.waiting(ranking_id)
        if waiting is None:
            return record
        until, reason = waiting
        summary: RankingFigures = {
            **record.summary,
            "waiting_until": until.isoformat(),
            "waiting_reason": reason,
        }
        return replace(record, summary=summary)

    async def list_page(
        self, request: PageRequest, *, status: str | None = None, bank_id: str | None = None
    ) -> Page[RankingRecord]:
        """One page of rankings."""
        async with self.database.reading() as uow:
            return await uow.rankings.list_page(request, status=status, bank_id=bank_id)

    async def cancel(self, ranking_id: str) -> RankingRecord:
        """End a ranking with the answers so far; calls in flight are dropped.

        Raises:
            InvalidStateError: The ranking has ended.
        """
        detail = "Cancelled on request; the answers so far are kept."
        async with self.database.unit_of_work() as uow:
            return await uow.rankings.cancel(ranking_id, detail=detail)

    async def end_idle(self) -> list[str]:
        """Cancel the rankings whose client was silent for longer than its idle timeout."""
        detail = "No answer came within idle_timeout; the answers so far are kept."
        async with self.database.unit_of_work() as uow:
            idle = await uow.rankings.idle()
            for ranking_id in idle:
                await uow.rankings.cancel(ranking_id, detail=detail)
        return idle

    async def delete(self, ranking_id: str) -> None:
        """Delete an ended ranking with its members' sessions.

        Raises:
            InvalidStateError: The ranking has not ended.
        """
        async with self.database.unit_of_work() as uow:
            asked = await uow.removals.endpoints_of(ranking_id)
            await uow.rankings.delete(ranking_id)
            await uow.removals.unused(ranking_id, endpoints=asked)

    def _in_common(
        self, version: LoadedVersion, endpoints: Sequence[EndpointSettings]
    ) -> PromptChanges:
        """Prompt mode that all endpoints support: scores compare within one mode only."""
        if version.prompt_style.mode != LOGLIKELIHOOD or not endpoints[0].is_called:
            return {}
        if all(map(self.endpoints.tells_likelihoods, endpoints)):
            return {}
        return {"mode": GENERATE}


def _seed_of(seed: int, position: int) -> int:
    return int(np.random.default_rng([seed, position]).integers(2**_SEED_BITS))


def _asking(spec: RankingSpec, version: LoadedVersion, budget: RankingBudget) -> SessionPlan:
    """Plan of each member's session, whose end the ranking decides.

    The plan has the shared caps, so that an endpoint that hides its cost cannot exceed them.
    """
    rules, selection = spec.rules, spec.asking.get("selection") or {}
    preset, usual = Preset.SCORE, {}
    if rules.metric is Metric.THETA:
        preset, usual = Preset.ABILITY, {"criterion": usual_criterion(version.bank).value}
    return SessionPlan.of_new(
        {
            "preset": preset.value,
            **spec.asking,
            "selection": {**usual, **selection},
            "stopping": {
                "se": None,
                "score_margin": None,
                "min_items": rules.min_items,
                "max_items": rules.max_items,
            },
            "budget": {"usd": budget.usd, "tokens": budget.tokens},
            "pretest": {"items_per_session": 0},
        }
    )


def _require_different(endpoints: Sequence[EndpointSettings]) -> None:
    for position, endpoint in enumerate(endpoints):
        if any(_is_the_same(endpoint, other) for other in endpoints[:position]):
            noun = "endpoint" if endpoint.is_called else "examinee"
            raise InvalidInputError(
                f"{noun.capitalize()} {endpoint.name or endpoint.model or endpoint.kind} is in the "
                "ranking twice; it would tie with itself at twice the cost.",
                problems=[FieldProblem(f"/{noun}s/{position}", f"expected each {noun} once")],
            )


def _is_the_same(one: EndpointSettings, other: EndpointSettings) -> bool:
    """Whether two endpoints would be asked alike; copies with different names count as two."""
    if one.name and other.name and one.name != other.name:
        return False
    if not one.is_called and not other.is_called:  # examinees differ by name alone
        return True
    return all(getattr(one, key) == getattr(other, key) for key in _WHAT_ANSWERS)


def _require_warm_up(plan: RankingPlan, version: LoadedVersion, prices: Sequence[Price]) -> None:
    """Refuse a budget that the warm-up is expected to exceed, where items state their tokens."""
    active = np.flatnonzero(version.active)
    tokens_in = version.expected_tokens_in[active]
    tokens_out = version.expected_tokens_out[active]
    if np.isnan(tokens_in).all() and np.isnan(tokens_out).all():
        return
    into, out = (
        0.0 if np.isnan(tokens).all() else float(np.nanmean(tokens))
        for tokens in (tokens_in, tokens_out)
    )
    items = plan.rules.min_items
    usd = items * sum(price.usd(round(into), round(out)) or 0.0 for price in prices)
    tokens = items * len(prices) * (into + out)
    for cap, expected, unit in (
        (plan.budget.usd, usd, "usd"),
        (plan.budget.tokens, tokens, "tokens"),
    ):
        if cap is not None and expected > cap:
            raise InvalidInputError(
                f"The budget of {plain(cap)} {unit} is too small for the warm-up: {len(prices)} "
                f"examinees x {items} items are expected to take {expected:.4g} {unit}.",
                problems=[FieldProblem(f"/budget/{unit}", f"expected at least {expected:.4g}")],
            )


def _require_completed(record: RankingRecord) -> None:
    if record.status != "completed":
        raise InvalidStateError(
            f"Ranking {record.id} is {record.status}; only a completed one takes another examinee."
        )


def _beyond(record: RankingRecord, budget: RankingBudget) -> RankingBudget:
    """`budget` plus what the ranking has spent already."""
    spent, items = record.summary["usage"], record.summary["progress"]["items"]
    usage = spent.get("at_most") or spent
    tokens = (usage["tokens_in"] or 0) + (usage["tokens_out"] or 0)
    return RankingBudget(
        items=None if budget.items is None else items + budget.items,
        usd=None if budget.usd is None else (usage["usd"] or 0.0) + budget.usd,
        tokens=None if budget.tokens is None else tokens + budget.tokens,
    )
