"""Sessions that exhaust a daily budget: they wait, say why, and continue when it is raised."""

from dataclasses import replace

import pytest

from app.acting import DEFAULT_PROJECT, Acting, acting_for
from app.engine.ranking.rules import RankingBudget
from app.records.endpoints import CallLimits, Price
from app.records.projects import Limits as ProjectLimits
from app.services.api_keys import ApiKeyService
from app.services.container import Services
from app.services.endpoints import budgets, calls
from app.services.endpoints.specs import EndpointChange
from app.services.visibility import UNTOLD, View
from app.worker.loop import running_worker
from tests.services.rankings import contest, members_of, ranked
from tests.services.sessions import scripted, spec, until
from tests.waiting import waiting
from tests.worker.sessions import closings


@pytest.fixture(autouse=True)
def _looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "BUDGET_LOOK_S", 0.05)
    monkeypatch.setattr(budgets, "_REFUSED_S", 0.01)
    monkeypatch.setattr(budgets, "_KEPT_S", 0.01)


async def test_a_session_waits_for_its_budget_to_be_raised(services: Services) -> None:
    dear = Price(input_per_1m=1e6, output_per_1m=1e6)
    settings = {"name": "model", "price": dear, "limits": CallLimits(usd_per_day=1300.0)}
    saved = await services.endpoints.create(scripted(settings, theta=0.5, seed=3))
    made = await services.sessions.create(spec(endpoint=None, endpoint_id=saved.id))
    async with running_worker(services):
        waiting = await until(services, made.id, "waiting")
        reason = waiting.waiting_reason or ""
        assert "The endpoint's budget of 1,300.00 USD" in reason
        assert "It continues tomorrow, or when the budget is raised." in reason
        change = EndpointChange(settings={"limits": CallLimits(usd_per_day=1e6)})
        await services.endpoints.update(saved.id, change, expected_revision=1)
        ended = await until(services, made.id, "completed")
    assert (ended.waiting_until, ended.waiting_reason) == (None, None)
    found = (await closings(services, ended)).values()
    assert [(closing.outcome, closing.attempts) for closing in found] == [("scored", 1)] * 12
    await services.endpoints.budgets.close()
    _, spent = await services.endpoints.spend(saved.id)
    assert spent.usd == pytest.approx(sum(closing.usd or 0.0 for closing in found))
    assert spent.usd > 0


async def test_the_key_that_adds_a_member_pays_for_its_questions(services: Services) -> None:
    keys = ApiKeyService(services.database)
    boss, _ = await keys.create(name="boss", scopes=["run"])
    poor, _ = await keys.create(name="poor", scopes=["run"], limits=ProjectLimits(tokens_per_day=1))
    with acting_for(Acting(DEFAULT_PROJECT, boss.id)):
        made = await services.rankings.create(contest(-1.8, 1.8, asking={"concurrency": 1}))
    async with running_worker(services), waiting(120) as pause:
        await ranked(services, made.id)
        with acting_for(Acting(DEFAULT_PROJECT, poor.id)):
            await services.rankings.join(made.id, scripted(theta=0.0, seed=7), RankingBudget())
        while not (joined := (await members_of(services, made.id))[-1]).waiting_reason:
            await pause()
        shown = await services.rankings.get(made.id)
    assert joined.waiting_reason.startswith("The key's budget of 1 tokens a day is less than")
    assert shown.summary["waiting_reason"] == joined.waiting_reason
    untold = View(is_whole=False).ranking(replace(shown, withheld=True))
    assert untold.summary["waiting_reason"] == UNTOLD
