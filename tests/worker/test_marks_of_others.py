"""A session's answers are scored as that session says, whatever other sessions ask for."""

from collections.abc import Iterator

import pytest

from app.items import Answer, ScorerSpec
from app.records.endpoints import EndpointSettings
from app.records.sessions import SessionRecord
from app.scorers import Scored, build
from app.services.banks.spec import item_scorer
from app.services.container import Services
from app.services.endpoints.specs import EndpointSpec
from app.services.scoring import hash_of
from app.storage.paging import PageRequest
from tests.servers import serving
from tests.servers.fault_server import FaultServer
from tests.services.judged import judged_bank
from tests.services.living import BANK, living_bank
from tests.services.sessions import figures_of, scripted, spec
from tests.worker.sessions import rescored, run_session

#: One item at a time, so that items do not depend on which answer arrives first.
PLAN = {"stopping": {"se": None, "min_items": 1, "max_items": 12}, "concurrency": 1}
ANYTHING = ScorerSpec("pattern", {"pattern": "(?s).*"})
THETA = -3.0  # nearly all answers are wrong


@pytest.fixture
def marker() -> FaultServer:
    server = FaultServer()
    server.canned("mark", {"score": 1.0})
    return server


@pytest.fixture
def marker_url(marker: FaultServer) -> Iterator[str]:
    with serving(marker.app) as url:
        yield f"{url}/mark"


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
    items = {
        item.key: item for item in (await services.items.list_page(record.bank_name, _ALL)).items
    }
    rows = await services.sessions.responses(record.id)
    assert rows
    for row in rows:
        closing = row.closing
        assert closing is not None
        assert closing.answer_text is not None
        item = items[row.item_key]
        scorer = item_scorer(item.scorer, ScorerSpec(**told), item.content)
        mark = await build(scorer).score(item.content, Answer(text=closing.answer_text))
        assert isinstance(mark, Scored)
        assert (row.item_key, closing.score) == (row.item_key, mark.score)
        assert closing.scorer_hash == hash_of(scorer)


_ALL = PageRequest(limit=1000)


async def test_a_rescore_leaves_the_sessions_of_others_alone(working: Services) -> None:
    await judged_bank(working, "includes")
    theirs = await measured(working)
    await changed(working)

    mine = await rescored(working, theirs.id, ANYTHING)
    later = await measured(working)

    assert figures_of(mine)["rescore"]["mean_after"] == 1.0
    rows = await working.sessions.responses(mine.id)
    assert {r.closing and r.closing.scorer_hash for r in rows} == {hash_of(ANYTHING)}
    assert figures_of(later)["estimate"]["theta"] == figures_of(theirs)["estimate"]["theta"]
    await assert_marked_as_told(working, later)
    await assert_marked_as_told(working, theirs)


async def test_a_session_keeps_the_scorer_it_was_made_with(working: Services) -> None:
    await judged_bank(working, "includes")
    manual = {"mode": "manual", "endpoint": None, "plan": {"stopping": {"max_items": 2}}}
    old = await working.sessions.create(spec(bank="judged", **manual))
    await changed(working, default_scorer=ScorerSpec("exact"))
    new = await measured(working)

    for _ in range(2):
        awaited = await working.manual_sessions.next_item(old.id)
        assert awaited.item.scorer == ScorerSpec("includes")
    assert new.provenance["asking"]["default_scorer"]["name"] == "exact"
    await assert_marked_as_told(working, new)


async def test_items_in_pretest_are_marked_by_their_own_session(working: Services) -> None:
    await living_bank(working)
    plan = {**PLAN, "pretest": {"items_per_session": 3}}
    theirs = await measured(working, BANK, plan=plan)
    await changed(working, BANK)
    await rescored(working, theirs.id, ANYTHING)

    later = await measured(working, BANK, plan=plan)

    assert figures_of(later)["pretest"]["items"] == 3
    await assert_marked_as_told(working, later)


async def test_a_callback_of_a_rescore_receives_no_other_answers(
    working: Services, marker: FaultServer, marker_url: str
) -> None:
    await judged_bank(working, "includes")
    theirs = await measured(working)
    await changed(working)
    hook = EndpointSettings(name="mine", kind="callback", model="mine", base_url=marker_url)
    await working.endpoints.create(EndpointSpec(settings=hook, api_key="signs"))
    mine = ScorerSpec("callback", {"endpoint": "mine"})
    await rescored(working, theirs.id, mine, "completed")
    heard = len(marker.calls)
    assert heard == 12

    later = await measured(working)

    assert len(marker.calls) == heard
    await assert_marked_as_told(working, later)
