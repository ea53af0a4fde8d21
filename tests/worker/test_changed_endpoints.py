"""Endpoints that are changed while tests under way ask them, and what these do not tell."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.errors import EndpointMovedError
from app.items import ScorerSpec
from app.records.endpoints import Endpoint, Limits, Price
from app.records.sessions import SessionRecord
from app.services.container import Services
from app.services.endpoints import calls
from app.services.endpoints.specs import EndpointChange
from app.services.sessions.cautions import cautions_of
from app.worker.loop import running_worker
from tests.servers import serving
from tests.services.judged import marker
from tests.services.rankings import contest
from tests.services.sessions import spec, until
from tests.waiting import waiting
from tests.worker.test_live_sessions import model_at
from tests.worker.test_repeats_and_cache import N_ITEMS, Sampling, closings, install

PRICE = Price(input_per_1m=1.0, output_per_1m=2.0)


@pytest.fixture(autouse=True)
def looking_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "LOOK_EVERY_S", 0.0)


class Model:
    """Answers alike, notes who asked for what, and after some answers lets something happen."""

    def __init__(self, text: str = "4", usage: dict[str, Any] | None = None) -> None:
        self.text, self.usage = text, usage
        self.seen: list[tuple[str, str]] = []
        self.after: dict[int, Callable[[], Any]] = {}
        self.app = Starlette(
            routes=[Route("/{at}/chat/completions", self._answer, methods=["POST"])]
        )

    async def _answer(self, request: Request) -> Response:
        body = await request.json()
        self.seen.append((request.headers.get("authorization", ""), body["model"]))
        if (change := self.after.pop(len(self.seen), None)) is not None:
            await change()
        choice = {"message": {"content": self.text}, "finish_reason": "stop"}
        return JSONResponse({"choices": [choice], **({"usage": self.usage} if self.usage else {})})


def usage(**counts: int) -> dict[str, Any]:
    return {"prompt_tokens": 10, "completion_tokens": 1, **counts}


async def saved(services: Services, url: str, name: str = "model", **settings: Any) -> Endpoint:
    given = model_at(f"{url}/v1", name=name, price=PRICE, **settings)
    return await services.endpoints.create(replace(given, api_key="key-of-the-first"))


async def changed(services: Services, found: Endpoint, **change: Any) -> Endpoint:
    secret = {"api_key": change.pop("api_key")} if "api_key" in change else {}
    present = await services.endpoints.get(found.id)
    given = EndpointChange(settings=change, **secret)
    return await services.endpoints.update(found.id, given, expected_revision=present.revision)


async def begun(services: Services, endpoint: Endpoint, **plan: Any) -> SessionRecord:
    stopping = {"se": None, "min_items": 1, "max_items": N_ITEMS}
    given = {"stopping": stopping, "concurrency": 1, **plan}
    return await services.sessions.create(
        spec(bank="sums", endpoint=None, endpoint_id=endpoint.id, plan=given)
    )


@pytest.mark.parametrize("change", ["base_url", "path", "kind", "base_url before it is claimed"])
async def test_another_address_ends_a_session_and_is_never_asked(
    services: Services, change: str
) -> None:
    await install(services)
    honest, other = Model(usage=usage()), Model("5", usage=usage())
    with serving(honest.app) as url, serving(other.app) as elsewhere:
        endpoint = await saved(services, url)
        told = {
            "path": {"base_url": f"{url}/v2"},
            "kind": {"kind": "openai_completions"},
        }.get(change, {"base_url": f"{elsewhere}/v1"})

        async def move() -> None:
            await changed(services, endpoint, **told, api_key="key-of-the-other")

        if change.endswith("claimed"):
            made = await begun(services, endpoint)
            await move()
        else:
            honest.after[3] = move
            made = await begun(services, endpoint)
        async with running_worker(services):
            ended = await until(services, made.id)
        assert ended.status == "failed"
        assert ended.failure is not None
        assert ended.failure["code"] == EndpointMovedError.code
        assert "was changed from openai_chat at" in ended.failure["detail"]
        assert other.seen == []
        assert {key for key, _ in honest.seen} <= {"Bearer key-of-the-first"}


async def test_who_extends_a_session_elsewhere_is_told_so(working: Services) -> None:
    await install(working)
    honest, other = Model(usage=usage()), Model("5", usage=usage())
    with serving(honest.app) as url, serving(other.app) as elsewhere:
        endpoint = await saved(working, url)
        stopping = {"se": None, "min_items": 1, "max_items": 4}
        made = await until(working, (await begun(working, endpoint, stopping=stopping)).id)
        await changed(working, endpoint, base_url=f"{elsewhere}/v1", api_key="key-of-the-other")
        extended = await working.derived_sessions.extend(
            made.id, {"stopping": {**stopping, "max_items": N_ITEMS}}, {}
        )
        ended = await until(working, extended.id)
        again = await working.derived_sessions.replay(
            made.id, {}, bank_version_id=None, metadata={}
        )
    assert ended.status == "completed", ended.failure
    assert len(other.seen) == N_ITEMS - 4
    assert {key for key, _ in other.seen} == {"Bearer key-of-the-other"}
    assert ended.provenance["endpoint"]["base_url"] == f"{elsewhere}/v1"
    assert [one["base_url"] for one in ended.provenance["moved_from"]] == [f"{url}/v1"]
    assert "was changed before the session was extended" in (
        cautions_of(ended, is_score=True) or ""
    )
    # What asks nothing is of whoever answered.
    assert again.provenance["endpoint"] == made.provenance["endpoint"]


async def test_a_new_key_and_price_reach_a_session_and_its_model_stays(working: Services) -> None:
    await install(working)
    honest = Model(usage=usage())
    with serving(honest.app) as url:
        endpoint = await saved(working, url)

        async def rotate() -> None:
            dear = Price(input_per_1m=100.0, output_per_1m=200.0)
            await changed(working, endpoint, api_key="key-of-the-next", model="n", price=dear)

        honest.after[3] = rotate
        made = await begun(working, endpoint)
        ended = await until(working, made.id)
        found = await closings(working, ended)
    assert ended.status == "completed", ended.failure
    keys = [key for key, _ in honest.seen]
    assert keys == ["Bearer key-of-the-first"] * 3 + ["Bearer key-of-the-next"] * (N_ITEMS - 3)
    assert {model for _, model in honest.seen} == {"m"}
    revisions = [(closing.method or {})["endpoint_revision"] for closing in found.values()]
    assert sorted(revisions) == [1] * 3 + [2] * (N_ITEMS - 3)
    assert ended.summary["usage"]["usd"] > 9 * 12 * 100 / 1e6


async def test_a_judge_that_moves_marks_no_more(working: Services) -> None:
    honest, judge, other = Model(usage=usage()), Model("{}", usage=usage()), Model("{}")
    with (
        serving(honest.app) as url,
        serving(judge.app) as judge_url,
        serving(other.app) as elsewhere,
    ):
        found = await marker(working, f"{judge_url}/v1", api_key="key-of-the-judge")
        await install(working, default_scorer=ScorerSpec("judge", {"judges": ["judge"]}))

        async def move() -> None:
            await changed(working, found, base_url=f"{elsewhere}/v1", api_key="key-of-the-other")

        judge.after[2] = move
        ended = await until(working, (await begun(working, await saved(working, url))).id)
    assert ended.failure is not None
    assert ended.failure["code"] == EndpointMovedError.code
    assert other.seen == []


async def test_a_ranking_ends_when_one_of_its_endpoints_moves(working: Services) -> None:
    await install(working, n=40)
    honest, other = Model(usage=usage()), Model("5", usage=usage())
    with serving(honest.app) as url, serving(other.app) as elsewhere:
        endpoint = await saved(working, url)
        second = await saved(working, url, "second", model="n")

        async def move() -> None:
            await changed(working, endpoint, base_url=f"{elsewhere}/v1", api_key="key-of-the-other")

        honest.after[5] = move
        ranking = replace(contest(0.0, 0.0), bank="sums", endpoints=[endpoint.id, second.id])
        made = await working.rankings.create(ranking)
        async with waiting(120) as pause:
            while (ended := await working.rankings.get(made.id)).status != "failed":
                assert ended.status != "completed"
                await pause()
    assert "was changed from openai_chat at" in str(ended.failure)
    assert other.seen == []


@pytest.mark.parametrize("there_and_back", [False, True])
async def test_no_answer_is_kept_under_an_address_that_did_not_give_it(
    working: Services, there_and_back: bool
) -> None:
    await install(working)
    honest, other = Sampling(), Model("5", usage=usage())
    with serving(honest.app) as url, serving(other.app) as elsewhere:
        attacked = await saved(working, url, limits=Limits(rpm=600))
        made = await begun(working, attacked, cache=True)
        async with waiting(120) as pause:
            while not honest.calls:
                await pause()
        await changed(working, attacked, base_url=f"{elsewhere}/v1", api_key="key-of-the-other")
        if there_and_back:
            await changed(working, attacked, base_url=f"{url}/v1", api_key="key-of-the-first")
        await until(working, made.id)
        n_before = len(honest.calls)
        victim = await saved(working, url, "victim")
        ended = await until(working, (await begun(working, victim, cache=True)).id)
        kept = (ended.summary["usage"]["cache"] or {"calls": 0})["calls"]
    assert ended.status == "completed", ended.failure
    assert kept <= n_before
    assert kept + len(honest.calls) - n_before == N_ITEMS
    assert other.seen == []


@pytest.mark.parametrize(
    "told",
    [
        {"prompt_tokens": 10},
        {"prompt_tokens": 0, "completion_tokens": 1},
        {"completion_tokens": 1},
        {"prompt_tokens": 10, "completion_tokens": 0},
        None,
    ],
)
@pytest.mark.parametrize("budget", [{"usd": 0.001}, {"tokens": 20}])
async def test_what_an_endpoint_does_not_tell_counts_as_held(
    working: Services, told: dict[str, Any] | None, budget: dict[str, float]
) -> None:
    await install(working)
    hiding = Model(usage=told)
    with serving(hiding.app) as url:
        price = Price(input_per_1m=50.0, output_per_1m=2.0)
        endpoint = await working.endpoints.create(model_at(f"{url}/v1", name="m", price=price))
        ended = await until(working, (await begun(working, endpoint, budget=budget)).id)
        found = await closings(working, ended)
    assert ended.stop_reason == "budget_exhausted", ended.stop_detail
    assert len(hiding.seen) == 1
    (closing,) = found.values()
    assert (closing.method or {})["usage"] == "not told"
