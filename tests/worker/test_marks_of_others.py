"""A session's answers are scored as that session says, whatever other sessions ask for."""

from app.items import Answer, ScorerSpec
from app.records.sessions import SessionRecord
from app.scorers import Scored, build
from app.services.banks.spec import item_scorer
from app.services.container import Services
from app.services.scoring import hash_of
from app.storage.paging import PageRequest
from tests.services.judged import judged_bank, marker
from tests.services.living import BANK, living_bank
from tests.services.sessions import by_hand, figures_of, length, scripted
from tests.values import not_none
from tests.worker.models import Faults
from tests.worker.sessions import closings, rescored, run_session

#: One item at a time, so that items do not depend on which answer arrives first.
PLAN = length(12, concurrency=1)
THETA = -3.0  # nearly all answers are wrong


async def measured(services: Services, bank: str = "judged", **changes: object) -> SessionRecord:
    given = {"endpoint": scripted(theta=THETA, seed=5), "plan": PLAN, **changes}
    return await run_session(services, bank=bank, **given)


async def changed(services: Services, bank: str = "judged", **changes: object) -> None:
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
        assert closing.scorer_hash == hash_of(scorer)


async def test_a_rescore_leaves_the_sessions_of_others_alone(
    working: Services, faults: Faults
) -> None:
    await judged_bank(working, "includes")
    theirs = await measured(working)
    await changed(working)
    url = faults.url + faults.canned("mark", {"score": 1.0})
    await marker(working, url, name="mine", kind="callback", api_key="signs")
    hook = ScorerSpec("callback", {"endpoint": "mine"})

    mine = await rescored(working, theirs.id, hook, "completed")
    assert len(faults.calls) == 12
    later = await measured(working)

    assert len(faults.calls) == 12  # it receives no other answers
    assert figures_of(mine)["rescore"]["mean_after"] == 1.0
    found = (await closings(working, mine)).values()
    assert {closing.scorer_hash for closing in found} == {hash_of(hook)}
    assert figures_of(later)["estimate"]["theta"] == figures_of(theirs)["estimate"]["theta"]
    await assert_marked_as_told(working, later)
    await assert_marked_as_told(working, theirs)


async def test_a_session_keeps_the_scorer_it_was_made_with(working: Services) -> None:
    await judged_bank(working, "includes")
    old = await by_hand(working, length(2), bank="judged")
    await changed(working, default_scorer=ScorerSpec("exact"))
    new = await measured(working)

    awaited = await working.manual_sessions.next_item(old.id)
    assert awaited.item.scorer == ScorerSpec("includes")
    assert new.provenance["asking"]["default_scorer"]["name"] == "exact"
    await assert_marked_as_told(working, new)


async def test_items_in_pretest_are_marked_by_their_own_session(working: Services) -> None:
    await living_bank(working)
    plan = {**PLAN, "pretest": {"items_per_session": 3}}
    theirs = await measured(working, BANK, plan=plan)
    await changed(working, BANK)
    await rescored(working, theirs.id, ScorerSpec("pattern", {"pattern": "(?s).*"}))

    later = await measured(working, BANK, plan=plan)

    assert figures_of(later)["pretest"]["items"] == 3
    await assert_marked_as_told(working, later)
