from typing import Any

import pytest

from app.engine.ranking.rules import RankingBudget, RankingRules
from app.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from app.records.figures import SessionFigures
from app.records.sessions import Examinee
from app.services.container import Services
from app.services.sessions.manual import ManualAnswer
from app.services.sessions.run import SessionRun
from app.storage.paging import PageRequest
from tests.services.rankings import contest, members_of
from tests.services.sessions import figures_of, scripted

pytestmark = pytest.mark.usefixtures("fits_here")

PAGE = PageRequest(limit=20, after=None, descending=True)


async def test_a_new_ranking_waits_with_a_session_for_each_endpoint(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = SessionRun.summary
    told: list[SessionFigures] = []

    def noted(self: SessionRun, **when: Any) -> SessionFigures:
        told.append(summary(self, **when))
        return told[-1]

    monkeypatch.setattr(SessionRun, "summary", noted)
    created = await services.rankings.create(contest())

    members = await members_of(services, created.id)
    assert created.status == "queued"
    assert [member.ranking_member for member in members] == [0, 1, 2]
    assert {(member.status, member.ranking_id) for member in members} == {("queued", created.id)}
    assert len({member.seed for member in members}) == 3
    assert [figures_of(member) for member in members] == told * 3, "worked out once for all"
    assert created.settings["budget"]["items"] == 150  # half of 100 items for each of three


async def test_a_refused_ranking_leaves_no_endpoint_behind(services: Services) -> None:
    twins = [scripted({"name": "the same"}, theta=theta) for theta in (0.0, 1.0)]
    with pytest.raises(AlreadyExistsError):
        await services.rankings.create(contest(endpoints=twins))

    assert (await services.endpoints.list(PAGE)).items == ()
    assert (await services.sessions.list_page(PAGE)).items == ()
    with pytest.raises(AlreadyExistsError):
        await services.rankings.create(contest(endpoints=twins))


async def test_saved_endpoints_are_ranked_by_their_ids(services: Services) -> None:
    saved = [await services.endpoints.create(scripted(theta=theta)) for theta in (0.0, 1.0)]
    created = await services.rankings.create(contest(endpoints=[each.id for each in saved]))
    members = await members_of(services, created.id)
    assert [member.endpoint_id for member in members] == [each.id for each in saved]

    for same in (saved[0].id, scripted(theta=0.0)):
        with pytest.raises(InvalidInputError, match="twice"):
            await services.rankings.create(contest(endpoints=[saved[0].id, same]))
    with pytest.raises(NotFoundError):
        await services.rankings.create(contest(endpoints=[saved[0].id, "end_" + "0" * 26]))


async def test_rankings_are_listed_by_state_and_bank(services: Services) -> None:
    first, second = [await services.rankings.create(contest()) for _ in range(2)]
    await services.rankings.cancel(first.id)

    for page, filters, found in (
        (PAGE, {"status": "queued"}, [second]),
        (PAGE, {"bank_id": first.bank_id}, [second, first]),
        (PageRequest(limit=1, after=second.id), {}, [first]),
    ):
        listed = await services.rankings.list_page(page, **filters)
        assert [record.id for record in listed.items] == [record.id for record in found]


async def test_in_a_large_bank_members_that_ended_keep_their_scores_when_another_joins(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.services.sessions.run.LIVE_PREDICTION_MAX_ITEMS", 0)
    asked = contest(
        endpoints=[Examinee(name=name) for name in "ab"],
        rules=RankingRules(min_items=5, max_items=5),
    )
    ranking_id = (await services.rankings.create(asked)).id

    async def tell() -> None:
        (item,) = await services.manual_sessions.ranking_items(ranking_id, 1)
        given = ManualAnswer(step_token=item.step_token, score=float(item.step % 2))
        await services.manual_sessions.answer(item.record.id, given)

    async def scores() -> dict[str, Any]:
        order = figures_of(await services.rankings.get(ranking_id))["order"]
        return {entry["name"]: entry["score"] for entry in order}

    while (await services.rankings.get(ranking_id)).status == "running":
        await tell()
    ended = await scores()
    assert None not in ended.values()
    await services.rankings.join(ranking_id, Examinee(name="c"), RankingBudget())
    await tell()
    assert await scores() == {**ended, "c": None}
