"""Rescoring: stored answers scored again without calls; the old session stays unchanged."""

import asyncio
from typing import Any

import pytest

from app.errors import InvalidInputError, InvalidStateError, UnknownNameError
from app.items import Answer, ScorerSpec, sha256_of
from app.records.endpoints import Price
from app.records.sessions import SessionRecord
from app.scorers import Scored, build
from app.services.banks.spec import item_scorer
from app.services.container import Services
from app.services.scoring import AnswerScorer
from app.services.sessions.service import AskedAnswer
from app.storage.paging import PageRequest
from app.worker.loop import running_worker
from tests.services.judged import judged_bank, marker
from tests.services.living import BANK, living_bank
from tests.services.sessions import (
    answered,
    by_hand,
    failure_of,
    figures_of,
    length,
    scripted,
    until,
)
from tests.values import not_none
from tests.worker.models import Faults
from tests.worker.sessions import closings, rescored, run_session

PLAN = length(15, concurrency=3)


async def measured(services: Services, **changes: Any) -> SessionRecord:
    await judged_bank(services, "includes")
    return await run_session(services, bank="judged", plan=PLAN, **changes)


async def marks(services: Services, record: SessionRecord) -> list[tuple[str, str, float | None]]:
    """Return item, outcome and score in the order in which the answers arrived."""
    rows: list[AskedAnswer] = await services.sessions.responses(record.id)
    rows.sort(key=lambda row: row.arrival or 0)
    return [
        (row.item_key, closing.outcome, closing.score)
        for row in rows
        if (closing := row.closing) is not None
    ]


async def test_another_scorer_makes_a_linked_session_alone(working: Services) -> None:
    price = Price(input_per_1m=1.0, output_per_1m=4.0)
    old = await measured(working, endpoint=scripted({"price": price}, theta=0.5, seed=3))
    before = await marks(working, old)

    always = ScorerSpec("pattern", {"pattern": "."})
    new = await rescored(working, old.id, always, "completed")

    assert (new.parent_id, new.relation) == (old.id, "rescore")
    after = await marks(working, new)
    assert [item for item, _, _ in after] == [item for item, _, _ in before]
    assert {score for _, _, score in after} == {1.0}
    assert figures_of(new)["estimate"]["theta"] > figures_of(old)["estimate"]["theta"]
    wrong = sum(score == 0.0 for _, _, score in before)
    assert wrong > 0
    told = figures_of(new)["rescore"]
    assert (told["changed"], told["answers"], told["mean_after"]) == (wrong, 15, 1.0)
    assert told["mean_before"] == pytest.approx(1 - wrong / 15)
    assert told["theta_before"] == figures_of(old)["estimate"]["theta"]
    changes = await working.derived_sessions.changes(new.id)
    assert sum(change.is_changed for change in changes) == wrong
    assert await working.sessions.get(old.id) == old
    assert await marks(working, old) == before
    spent, again = figures_of(old)["usage"], figures_of(new)["usage"]
    assert spent["usd"] > 0
    for name in ("calls", "tokens_in", "tokens_out", "usd", "latency_ms"):
        assert again[name] == spent[name], name
    assert 0.0 <= again["seconds"] < 600.0


async def test_a_judge_scores_answers_within_its_budget(working: Services, judge_url: str) -> None:
    old = await measured(working)
    await marker(working, judge_url)
    judge = ScorerSpec("judge", {"judges": ["judge"]})

    new = await rescored(working, old.id, judge, "completed")

    assert figures_of(new)["usage"]["judge"]["calls"] == 15
    assert await marks(working, new) == await marks(working, old)
    poor = ScorerSpec("judge", {"judges": ["judge"], "budget": {"calls": 4}})
    ended = await rescored(working, old.id, poor)
    assert (ended.status, ended.stop_reason) == ("completed", "budget_exhausted")
    assert figures_of(ended)["usage"]["judge"]["calls"] == 4
    assert figures_of(ended)["outcomes"]["scored"] == 4


async def test_answers_of_a_dead_judge_are_scored_later(working: Services, judge_url: str) -> None:
    await marker(working, "http://127.0.0.1:9/v1")
    await judged_bank(working, "judge", judges=["judge"])
    failed = await run_session(working, "failed", bank="judged", plan=PLAN)
    assert failure_of(failed)["code"] == "judge_unreachable"
    found = (await closings(working, failed)).values()
    assert all(closing.answer_text and closing.attempts == 1 for closing in found)
    await marker(working, judge_url, name="spare")
    spare = ScorerSpec("judge", {"judges": ["spare"]})

    new = await rescored(working, failed.id, spare, "completed")

    assert figures_of(new)["outcomes"]["scored"] == figures_of(failed)["outcomes"]["error"] > 0


async def test_another_worker_goes_on_where_one_stopped(
    services: Services, judge_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_worker(services):
        old = await measured(services)
    await marker(services, judge_url)
    plain, begun, stuck = AnswerScorer.close, 0, asyncio.Event()

    async def slowly(self: AnswerScorer, *arguments: Any, **options: Any) -> Any:
        nonlocal begun
        begun += 1
        if begun > 6:
            if begun == 14:  # six are stored and eight in flight
                stuck.set()
            await asyncio.sleep(60)
        return await plain(self, *arguments, **options)

    judge = ScorerSpec("judge", {"judges": ["judge"]})
    monkeypatch.setattr(AnswerScorer, "close", slowly)
    made = await services.derived_sessions.rescore(old.id, judge, {})
    assert (made.active_s, figures_of(made)["usage"]["seconds"]) == (0.0, 0.0)
    async with running_worker(services):
        await asyncio.wait_for(stuck.wait(), 60)
    assert ((await services.sessions.get(made.id)).arrivals, begun) == (6, 14)
    monkeypatch.setattr(AnswerScorer, "close", plain)

    async with running_worker(services):
        new = await until(services, made.id, "completed")

    assert len(await marks(services, new)) == 15
    assert figures_of(new)["usage"]["judge"]["calls"] == 15
    # Theta uses the answers in their old order, whoever scored them.
    assert figures_of(new)["estimate"]["theta"] == pytest.approx(
        figures_of(old)["estimate"]["theta"]
    )


async def test_a_score_without_an_answer_cannot_be_rescored(working: Services) -> None:
    record = await by_hand(working, length(3))
    given = ({"score": 1.0}, {"response": "no idea at all"}, {"outcome": "refused"})
    record = await answered(working, record, lambda at: given[at.step - 1])

    always = ScorerSpec("pattern", {"pattern": "."})
    new = await rescored(working, record.id, always)

    outcomes = [(outcome, score) for _, outcome, score in await marks(working, new)]
    assert outcomes == [("error", None), ("scored", 1.0), ("refused", None)]


async def test_impossible_rescores_are_refused(working: Services) -> None:
    running = await by_hand(working)
    with pytest.raises(InvalidStateError, match="has ended"):
        await rescored(working, running.id)
    old = await measured(working)
    with pytest.raises(UnknownNameError):
        await rescored(working, old.id, ScorerSpec("exakt"))
    with pytest.raises(InvalidInputError, match="which is not there"):
        await rescored(working, old.id, ScorerSpec("judge", {"judges": ["gone"]}))
    new = await rescored(working, old.id, ScorerSpec("pattern", {"pattern": "It is"}))
    with pytest.raises(InvalidStateError, match="extend that one"):
        await working.derived_sessions.extend(new.id, {}, {})
    with pytest.raises(InvalidStateError, match="is not a rescoring"):
        await working.derived_sessions.changes(old.id)


#: One item at a time, so that items do not depend on which answer arrives first.
ONE_BY_ONE = length(12, concurrency=1)
THETA = -3.0  # nearly all answers are wrong


async def measured_on(services: Services, bank: str = "judged", **changes: object) -> SessionRecord:
    given = {"endpoint": scripted(theta=THETA, seed=5), "plan": ONE_BY_ONE, **changes}
    return await run_session(services, bank=bank, **given)


async def revised(services: Services, bank: str = "judged", **changes: object) -> None:
    """Make a new revision of a bank, so that nothing cached from the old one is used."""
    found = (await services.banks.get_bank(bank)).bank
    changes = changes or {"description": f"revision {found.revision + 1}"}
    await services.banks.update_bank(bank, found.revision, changes)


async def assert_marked_as_told(services: Services, record: SessionRecord) -> None:
    """Assert that each score is what the scorer in the session's provenance gives the answer."""
    told = record.provenance["asking"]["default_scorer"]
    page = await services.items.list_page(record.bank_name, PageRequest(limit=1000))
    items = {item.key: item for item in page.items}
    found = await closings(services, record)
    assert found
    for key, closing in found.items():
        item = items[key]
        scorer = item_scorer(item.scorer, ScorerSpec(**told), item.content)
        answer = Answer(text=not_none(closing.answer_text))
        mark = await build(scorer).score(item.content, answer)
        assert isinstance(mark, Scored)
        assert (key, closing.score) == (key, mark.score)
        assert closing.scorer_hash == sha256_of([scorer.name, dict(scorer.params)])


async def test_a_rescore_leaves_other_sessions_alone(working: Services, faults: Faults) -> None:
    await judged_bank(working, "includes")
    theirs = await measured_on(working)
    await revised(working)
    url = faults.url + faults.canned("mark", {"score": 1.0})
    await marker(working, url, name="mine", kind="callback", api_key="signs")
    hook = ScorerSpec("callback", {"endpoint": "mine"})

    mine = await rescored(working, theirs.id, hook, "completed")
    assert len(faults.calls) == 12
    later = await measured_on(working)

    assert len(faults.calls) == 12  # it receives no other answers
    assert figures_of(mine)["rescore"]["mean_after"] == 1.0
    found = (await closings(working, mine)).values()
    by_hook = sha256_of(["callback", {"endpoint": "mine"}])
    assert {closing.scorer_hash for closing in found} == {by_hook}
    assert figures_of(later)["estimate"]["theta"] == figures_of(theirs)["estimate"]["theta"]
    await assert_marked_as_told(working, later)
    await assert_marked_as_told(working, theirs)


async def test_a_session_keeps_the_scorer_it_was_made_with(working: Services) -> None:
    await judged_bank(working, "includes")
    old = await by_hand(working, length(2), bank="judged")
    await revised(working, default_scorer=ScorerSpec("exact"))
    new = await measured_on(working)

    awaited = await working.manual_sessions.next_item(old.id)
    assert awaited.item.scorer == ScorerSpec("includes")
    assert new.provenance["asking"]["default_scorer"]["name"] == "exact"
    await assert_marked_as_told(working, new)


async def test_items_in_pretest_are_marked_by_their_own_session(working: Services) -> None:
    await living_bank(working)
    plan = {**ONE_BY_ONE, "pretest": {"items_per_session": 3}}
    theirs = await measured_on(working, BANK, plan=plan)
    await revised(working, BANK)
    await rescored(working, theirs.id, ScorerSpec("pattern", {"pattern": "(?s).*"}))

    later = await measured_on(working, BANK, plan=plan)

    assert figures_of(later)["pretest"]["items"] == 3
    await assert_marked_as_told(working, later)
