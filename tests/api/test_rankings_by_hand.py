"""Rankings of named examinees over HTTP, driven by the client that asks for items."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI

from app.engine.bank import FloatArray
from app.engine.ranking.ranking import Ranking
from app.engine.ranking.simulation import simulate_ranking
from app.services.container import Services
from app.services.rankings.run import RankingPlan
from app.services.sessions.figures import SpareTime
from app.services.sessions.manual import ManualAnswer
from app.storage.database import Database
from tests.api.calls import an_hour_passed, got, listing, posted, problem_of, refusal_of
from tests.api.conftest import EVENTS, Client, NewClient
from tests.api.test_webhooks import HOOK
from tests.services.sessions import figures_of
from tests.values import not_none

pytestmark = pytest.mark.usefixtures("services")

THETAS = {"weak": -2.4, "strong": 2.4, "middle": 0.0}
RANKED = "/v1/rankings"


def ranking_of(*names: str, **said: Any) -> dict[str, Any]:
    examinees = [{"name": name, "kind": "agent", "model": "m"} for name in names or THETAS]
    return {"bank": "demo", "examinees": examinees, "seed": 5, **said}


async def begun(client: Client, *names: str, **said: Any) -> str:
    made = await posted(client, RANKED, ranking_of(*names, **said), 202)
    assert (made["status"], made["self_reported"]) == ("running", True)
    return f"{RANKED}/{made['id']}"


async def fetched(client: Client, path: str, n: int) -> list[dict[str, Any]]:
    found = await posted(client, f"{path}/next-items", {"n": n}, 200)
    return list(found["data"])


def answers(services: Services, items: Sequence[str]) -> dict[str, FloatArray]:
    """Return recorded answers of each examinee to each item, in any order."""
    hardness = np.linspace(-2.0, 2.0, len(items))
    return {
        name: (np.random.default_rng(at).random(len(items)) < 1 / (1 + np.exp(hardness - theta)))
        .astype(np.float64)
        for at, (name, theta) in enumerate(THETAS.items())
    }  # fmt: skip


async def answered(client: Client, item: dict[str, Any], **answer: Any) -> dict[str, Any]:
    """Answer an item, right by default; return the member's session."""
    given = {"step_token": item["step_token"], **(answer or {"score": 1.0})}
    return await posted(client, f"/v1/sessions/{item['session_id']}/responses", given, 201)


class Driver:
    """A client with recorded answers."""

    def __init__(self, client: Client, items: Sequence[str], rows: dict[str, FloatArray]) -> None:
        self._client, self._rows = client, rows
        self._position = {key: at for at, key in enumerate(items)}
        #: Examinee and item, in the order of asking.
        self.asked: list[tuple[str, int]] = []

    def score(self, examinee: str, key: str) -> float:
        return float(self._rows[examinee][self._position[key]])

    async def tell(self, item: dict[str, Any]) -> dict[str, Any]:
        """Answer an item; return the member's session."""
        key = item["item"]["id"]
        self.asked.append((item["examinee"], self._position[key]))
        return await answered(self._client, item, score=self.score(item["examinee"], key))

    async def finish(self, path: str, n: int) -> dict[str, Any]:
        """Answer to the end with `n` items in hand; return the ranking."""
        items = await fetched(self._client, path, n)
        while items:
            items += (await self.tell(items.pop(0)))["next_items"]
            assert len(items) <= n
        ranking: dict[str, Any] = (await self._client.get(path)).json()
        return ranking


async def driver(client: Client, services: Services) -> Driver:
    version = await services.versions.load(bank="demo")
    keys = [version.key_at(position) for position in range(version.bank.n_items)]
    return Driver(client, keys, answers(services, keys))


OFFLINE: list[dict[str, Any]] = [
    {},
    {"metric": "theta"},
    {"metric": "theta", "decision": "one_look", "shared_items": False},
    {"budget": {"items": 36}, "tie_width": 0.1},
]


@pytest.mark.parametrize("said", OFFLINE, ids=str)
async def test_it_asks_and_finds_the_same_as_a_simulated_ranking(
    client: Client, app: FastAPI, said: dict[str, Any]
) -> None:
    services: Services = app.state.services
    path = await begun(client, min_items=6, max_items=16, **said)
    hand = await driver(client, services)
    found = await hand.finish(path, 1)

    version = await services.versions.load(bank="demo")
    stored = await services.rankings.get(found["id"])
    plan = RankingPlan.model_validate(stored.settings)
    test = await services.versions.adaptive_test(version, plan.asking.design)
    offline = Ranking(tests=(test,) * len(THETAS), rules=plan.rules, budget=plan.budget)
    told: list[tuple[str, int]] = []
    rows = [_Watched(hand._rows[name], name, told) for name in THETAS]
    state, stop = simulate_ranking(offline, rows, seed=5)  # type: ignore[arg-type]  # rows that tell
    assert hand.asked == told
    assert (found["status"], found["stop_reason"]) == ("completed", stop.reason.value)
    assert found["stop_detail"] == stop.detail
    ranks = offline.ranks(state)
    names = list(THETAS)
    assert [one["name"] for one in found["order"]] == [names[at] for at in ranks.order]
    assert [(one["rank_lo"], one["rank_hi"]) for one in found["order"]] == [
        ranks.rank_ranges[at] for at in ranks.order
    ]
    assert {one["name"]: one["theta"] for one in found["order"]} == {
        name: member.belief.theta for name, member in zip(names, state.members, strict=True)
    }


class _Watched:
    """A row of scores that records the items looked up."""

    def __init__(self, row: FloatArray, name: str, told: list[tuple[str, int]]) -> None:
        self._row, self._name, self._told = row, name, told

    def __getitem__(self, item: int) -> float:
        self._told.append((self._name, int(item)))
        return float(self._row[item])


SMALL = {"min_items": 5, "max_items": 8, "concurrency": 2}


async def test_items_in_hand_never_exceed_the_request(client: Client, app: FastAPI) -> None:
    services: Services = app.state.services
    hook = await posted(client, "/v1/webhooks", {**HOOK, "events": ["ranking.completed"]}, 201)
    path = await begun(client, **{**SMALL, "max_items": 30})  # enough to separate the three
    assert (await got(client, path))["order"] == []
    hand = await driver(client, services)
    found = await hand.finish(path, 4)

    assert (found["status"], found["self_reported"]) == ("completed", True)
    assert [one["name"] for one in found["order"]] == ["strong", "middle", "weak"]
    assert len(hand.asked) == len(set(hand.asked)) == found["progress"]["scored"]
    assert found["progress"]["in_flight"] == 0
    for one in found["order"]:
        session = await got(client, f"/v1/sessions/{one['session_id']}")
        assert (session["status"], session["mode"]) == ("completed", "manual")
        assert (session["self_reported"], session["examinee"]["name"]) == (True, one["name"])
        assert (session["score"], session["estimate"]["theta"]) == (one["score"], one["theta"])
        assert session["progress"]["items"] == one["items"] <= 30
    board = await listing(client, "/v1/banks/demo/leaderboard")
    assert {(row["examinee"]["name"], row["self_reported"]) for row in board} == {
        (name, True) for name in THETAS
    }
    told = EVENTS.validate_python(await listing(client, f"{path}/events"))
    assert (told[0].type, told[-1].type) == ("ranking.created", "ranking.completed")
    assert {one.type for one in told[1:-1]} == {"ranking.updated"}
    sent = await listing(client, f"/v1/webhooks/{hook['id']}/deliveries")
    assert [one["type"] for one in sent] == ["ranking.completed", "webhook.created"]
    says = "is completed and asks nothing more"
    await problem_of(client, f"{path}/next-items", {"n": 1}, 409, "invalid_state", says=says)


async def test_a_repeated_fetch_is_the_same_and_an_answer_counts_once(client: Client) -> None:
    path = await begun(client, **SMALL)
    items = await fetched(client, path, 3)
    assert await fetched(client, path, 3) == items
    assert await fetched(client, path, 2) == items[:2]
    assert {one["examinee"] for one in items} == set(THETAS)
    keyed = {"Idempotency-Key": "a"}
    answer = {"step_token": items[0]["step_token"], "score": 1.0}
    where = f"/v1/sessions/{items[0]['session_id']}/responses"
    first, again = [await client.post(where, json=answer, headers=keyed) for _ in range(2)]
    assert first.status_code == 201
    assert again.content == first.content
    late = await problem_of(client, where, answer, 409)
    assert late["code"] in ("stale_step", "invalid_state")
    (new,) = first.json()["next_items"]
    assert await fetched(client, path, 3) == [*items[1:], new]
    keyed = {"Idempotency-Key": "b"}
    more, again = [
        await client.post(f"{path}/next-items", json={"n": 5}, headers=keyed) for _ in range(2)
    ]
    assert more.content == again.content
    assert len(more.json()["data"]) == 5
    # For each member as many items as may be in flight, whatever is requested.
    assert len(await fetched(client, path, 64)) == 6


async def test_simultaneous_answers_of_two_clients_are_counted_once(client: Client) -> None:
    path = await begun(client, **SMALL)
    items, counted = await fetched(client, path, 6), 0
    while items:
        replies = await asyncio.gather(
            *(
                client.post(
                    f"/v1/sessions/{item['session_id']}/responses",
                    json={"step_token": item["step_token"], "score": float(at % 2)},
                )
                for at, item in enumerate([*items, *items])
            ),
            *(client.post(f"{path}/next-items", json={"n": 6}) for _ in range(2)),
        )
        *told, one, other = replies
        taken = [reply for reply in told if reply.status_code == 201]
        assert {reply.status_code for reply in told} <= {201, 409}
        assert len(taken) == len(items)
        counted += len(items)
        assert {one.status_code, other.status_code} <= {200, 409}
        ranking = await got(client, path)
        items = await fetched(client, path, 6) if ranking["status"] == "running" else []
    ranking = await got(client, path)
    assert ranking["status"] == "completed"
    assert ranking["progress"] == {"items": counted, "scored": counted, "in_flight": 0}


async def test_alternating_servers_find_the_same_as_one(
    app: FastAPI, client: Client, other_services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    services: Services = app.state.services
    monkeypatch.setattr(SpareTime, "is_left", lambda _: False)  # a busy process
    hand, told = await driver(client, services), []
    for turns in ([services], [services, other_services, other_services]):
        path = await begun(client, **SMALL)
        ranking_id, n = path.rsplit("/", 1)[1], 0
        items = list(await services.manual_sessions.ranking_items(ranking_id, 3))
        while items:
            item, n = items.pop(0), n + 1
            by_hand = turns[n % len(turns)].manual_sessions
            score = hand.score(not_none(item.record.examinee).name, item.item.key)
            answer = ManualAnswer(step_token=item.step_token, score=score)
            items += (await by_hand.answer(item.record.id, answer))[1]
            record = await services.rankings.get(ranking_id)
            for one in figures_of(record)["order"]:
                del one["session_id"]
            told.append({**figures_of(record), "pairs": record.stop_detail})
    assert told[: len(told) // 2] == told[len(told) // 2 :]
    assert all(one["score"] for one in told[-1]["order"])


async def test_a_members_session_calls_cannot_bypass_the_ranking(client: Client) -> None:
    path = await begun(client, "weak", "strong", **SMALL)
    (item,) = await fetched(client, path, 1)
    own = f"/v1/sessions/{item['session_id']}"
    assert await fetched(client, own, 64) == [item]
    assert await got(client, f"{own}/next-item") == item
    other = next(
        one
        for one in await listing(client, "/v1/sessions")
        if one["examinee"]["name"] != item["examinee"]
    )
    theirs = f"/v1/sessions/{other['id']}"
    answer = {"step_token": item["step_token"], "score": 1.0}
    token, says = {"step_token": item["step_token"]}, "waits for no answer now: its ranking rnk_"
    for call, body in (("/next-items", {}), ("/responses", answer), (":release", token)):
        await problem_of(client, f"{theirs}{call}", body, 409, "invalid_state", says=says)
    assert (await client.get(f"{theirs}/next-item")).status_code == 409
    for refused in (
        *(client.post(f"{own}{verb}") for verb in (":cancel", ":pause")),
        client.delete(own),
    ):
        await refusal_of(refused, 409, "invalid_state", says="belongs to ranking")
    both = await fetched(client, path, 2)
    mixed = {"step_token": both[0]["step_token"], "score": 1.0}
    await problem_of(client, f"{theirs}/responses", mixed, 409, "stale_step")
    assert (await got(client, path))["progress"]["scored"] == 0

    released = await posted(client, f"{own}:release", token, 200)
    assert released["item"] == item["item"]
    await problem_of(client, f"{own}/responses", answer, 409, "stale_step")
    assert (await answered(client, released))["progress"]["scored"] == 1


async def test_an_item_past_its_limit_is_an_error(client: Client, database: Database) -> None:
    path = await begun(client, answer_within=1800, **SMALL)
    items = await fetched(client, path, 3)
    await an_hour_passed(database)
    fresh = await fetched(client, path, 3)
    assert {one["step"] for one in fresh} == {2}
    where = f"/v1/sessions/{items[0]['session_id']}"
    late = {"step_token": items[0]["step_token"], "score": 1.0}
    await problem_of(client, f"{where}/responses", late, 409, "stale_step")
    (row, _) = await listing(client, f"{where}/responses")
    assert (row["outcome"], row["error_code"]) == ("error", "timeout")
    assert (await got(client, path))["progress"]["items"] == 3


async def test_a_ranking_of_a_silent_client_ends(client: Client, app: FastAPI) -> None:
    services: Services = app.state.services
    path, patient = [await begun(client, idle_timeout=s, **SMALL) for s in (0.2, 600)]
    for item in await fetched(client, path, 2):
        await answered(client, item)
    await asyncio.sleep(0.25)  # waits for the limit under test
    assert await services.sessions.end_idle() == []
    assert await services.rankings.end_idle() == [path.rsplit("/", 1)[1]]
    ranking = await got(client, path)
    assert (ranking["status"], ranking["progress"]["scored"]) == ("cancelled", 2)
    assert {one["in_flight"] for one in (ranking["progress"], *ranking["order"])} == {0}
    assert "No answer came within idle_timeout" in ranking["stop_detail"]
    member = await got(client, f"/v1/sessions/{ranking['order'][0]['session_id']}")
    assert (member["status"], member["progress"]["in_flight"]) == ("cancelled", 0)
    assert (await got(client, patient))["status"] == "running"


async def test_no_worker_takes_it_and_cancelling_ends_it_for_its_client(
    client: Client, client_with: NewClient, app: FastAPI
) -> None:
    services: Services = app.state.services
    path = await begun(client, **SMALL)
    ranking_id = path.rsplit("/", 1)[1]
    (item,) = await fetched(client, path, 1)
    no_time = timedelta()
    async with services.database.unit_of_work() as uow:
        assert await uow.rankings.stalled(grace=no_time, lease=no_time) == []
        assert await uow.rankings.claim(ranking_id, worker_id="w", lease=no_time) is None
    live = {"kind": "scripted", "model": "m", "options": {"theta": 0}}
    asked = [{"endpoint": live}, {"endpoint": {**live, "model": "n"}}]
    other = await posted(client, RANKED, {"bank": "demo", "endpoints": asked}, 202)
    says = "is live: the server asks the endpoints itself"
    await problem_of(client, f"{RANKED}/{other['id']}/next-items", {}, 409, says=says)

    await refusal_of(client.delete(path), 409, says="; cancel it before deleting it.")
    assert (await posted(client, f"{path}:cancel", None))["status"] == "cancelled"
    told = {"step_token": item["step_token"], "score": 1.0}
    where = f"/v1/sessions/{item['session_id']}/responses"
    await problem_of(client, where, told, 409, "invalid_state", says="is cancelled")
    assert (await got(client, path))["progress"]["scored"] == 0
    assert (await client.delete(path)).status_code == 204
    assert (await client.get(where.removesuffix("/responses"))).status_code == 404
    await begun(await client_with("run", "read"))  # the names were removed with it


async def test_a_named_examinee_joins_and_only_it_is_asked(client: Client, app: FastAPI) -> None:
    services: Services = app.state.services
    path = await begun(client, "weak", "strong", **SMALL)
    joining = {"examinee": {"name": "middle", "kind": "agent", "model": "m"}}
    join, early = f"{path}:join", "only a completed one"
    await problem_of(client, join, joining, 409, "invalid_state", says=early)
    hand = await driver(client, services)
    first = await hand.finish(path, 2)
    endpoint = {"kind": "scripted", "model": "m", "options": {"theta": 0}}
    says = "takes an examinee, as all its members are"
    await problem_of(client, join, {"endpoint": endpoint}, says=says, at="/endpoint")
    again = {"examinee": {**joining["examinee"], "name": "weak"}}
    await problem_of(client, join, again, says="Examinee weak is in the ranking twice")

    assert (await posted(client, join, joining, 202))["status"] == "running"
    before = len(hand.asked)
    second = await hand.finish(path, 2)
    assert second["status"] == "completed"
    assert [one["name"] for one in second["order"]] == ["strong", "middle", "weak"]
    assert {name for name, _ in hand.asked[before:]} == {"middle"}
    before_and_after = [
        {one["name"]: (one["theta"], one["score"], one["items"]) for one in ranking["order"]}
        for ranking in (first, second)
    ]
    assert before_and_after[0].items() <= before_and_after[1].items()


async def test_budgets_count_usage_from_the_client_and_failures_end_it(client: Client) -> None:
    async def ended(n: int, answer: dict[str, Any], **said: Any) -> tuple[dict[str, Any], int]:
        """Return a ranking and its number of answers, all of which are this one."""
        path, n_told = await begun(client, "weak", "strong", **SMALL, **said), 0
        items = await fetched(client, path, n)
        while items:
            n_told += 1
            items += (await answered(client, items.pop(0), **answer))["next_items"]
        return await got(client, path), n_told

    ranking, n_told = await ended(2, {"score": 1.0, "usd": 2.0}, budget={"usd": 30.0})
    assert (ranking["status"], ranking["usage"]["usd"]) == ("completed", 2.0 * n_told)
    assert (ranking["stop_reason"], n_told <= 15) == ("budget_exhausted", True)

    ranking, _ = await ended(1, {"outcome": "error"})
    assert (ranking["status"], ranking["stop_reason"]) == ("failed", "too_many_failures")
    assert {one["rank_hi"] for one in ranking["order"]} == {2}


UNRANKABLE: list[tuple[dict[str, Any], str]] = [
    ({"examinees": None}, "give exactly one of endpoints and examinees"),
    ({"endpoints": [{"endpoint_id": "a"}] * 2}, "give exactly one of endpoints and examinees"),
    ({"examinees": [{"name": "a"}]}, "/examinees: expected at least 2 entries, got 1"),
    ({"examinees": [{"name": "a"}, {"name": "a"}]}, "Examinee a is in the ranking twice"),
    ({"examinees": [{"name": "a"}, {"name": "a", "model": "m"}]}, "/examinees/1"),
    ({"examinees": [{"name": str(n)} for n in range(65)]}, "/examinees"),
    ({"prompt": {"shots": 1}}, "a ranking of examinees takes no prompt: the client asks"),
    ({"concurrency": 65}, "expected at most 64, got 65"),
    ({"budget": {"items": 5}}, "too small for the warm-up"),
    ({"answer_within": 0}, "/answer_within"),
]


async def test_what_cannot_be_ranked_is_not_stored(client: Client, client_with: NewClient) -> None:
    for changes, words in UNRANKABLE:
        assert words in str(await problem_of(client, RANKED, {**ranking_of(), **changes}))
    endpoint = {"kind": "scripted", "model": "m", "options": {"theta": 0}}
    live = [{"endpoint": endpoint}, {"endpoint": {**endpoint, "model": "n"}}]
    for limit in ("answer_within", "idle_timeout"):
        body = {"bank": "demo", "endpoints": live, limit: 5}
        await problem_of(client, RANKED, body, says="are for manual sessions")
    assert await listing(client, RANKED) == []
    assert await listing(client, "/v1/sessions") == []
    path = await begun(client)
    for n in (10_000, 0):
        await problem_of(client, f"{path}/next-items", {"n": n}, at="/n")
    # Names belong to the key that first used them.
    theirs, says = await client_with("run", "read"), "'weak' was named by another key"
    await problem_of(theirs, RANKED, ranking_of("weak", "x"), 403, "missing_scope", says=says)
    assert len(await listing(client, RANKED)) == 1


async def test_concurrent_rankings_with_a_new_name_share_the_examinee(client: Client) -> None:
    names = list(THETAS)
    made = await asyncio.gather(
        *(
            client.post(RANKED, json=ranking_of(*(names if n % 2 else reversed(names))))
            for n in range(6)
        )
    )
    assert [one.status_code for one in made] == [202] * 6
    ids = set()
    for one in made:
        path = f"{RANKED}/{one.json()['id']}"
        await fetched(client, path, 1)
        ids |= {entry["endpoint_id"] for entry in (await got(client, path))["order"]}
    assert len(ids) == len(names)
