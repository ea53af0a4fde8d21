"""Sessions scored by models that the scorer calls over real HTTP."""

from typing import Any

import pytest

from app.calling import GenerationParams
from app.records.endpoints import Price
from app.records.sessions import SessionRecord
from app.services.container import Services
from tests.services.judged import judged_bank, marker
from tests.services.sessions import answered, by_hand, figures_of, length
from tests.values import not_none
from tests.worker.models import Faults
from tests.worker.sessions import closings, run_session

PLAN = length(12, concurrency=3)


async def judged(services: Services, *, plan: Any = None, **params: Any) -> SessionRecord:
    """Return a session whose answers the saved judge has scored, with these parameters."""
    await judged_bank(services, "judge", judges=["judge"], **params)
    return await run_session(services, bank="judged", plan=plan or PLAN)


async def test_a_session_shows_its_judges_cost_apart(working: Services, judge_url: str) -> None:
    judge = await marker(working, judge_url)

    ended = await judged(working)

    assert ended.status == "completed", ended.failure
    assert figures_of(ended)["outcomes"]["scored"] == 12
    usage = figures_of(ended)["usage"]
    assert usage["judge"]["calls"] == 12
    assert usage["judge"]["tokens_in"] > 12 * 50
    assert usage["judge"]["usd"] > 0
    assert usage["usd"] is None  # the examinee has no price, the judge has
    assert ended.provenance["scorer_endpoints"]["judge"]["id"] == judge.id
    for closing in (await closings(working, ended)).values():
        marking: Any = closing.marking
        assert marking["judgements"][0]["model"] == "sextant-judge"
        assert len(marking["prompt_hash"]) == 64
        assert closing.score in (0.0, 1.0)


async def test_what_a_judge_writes_can_always_be_stored(working: Services, faults: Faults) -> None:
    said = {"role": "assistant", "content": r'{"score": 9, "reason": "go\u0000od \ud800"}'}
    faults.canned("odd", {"model": "m", "choices": [{"message": said, "finish_reason": "stop"}]})
    await marker(working, faults.at("odd"))

    ended = await judged(working)

    assert ended.status == "completed", ended.failure
    for closing in (await closings(working, ended)).values():
        assert closing.extracted == "9: go\ufffdod ?"
        marking: Any = closing.marking
        assert marking["judgements"][0]["reason"] == "go\ufffdod ?"


@pytest.mark.parametrize(
    "budget", [{"calls": 5}, {"tokens": 400}, {"usd": 0.005}], ids=lambda budget: next(iter(budget))
)
async def test_a_spent_judge_ends_the_session_without_a_wrong_number(
    working: Services, judge_url: str, budget: dict[str, Any]
) -> None:
    await marker(working, judge_url)

    ended = await judged(working, budget=budget)

    assert (ended.status, ended.stop_reason) == ("completed", "budget_exhausted"), ended.failure
    assert "budget of scorer 'judge'" in not_none(ended.stop_detail)
    found = [*(await closings(working, ended)).values()]
    unmarked = [closing for closing in found if closing.outcome == "error"]
    assert unmarked
    assert {closing.error_code for closing in unmarked} == {"judge_budget_exhausted"}
    assert all(closing.score is None and closing.answer_text for closing in unmarked)
    assert len(found) < 12


async def test_a_judge_without_usage_has_no_budget(working: Services, faults: Faults) -> None:
    said = {"role": "assistant", "content": '{"score": 9, "reason": "good"}'}
    faults.canned("silent", {"choices": [{"message": said, "finish_reason": "stop"}]})
    endless = GenerationParams(max_tokens=None)  # so no amount can be reserved for a judgement
    await marker(working, faults.at("silent"), sampling=endless)

    ended = await judged(working, budget={"tokens": 10**6})

    assert ended.stop_reason == "budget_exhausted"
    assert "does not say what a call took" in (ended.stop_detail or "")


async def test_a_judge_that_reports_no_usage_counts_as_reserved(
    working: Services, monkeypatch: pytest.MonkeyPatch, judge_url: str
) -> None:
    monkeypatch.setattr("app.adapters.endpoint.token_count", lambda _: None)
    await marker(working, judge_url)

    ended = await judged(working, plan={**PLAN, "concurrency": 1}, budget={"usd": 0.05})

    usage = figures_of(ended)["usage"]["judge"]
    assert (usage["tokens_in"], usage["tokens_out"], usage["usd"]) == (None, None, None)
    assert 0 < usage["calls"] < 12
    (marking, *_) = [each.marking for each in (await closings(working, ended)).values()]
    assert (not_none(marking)["at_most"]["usd"] or 0) > 0


async def test_embeddings_score_a_session(working: Services, judge_url: str) -> None:
    await marker(working, judge_url, name="vectors", price=Price(input_per_1m=1.0))
    await judged_bank(working, "embedding", endpoint="vectors", floor=0.5)

    ended = await run_session(working, bank="judged", plan=PLAN)

    assert ended.status == "completed", ended.failure
    usage = figures_of(ended)["usage"]["judge"]
    assert usage["calls"] == 12
    assert usage["tokens_out"] == 0
    assert usage["usd"] == pytest.approx(usage["tokens_in"] / 1e6)


async def test_a_manual_answer_is_judged_too(working: Services, judge_url: str) -> None:
    await marker(working, judge_url)
    await judged_bank(working, "judge", judges=["judge"], budget={"calls": 2})
    record = await by_hand(working, length(5), bank="judged")
    record = await answered(working, record, lambda at: {"response": at.item.content.target[0]})

    found = [*(await closings(working, record)).values()]
    assert [closing.score for closing in found] == [1.0, 1.0, None]
    assert found[2].error_code == "judge_budget_exhausted"
    assert (record.status, record.stop_reason) == ("completed", "budget_exhausted")
    assert figures_of(record)["usage"]["judge"]["calls"] == 2
