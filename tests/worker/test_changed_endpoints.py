"""Endpoints that change while sessions use them, and endpoints that report no usage."""

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest

from app.calling import GenerationParams
from app.errors import EndpointMovedError
from app.items import ScorerSpec
from app.records.endpoints import CallLimits, Endpoint, Price
from app.records.sessions import SessionRecord
from app.services.container import Services
from app.services.endpoints.budgets import charged_tokens
from app.services.endpoints.specs import EndpointChange
from app.worker.loop import running_worker
from tests.servers import serving
from tests.services.judged import marker
from tests.services.rankings import contest, ranked
from tests.services.sessions import failure_of, figures_of, length, replayed, spec, until
from tests.values import not_none
from tests.waiting import waiting
from tests.worker.models import N_ITEMS, Model, sampling, sums
from tests.worker.sessions import closings, model_at

PRICE = Price(input_per_1m=1.0, output_per_1m=2.0)


async def saved(services: Services, url: str, name: str = "model", **settings: Any) -> Endpoint:
    given = model_at(f"{url}/v1", name=name, price=PRICE, **settings)
    return await services.endpoints.create(replace(given, api_key="key-of-the-first"))


async def changed(services: Services, found: Endpoint, **change: Any) -> Endpoint:
    secret = {"api_key": change.pop("api_key")} if "api_key" in change else {}
    present = await services.endpoints.get(found.id)
    given = EndpointChange(settings=change, **secret)
    return await services.endpoints.update(found.id, given, expected_revision=present.revision)


async def begun(services: Services, endpoint: Endpoint, **plan: Any) -> SessionRecord:
    given = {**length(N_ITEMS, concurrency=1), **plan}
    return await services.sessions.create(
        spec(bank="sums", endpoint=None, endpoint_id=endpoint.id, plan=given)
    )


async def run(services: Services, endpoint: Endpoint, **plan: Any) -> SessionRecord:
    return await until(services, (await begun(services, endpoint, **plan)).id)


@pytest.mark.parametrize("change", ["base_url", "path", "kind", "base_url before it is claimed"])
async def test_another_address_ends_a_session_unasked(services: Services, change: str) -> None:
    await sums(services)
    honest, other = Model(), Model()
    with serving(honest.app) as url, serving(other.app) as elsewhere:
        endpoint = await saved(services, url)
        told = {"path": {"base_url": f"{url}/v2"}, "kind": {"kind": "openai_completions"}}.get(
            change, {"base_url": f"{elsewhere}/v1"}
        )

        async def move() -> None:
            await changed(services, endpoint, **told, api_key="key-of-the-other")

        made = await begun(services, endpoint)
        if change.endswith("claimed"):
            await move()
        else:
            honest.after[3] = move
        async with running_worker(services):
            ended = await until(services, made.id)
        assert ended.status == "failed"
        assert failure_of(ended)["code"] == EndpointMovedError.code
        assert "was changed from openai_chat at" in failure_of(ended)["detail"]
        assert other.calls == []
        assert {key for key, _ in honest.calls} <= {"Bearer key-of-the-first"}


async def test_an_extension_asks_the_same_model_or_is_refused(working: Services) -> None:
    await sums(working)
    honest, other = Model(), Model()
    with serving(honest.app) as url, serving(other.app) as elsewhere:
        endpoint = await saved(working, url)
        made, further = await run(working, endpoint, **length(4)), length(N_ITEMS)
        await changed(working, endpoint, model="n")
        extended = await working.derived_sessions.extend(made.id, further, {})
        ended = await until(working, extended.id, "completed")
        assert len(honest.calls) == N_ITEMS
        await changed(working, endpoint, base_url=f"{elsewhere}/v1", api_key="key-of-the-other")
        with pytest.raises(EndpointMovedError, match="start it again"):
            await working.derived_sessions.extend(made.id, further, {})
        again = await replayed(working, made.id)
    assert {body["model"] for _, body in honest.calls} == {"m"}
    assert other.calls == []
    assert not_none(ended.provenance["endpoint"])["model"] == "m"
    # Sessions that ask no questions belong to whoever answered.
    assert again.provenance["endpoint"] == made.provenance["endpoint"]


async def test_a_new_key_and_price_reach_a_session_and_its_model_stays(working: Services) -> None:
    await sums(working)
    honest = Model()
    with serving(honest.app) as url:
        endpoint = await saved(working, url)

        async def rotate() -> None:
            dear = Price(input_per_1m=100.0, output_per_1m=200.0)
            await changed(working, endpoint, api_key="key-of-the-next", model="n", price=dear)

        honest.after[3] = rotate
        ended = await run(working, endpoint)
        found = await closings(working, ended)
        board = (await working.leaderboards.of_bank("sums")).board
    assert ended.status == "completed", ended.failure
    keys = [key for key, _ in honest.calls]
    assert keys == ["Bearer key-of-the-first"] * 3 + ["Bearer key-of-the-next"] * (N_ITEMS - 3)
    assert {body["model"] for _, body in honest.calls} == {"m"}
    assert [entry.session.endpoint_model for entry in board.entries] == ["m"]
    revisions = [(closing.method or {})["endpoint_revision"] or 0 for closing in found.values()]
    assert sorted(revisions) == [1] * 3 + [2] * (N_ITEMS - 3)
    assert figures_of(ended)["usage"]["usd"] > 9 * 12 * 100 / 1e6


async def test_a_judge_with_a_new_address_scores_no_more(working: Services) -> None:
    honest, judge, other = Model(), Model(), Model()
    with (
        serving(honest.app) as url,
        serving(judge.app) as judge_url,
        serving(other.app) as elsewhere,
    ):
        found = await marker(working, f"{judge_url}/v1", api_key="key-of-the-judge")
        await sums(working, default_scorer=ScorerSpec("judge", {"judges": ["judge"]}))

        async def move() -> None:
            await changed(working, found, base_url=f"{elsewhere}/v1", api_key="key-of-the-other")

        judge.after[2] = move
        ended = await run(working, await saved(working, url))
    assert failure_of(ended)["code"] == "judge_moved"
    assert other.calls == []


async def test_a_ranking_continues_without_an_endpoint_that_moves(services: Services) -> None:
    for when in ("under way", "before it is claimed"):
        bank = f"sums {when}"
        await sums(services, bank, n=40)
        models, other = [Model(), Model(lambda _: "5"), Model()], Model()
        with ExitStack() as stack:
            urls = [stack.enter_context(serving(each.app)) for each in (*models, other)]
            found = [
                await saved(services, url, f"{when} {number}", model=f"m{number}")
                for number, url in enumerate(urls[:3])
            ]

            async def move(first: Endpoint = found[0], url: str = urls[3]) -> None:
                await changed(services, first, base_url=f"{url}/v1", api_key="key-of-the-other")

            models[0].after[2] = move
            ids = [each.id for each in found]
            made = await services.rankings.create(
                replace(contest(0.0, 0.0), bank=bank, endpoints=ids)
            )
            if when != "under way":
                await move()
            async with running_worker(services):
                ended = await ranked(services, made.id)
        assert ended.status == "completed", ended.failure
        order = {entry["endpoint_id"]: entry for entry in figures_of(ended)["order"]}
        assert "was changed from openai_chat at" in order[ids[0]]["left_behind"]
        assert [order[one]["left_behind"] for one in ids[1:]] == [None, None]
        (decided,) = figures_of(ended)["pairs"]
        assert {decided["a"], decided["b"]} == {*ids[1:]}
        assert other.calls == []


@pytest.mark.parametrize("there_and_back", [False, True])
async def test_no_answer_is_cached_for_another_url(working: Services, there_and_back: bool) -> None:
    await sums(working)
    honest, other = sampling(), Model()
    with serving(honest.app) as url, serving(other.app) as elsewhere:
        attacked = await saved(working, url, limits=CallLimits(rpm=600))
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
        ended = await run(working, victim, cache=True)
        kept = (figures_of(ended)["usage"]["cache"] or {"calls": 0})["calls"]
    assert ended.status == "completed", ended.failure
    assert kept <= n_before
    assert kept + len(honest.calls) - n_before == N_ITEMS
    assert other.calls == []


async def test_no_answer_is_cached_for_a_key_that_came_while_it_was_asked(
    working: Services,
) -> None:
    await sums(working)
    model, keys = Model(), ["Bearer key-of-the-first", "Bearer key-of-the-next"]
    with serving(model.app) as url:
        endpoint = await saved(working, url)

        async def rotate() -> None:
            await changed(working, endpoint, api_key="key-of-the-next")
            async with waiting() as pause:
                while model.calls[-1][0] != keys[1]:  # other calls go on
                    await pause()

        model.after[1] = rotate
        await run(working, endpoint, cache=True, concurrency=2)
        asked = [keys.index(key) for key, _ in model.calls]
        await run(working, endpoint, cache=True)
    assert asked.count(0) in (1, 2)
    assert len(model.calls) == len(asked) + asked.count(0)


@pytest.mark.parametrize(
    ("told", "counts"),
    [
        *(((None, None), (40, 9)), ((7, None), (7, 9))),
        *(((None, 1), (40, 1)), ((0, 1), (40, 1)), ((7, 0), (7, 0))),
    ],
)
def test_tokens_that_are_not_reported_count_as_reserved(
    told: tuple[int | None, int | None], counts: tuple[int, int]
) -> None:
    assert charged_tokens("openai_chat", told, (40, 9)) == counts
    assert charged_tokens("scripted", told, (40, 9)) == told


@pytest.mark.parametrize(
    ("told", "budget"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 0}, {"tokens": 20}),
        ({"completion_tokens": 1}, {"usd": 0.001}),
        (None, {"usd": 0.001}),
    ],
)
async def test_unreported_usage_counts_as_reserved(
    working: Services, told: dict[str, Any] | None, budget: dict[str, float]
) -> None:
    await sums(working)
    hiding = Model(usage=told)
    with serving(hiding.app) as url:
        price = Price(input_per_1m=50.0, output_per_1m=2.0)
        endpoint = await working.endpoints.create(model_at(f"{url}/v1", name="m", price=price))
        ended = await run(working, endpoint, budget=budget)
        found = await closings(working, ended)
    assert ended.stop_reason == "budget_exhausted", ended.stop_detail
    assert len(hiding.calls) == 1
    (closing,) = found.values()
    assert (closing.method or {})["usage"] == "not told"
    assert (closing.tokens_in, closing.tokens_out, closing.usd) == (None, None, None)


async def test_what_was_reserved_is_not_told_as_usage(working: Services) -> None:
    await sums(working)
    with serving(Model(usage=None).app) as url:
        endpoint = await saved(working, url)
        first, again = [await run(working, endpoint, cache=True) for _ in range(2)]
        board = (await working.leaderboards.of_bank("sums")).board
    spent = figures_of(first)["usage"]
    unknown = {"tokens_in": None, "tokens_out": None, "usd": None}
    assert spent.items() >= {"calls": N_ITEMS, **unknown}.items()
    assert spent["at_most"]["calls"] == N_ITEMS
    assert spent["at_most"]["usd"] > 0
    assert figures_of(again)["usage"]["cache"] == {"calls": N_ITEMS, **unknown}
    assert figures_of(again)["usage"]["at_most"] is None
    assert board.entries


@pytest.mark.parametrize(
    ("told", "budget"),
    [
        (None, {"tokens_per_day": 1210}),
        ({"prompt_tokens": 0, "completion_tokens": 1}, {"usd_per_day": 0.0605}),
    ],
)
async def test_unreported_usage_counts_against_the_daily_budget_as_reserved(
    working: Services, told: dict[str, Any] | None, budget: dict[str, float]
) -> None:
    await sums(working)
    hiding = Model(usage=told)
    with serving(hiding.app) as url:
        sampling = GenerationParams(max_tokens=1000)
        price = Price(input_per_1m=50.0, output_per_1m=50.0)
        limits = CallLimits(**budget)  # type: ignore[arg-type]  # one of two kinds
        given = model_at(f"{url}/v1", name="m", price=price, sampling=sampling, limits=limits)
        endpoint = await working.endpoints.create(given)
        held = await until(working, (await begun(working, endpoint)).id, "waiting")
        await working.endpoints.budgets.close()
        _, spent = await working.endpoints.spend(endpoint.id)
    assert "is spent" in (held.waiting_reason or "")
    # A call may take 1,040 tokens, 40 of them for its prompt.
    assert len(hiding.calls) == (5 if told and "completion_tokens" in told else 1)
    assert spent.usd is not None
    assert spent.usd <= 0.0605
