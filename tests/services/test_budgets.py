"""Daily budgets: reserved before each call, over all processes, and charged after it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from app.acting import DEFAULT_PROJECT, Acting, acting_for
from app.adapters.base import CompletionRequest
from app.calling import GenerationParams
from app.errors import BudgetSpentError, EndpointFaultError, ExamineeTimeoutError, InvalidInputError
from app.items import Message
from app.records.endpoints import (
    CallLimits,
    Endpoint,
    EndpointSettings,
    Price,
)
from app.records.projects import DaySpend, Taken
from app.records.projects import Limits as ProjectLimits
from app.services.api_keys import ApiKeyService
from app.services.endpoints import budgets as module
from app.services.endpoints.budgets import Budgets, most_tokens, taken
from app.services.projects import ProjectService
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.repositories.spend import SpendRepository
from tests.databases import executed

CALL = Taken(usd=0.3, tokens=300)
TOOK = Taken(usd=0.2, tokens=200)
TIMEOUT_S = 60.0


async def endpoint(database: Database, limits: CallLimits | None = None) -> Endpoint:
    settings = EndpointSettings(
        kind="openai_chat",
        base_url="http://127.0.0.1:9/v1",
        model="m",
        limits=limits or CallLimits(),
        price=Price(input_per_1m=1000.0, output_per_1m=1000.0),
    )
    new = Endpoint(id=new_id("end"), settings=settings)
    async with database.unit_of_work() as uow:
        return await uow.endpoints.add(new)


async def limit(database: Database, limits: ProjectLimits) -> None:
    projects = ProjectService(database)
    found = await projects.find()
    await projects.update(found.id, found.revision, {"limits": limits})


@pytest.fixture
async def who(database: Database) -> Endpoint:
    """An endpoint whose calls cost as much in USD as a thousandth of their tokens."""
    return await endpoint(database)


@pytest.fixture
async def budgets(database: Database) -> AsyncIterator[Budgets]:
    budgets = Budgets(database)
    yield budgets
    await budgets.close()


async def today(database: Database, owner_id: str = DEFAULT_PROJECT) -> DaySpend:
    async with database.reading() as uow:
        return await uow.spend.today(owner_id)


async def call(
    budgets: Budgets, who: Endpoint, took: Taken = TOOK, *, timeout_s: float = TIMEOUT_S
) -> None:
    async with budgets.held(who, CALL, timeout_s=timeout_s) as held:
        held.taken = took


async def asked_to_the_end(
    database: Database, url: str, who: Endpoint, owner_id: str, *, usd: float, tokens: int
) -> tuple[int, list[BudgetSpentError]]:
    """Call from eight sessions in two processes until refused; return calls and refusals."""
    beside = Database(url, pool_size=4)
    calls = 0
    refusals: list[BudgetSpentError] = []

    async def ask(budgets: Budgets) -> None:
        nonlocal calls
        while True:
            try:
                async with budgets.held(who, CALL, timeout_s=TIMEOUT_S) as held:
                    found = await today(database, owner_id)
                    assert found.usd + found.usd_reserved <= usd + 1e-9
                    assert found.tokens + found.tokens_reserved <= tokens
                    calls += 1
                    held.taken = TOOK
            except BudgetSpentError as error:
                if not error.passes:
                    refusals.append(error)
                    return
                await asyncio.sleep(0.01)  # calls that ended are settled after a moment

    try:
        processes = [Budgets(database), Budgets(beside)]
        async with asyncio.timeout(240):
            await asyncio.gather(*(ask(processes[n % 2]) for n in range(8)))
        for budgets in processes:
            await budgets.close()
    finally:
        await beside.dispose()
    return calls, refusals


async def test_parallel_calls_of_two_processes_never_take_more_than_there_is(
    database: Database, database_url: str, who: Endpoint
) -> None:
    await limit(database, ProjectLimits(usd_per_day=2.0))
    calls, refusals = await asked_to_the_end(
        database, database_url, who, DEFAULT_PROJECT, usd=2.0, tokens=10_000
    )
    # 1.8 USD: another call might take 0.3.
    assert calls == 9
    spent = await today(database)
    assert spent.usd == pytest.approx(1.8)
    assert spent.tokens == 1800
    assert (spent.usd_reserved, spent.tokens_reserved) == (0, 0)
    assert (await today(database, who.id)).usd == pytest.approx(1.8)
    assert str(refusals[0]) == (
        f"The project's budget of 2.00 USD for {datetime.now(UTC).date()} (UTC) is spent: "
        "0.20 USD are left, and the next call may take 0.30 USD. It continues tomorrow, or when "
        "the budget is raised."
    )


async def test_an_endpoint_has_its_budget(
    database: Database, budgets: Budgets, who: Endpoint
) -> None:
    poor, rich = await endpoint(database, CallLimits(tokens_per_day=400)), who
    await call(budgets, poor)
    with pytest.raises(BudgetSpentError, match=r"budget of 400 tokens .* 200 tokens are left"):
        await call(budgets, poor)
    await call(budgets, rich)
    await budgets.close()
    assert (await today(database, poor.id)).tokens == 200
    assert (await today(database, rich.id)).tokens == 0  # nothing is counted where no budget is set


async def test_a_key_has_a_budget_of_its_own_over_all_processes(
    database: Database, database_url: str, budgets: Budgets, who: Endpoint
) -> None:
    keys = ApiKeyService(database)
    few = ProjectLimits(tokens_per_day=2000)
    poor, _ = await keys.create(name="poor", scopes=["run"], limits=few)
    free, _ = await keys.create(name="free", scopes=["run"])
    with acting_for(Acting(DEFAULT_PROJECT, poor.id)):
        calls, refusals = await asked_to_the_end(
            database, database_url, who, poor.id, usd=10.0, tokens=2000
        )
        with pytest.raises(BudgetSpentError):
            await call(budgets, who)
        with pytest.raises(BudgetSpentError):
            budgets.require_hope(who)
    assert calls == 9  # another call might take 300 of the remaining 200
    assert str(refusals[0]).startswith("The key's budget of 2,000 tokens for")
    for other in (free.id, None):
        with acting_for(Acting(DEFAULT_PROJECT, other)):
            budgets.require_hope(who)
            await call(budgets, who)
    await budgets.close()
    assert (await today(database, poor.id)).tokens == 1800
    assert (await today(database, free.id)).tokens == 0  # nothing is counted where no budget is set


async def test_what_a_key_spends_counts_for_its_project_too(
    database: Database, budgets: Budgets, who: Endpoint
) -> None:
    await limit(database, ProjectLimits(usd_per_day=0.4))
    keys = ApiKeyService(database)
    key, _ = await keys.create(name="k", scopes=["run"], limits=ProjectLimits(usd_per_day=0.4))
    boss, _ = await keys.create(name="boss", scopes=["admin"])
    with acting_for(Acting(DEFAULT_PROJECT, boss.id)):
        await call(budgets, who, Taken(usd=0.05, tokens=50))
    with acting_for(Acting(DEFAULT_PROJECT, key.id)):
        await call(budgets, who)
        with pytest.raises(BudgetSpentError, match=r"The project.s budget of 0\.40 USD"):
            await call(budgets, who)
    await budgets.close()
    assert (await today(database)).usd == pytest.approx(0.25)
    assert (await today(database, key.id)).usd == pytest.approx(0.2)
    # Calls with a key of all projects count for the project it works in.
    assert (await today(database, boss.id)).usd == 0


async def test_budgets_reset_each_day_and_can_be_raised(
    database: Database, budgets: Budgets, who: Endpoint
) -> None:
    await limit(database, ProjectLimits(tokens_per_day=300))
    await call(budgets, who)
    with pytest.raises(BudgetSpentError, match="is spent"):
        await call(budgets, who)
    await executed(database, "UPDATE spend SET day = day - 1")
    await call(budgets, who)
    with pytest.raises(BudgetSpentError, match="is spent"):
        await call(budgets, who)
    await limit(database, ProjectLimits(tokens_per_day=500))
    await call(budgets, who)


async def test_a_killed_process_spends_its_reservations_and_a_stopped_one_its_calls(
    database: Database, who: Endpoint
) -> None:
    await limit(database, ProjectLimits(usd_per_day=0.4))
    killed, alive = Budgets(database), Budgets(database)
    halted = killed.held(who, CALL, timeout_s=TIMEOUT_S)
    held = await halted.__aenter__()
    with pytest.raises(BudgetSpentError) as refused:
        await call(alive, who)
    assert refused.value.passes

    await executed(database, "UPDATE reservations SET lapses_at = now() - interval '1 s'")
    with pytest.raises(BudgetSpentError, match=r"is spent: 0\.10 USD are left") as refused:
        await call(alive, who)
    assert not refused.value.passes
    for owner in (DEFAULT_PROJECT, who.id):
        lost = await today(database, owner)
        assert (lost.usd_reserved, lost.tokens) == (0, 300)
        assert lost.usd == pytest.approx(0.3)

    held.taken = Taken(usd=0.1, tokens=100)
    await halted.__aexit__(None, None, None)
    await killed.close()
    assert (await today(database)).usd == pytest.approx(0.1)

    again = Budgets(database)  # the other one waits after a refusal
    await again.held(who, CALL, timeout_s=TIMEOUT_S).__aenter__()
    await executed(database, "UPDATE reservations SET lapses_at = now() - interval '25 h'")
    async with database.reading() as uow:
        await uow.spend.purge()
    assert (await today(database)).usd == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("error", "usd"), [(EndpointFaultError("503"), 0.0), (ExamineeTimeoutError("late"), 0.3)]
)
async def test_a_failure_counts_where_it_may_be_paid(
    database: Database, budgets: Budgets, who: Endpoint, error: Exception, usd: float
) -> None:
    await limit(database, ProjectLimits(usd_per_day=1.0))
    with pytest.raises(type(error)):
        async with budgets.held(who, CALL, timeout_s=TIMEOUT_S):
            raise error
    await budgets.close()
    assert (await today(database)).usd == usd


@pytest.mark.parametrize("stops", [False, True])
async def test_a_call_that_ends_while_others_are_settled_is_settled_by_itself(
    database: Database,
    budgets: Budgets,
    who: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    stops: bool,
) -> None:
    monkeypatch.setattr(module, "_SETTLED_WITHIN_S", 0.0)
    begun, go_on = asyncio.Event(), asyncio.Event()
    settle = SpendRepository.settle

    async def held_up(spend: SpendRepository, project_id: str, used: Mapping[str, Taken]) -> None:
        begun.set()
        await go_on.wait()
        await settle(spend, project_id, used)

    monkeypatch.setattr(SpendRepository, "settle", held_up)
    await limit(database, ProjectLimits(usd_per_day=1.0))
    await call(budgets, who)
    await begun.wait()
    await call(budgets, who)
    assert budgets._settling is not None
    go_on.set()
    async with asyncio.timeout(240):
        await (budgets.close() if stops else budgets._settling)
    assert (await today(database)).usd == pytest.approx(0.4)


async def test_settling_again_is_free(database: Database, budgets: Budgets, who: Endpoint) -> None:
    await limit(database, ProjectLimits(usd_per_day=1.0))
    await call(budgets, who)
    ended = {project: dict(calls) for project, calls in budgets._ended.items()}
    await budgets.close()
    async with database.reading() as uow:
        await uow.spend.settle(DEFAULT_PROJECT, ended[DEFAULT_PROJECT])
    assert (await today(database)).usd == pytest.approx(0.2)


async def test_unbounded_calls_are_refused(
    database: Database, budgets: Budgets, who: Endpoint
) -> None:
    settings, free = who.settings, replace(who.settings, price=Price())
    key, _ = await ApiKeyService(database).create(
        name="k", scopes=["run"], limits=ProjectLimits(usd_per_day=1.0)
    )
    without_limits = Budgets(database)
    await without_limits.require_bounds(free, DEFAULT_PROJECT)
    with (
        acting_for(Acting(DEFAULT_PROJECT, key.id)),
        pytest.raises(InvalidInputError, match="has no price, so the key's budget"),
    ):
        await without_limits.require_bounds(free, DEFAULT_PROJECT)
    await limit(database, ProjectLimits(usd_per_day=1.0))
    await budgets.require_bounds(settings, DEFAULT_PROJECT)
    await budgets.require_bounds(replace(free, kind="scripted"), DEFAULT_PROJECT)
    with pytest.raises(InvalidInputError, match="has no price, so the project's budget"):
        await budgets.require_bounds(free, DEFAULT_PROJECT)
    endless = replace(settings, sampling=GenerationParams(max_tokens=None))
    with pytest.raises(InvalidInputError, match=r"has no sampling.max_tokens"):
        await budgets.require_bounds(endless, DEFAULT_PROJECT)


def test_a_reservation_exceeds_the_cost_of_its_call() -> None:
    settings = EndpointSettings(
        kind="openai_chat",
        price=Price(input_per_1m=1e6),
        sampling=GenerationParams(max_tokens=5),
    )
    request = CompletionRequest(messages=(Message("user", "né?"),))
    most = taken(settings, *most_tokens(request, settings))
    assert most == Taken(usd=4.0 + 16 + 16, tokens=4 + 16 + 16 + 5)
    assert taken(settings, 3, 4) == Taken(usd=3.0, tokens=7)
    assert taken(settings, None, 4) == Taken()
    assert taken(settings, 9, None) == Taken()


def test_calls_that_cost_nothing_reserve_no_money() -> None:
    """A callback writes no answer either, so its bound is no token."""
    request = CompletionRequest(messages=(Message("user", "mark"),))
    for kind, tokens in (("scripted", 4 + 16 + 16 + 5), ("callback", 0)):
        settings = EndpointSettings(kind=kind, sampling=GenerationParams(max_tokens=5))
        most = taken(settings, *most_tokens(request, settings))
        assert most == Taken(usd=0.0, tokens=tokens)


async def test_old_rows_are_deleted(database: Database, budgets: Budgets, who: Endpoint) -> None:
    await limit(database, ProjectLimits(usd_per_day=1.0))
    await call(budgets, who)
    await budgets.close()
    await executed(database, "UPDATE spend SET day = day - 101 WHERE owner_id LIKE 'end%'")
    async with database.reading() as uow:
        await uow.spend.purge()
    assert await executed(database, "SELECT owner_id FROM spend") == [(DEFAULT_PROJECT,)]
