"""Endpoints as workers use them: decrypted secrets, and rate limits over all workers."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.adapters.base import Completion, CompletionRequest
from app.adapters.guard import AddressGuard
from app.adapters.likelihood import Likelihood, LikelihoodRequest
from app.adapters.prompting import PromptStyle
from app.adapters.transport import Transport
from app.calling import GenerationParams
from app.errors import NotFoundError, PreconditionFailedError
from app.items import ItemContent, Message
from app.records.endpoints import CallLimits, Endpoint, EndpointSettings, Price
from app.records.sessions import Closing
from app.services.endpoints.calls import Call, RateLimited
from app.services.endpoints.service import EndpointService
from app.services.endpoints.specs import EndpointChange, EndpointSpec, origin_of
from app.services.sessions.asking import Asker
from app.settings import Settings
from app.storage.database import Database
from app.storage.paging import PageRequest
from app.storage.secrets import SecretBox
from tests.databases import executed


@pytest.fixture
async def endpoints(database: Database, settings: Settings) -> AsyncIterator[EndpointService]:
    guard = AddressGuard(allow_private=True)
    async with Transport(guard=guard) as transport:
        yield EndpointService(database, SecretBox(settings), transport, guard)


def spec(name: str | None = "a", *, limits: CallLimits | None = None) -> EndpointSpec:
    return EndpointSpec(
        settings=EndpointSettings(
            kind="openai_chat",
            name=name,
            base_url="http://127.0.0.1:9/v1",
            model="m",
            limits=limits or CallLimits(),
            price=Price(input_per_1m=1.0, output_per_1m=3.0),
        ),
        api_key="sk-secret",
        headers={"X-Team": "blue"},
    )


async def test_secrets_are_decrypted_and_never_printed(endpoints: EndpointService) -> None:
    created = await endpoints.create(spec())
    ready = await endpoints.ready(created.id)
    assert ready.config.api_key == "sk-secret"
    assert ready.config.headers == {"X-Team": "blue"}
    change, origin = EndpointChange(api_key="sk-secret"), origin_of(ready.endpoint)
    for value in (created, ready, spec(), change, origin):
        assert "sk-secret" not in repr(value)
        assert "blue" not in repr(value)


async def test_a_deleted_endpoint_is_gone_for_users_and_serves_its_sessions_to_the_end(
    endpoints: EndpointService, database: Database
) -> None:
    created = await endpoints.create(spec())
    async with database.unit_of_work() as uow:  # as the service does where sessions use it
        await uow.endpoints.archive(created.id, expected_revision=1)
    with pytest.raises(NotFoundError):
        await endpoints.get(created.id)
    assert (await endpoints.ready(created.id)).config.model == "m"
    with pytest.raises(NotFoundError):
        await endpoints.delete(created.id, expected_revision=2)


async def test_a_call_costs_what_its_endpoint_took_when_it_was_called(
    endpoints: EndpointService,
) -> None:
    ready = await endpoints.ready((await endpoints.create(spec())).id)
    dearer = replace(ready.endpoint.settings, price=Price(input_per_1m=1000.0))
    limited = RateLimited(ready, endpoints, endpoints._transport)

    class Answering:
        async def complete(self, request: CompletionRequest) -> Completion:
            changed = replace(ready, endpoint=replace(ready.endpoint, settings=dearer))
            limited.next = Call(changed, limited.next.examinee)  # by a call that begins meanwhile
            return Completion(text="A", raw="A", tokens_in=2_000_000, tokens_out=1_000_000)

    limited.next = Call(ready, cast(Any, Answering()))
    marker: Any = Mock(close=AsyncMock(return_value=Closing(outcome="scored", score=1.0)))
    item: Any = Mock(content=ItemContent(prompt="?"))
    asker = Asker(examinee=limited, endpoint=ready, marker=marker, style=PromptStyle())
    closing = await asker.ask(item, rng=np.random.default_rng(0))
    assert closing.usd == 2 * 1.0 + 1 * 3.0


@pytest.mark.parametrize(
    ("normalise", "most_likely"), [("none", "A"), ("bytes", "B"), ("characters", "C")]
)
async def test_likelihoods_are_divided_by_the_lengths_of_the_options(
    endpoints: EndpointService, normalise: Any, most_likely: str
) -> None:
    """By hand: -1, -2, -2.1; by bytes -1/1, -2/6, -2.1/4; by characters -1/1, -2/2, -2.1/4."""
    ready = await endpoints.ready((await endpoints.create(spec())).id)
    logprobs = {"a": -1.0, "語語": -2.0, "bbbb": -2.1}

    async def likelihood(request: LikelihoodRequest) -> Likelihood:
        return Likelihood(logprob=logprobs[request.continuation.strip()], n_tokens=1)

    marker: Any = Mock(close=AsyncMock(return_value=Closing(outcome="scored", score=1.0)))
    item: Any = Mock(content=ItemContent(prompt="?", choices=tuple(logprobs)))
    style = PromptStyle(mode="loglikelihood", normalise=normalise)
    examinee: Any = Mock(likelihood=likelihood)
    asker = Asker(examinee=examinee, endpoint=ready, marker=marker, style=style)
    await asker.ask(item, rng=np.random.default_rng(0))
    assert marker.close.call_args.args[1].text == most_likely


async def test_calls_of_one_process_share_a_look_whether_their_endpoint_has_changed(
    endpoints: EndpointService, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await endpoints.create(spec())
    ready = [await endpoints.ready(created.id) for _ in range(5)]
    endpoints._recent.forget(lambda _: True)
    looks: list[str] = []

    async def counted(endpoint_id: str, *, archived: bool) -> Endpoint:
        looks.append(endpoint_id)
        return created

    monkeypatch.setattr(endpoints, "get", counted)
    assert await asyncio.gather(*map(endpoints.renewed, ready)) == ready
    assert looks == [created.id]


async def test_changes_by_another_process_are_seen_at_the_start_and_within_a_second(
    endpoints: EndpointService, settings: Settings, database: Database
) -> None:
    other = EndpointService(database, SecretBox(settings), endpoints._transport, endpoints._guard)
    created = await endpoints.create(spec())
    first = await endpoints.ready(created.id)
    assert await endpoints.renewed(first) is first

    await other.update(created.id, EndpointChange(api_key="sk-second"), expected_revision=1)
    second = await endpoints.ready(created.id)
    assert second.config.api_key == "sk-second"
    assert await endpoints.renewed(second) is second  # not an older state that was kept

    await other.update(created.id, EndpointChange(api_key="sk-third"), expected_revision=2)
    kept = endpoints._recent._kept
    kept.expire(kept.timer() + 1.0)
    for held in (first, second):
        assert (await endpoints.renewed(held)).config.api_key == "sk-third"


async def test_an_endpoint_without_a_name_is_found_by_id_only(endpoints: EndpointService) -> None:
    unnamed = await endpoints.create(spec(name=None))
    await endpoints.create(spec(name=None))
    named = await endpoints.create(spec())
    page = await endpoints.list(PageRequest())
    assert [endpoint.id for endpoint in page.items] == [named.id]
    assert (await endpoints.get(unnamed.id)).settings.name is None


async def test_of_two_changes_at_once_one_is_refused(endpoints: EndpointService) -> None:
    created = await endpoints.create(spec())
    changes = [EndpointChange(settings={"model": model}) for model in ("x", "y")]
    results = await asyncio.gather(
        *(endpoints.update(created.id, change, expected_revision=1) for change in changes),
        return_exceptions=True,
    )
    refused = [result for result in results if isinstance(result, BaseException)]
    assert [type(error) for error in refused] == [PreconditionFailedError]
    assert (await endpoints.get(created.id)).revision == 2


async def test_an_endpoint_without_limits_is_never_waited_for_nor_written_to(
    endpoints: EndpointService, database: Database
) -> None:
    created = await endpoints.create(spec(limits=CallLimits(concurrency=3)))
    assert await endpoints.reserve(created.id, 1e9) == 0.0
    scheduled = "SELECT next_request_at, next_token_at FROM endpoints"
    assert await executed(database, scheduled) == [(None, None)]


@pytest.mark.parametrize(
    ("limits", "tokens", "waits"),
    [
        (CallLimits(tpm=0.6), (20, 0, 30, 1), (0, 2000, 2000, 5000)),  # one token in 100 s
        (CallLimits(rpm=0.06, tpm=0.6), (1, 30, 1), (0, 1000, 4000)),
    ],
)
async def test_each_call_waits_for_the_tokens_and_requests_before_it(
    endpoints: EndpointService, limits: CallLimits, tokens: list[int], waits: list[int]
) -> None:
    created = await endpoints.create(spec(limits=limits))
    found = [await endpoints.reserve(created.id, each) for each in tokens]
    assert found == [0.0, *(pytest.approx(seconds, abs=60) for seconds in waits[1:])]


async def test_new_limits_start_a_new_schedule(endpoints: EndpointService) -> None:
    created = await endpoints.create(spec(limits=CallLimits(rpm=0.06)))
    for _ in range(3):
        await endpoints.reserve(created.id, 0)
    change = EndpointChange(settings={"limits": CallLimits(rpm=60)})
    await endpoints.update(created.id, change, expected_revision=1)
    assert await endpoints.reserve(created.id, 0) == 0.0


async def test_workers_share_one_schedule(endpoints: EndpointService) -> None:
    created = await endpoints.create(spec(limits=CallLimits(rpm=0.06)))
    waits = await asyncio.gather(*(endpoints.reserve(created.id, 0) for _ in range(8)))
    assert sorted(waits) == [pytest.approx(1000.0 * n, abs=60) for n in range(8)]


async def test_a_call_reserves_its_prompt_and_its_longest_answer(
    endpoints: EndpointService, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved: list[float] = []

    async def reserve(_: str, tokens: float) -> float:
        reserved.append(tokens)
        return 0.0

    monkeypatch.setattr(endpoints, "reserve", reserve)
    request = CompletionRequest(
        messages=(Message("user", "x" * 400),), params=GenerationParams(max_tokens=50)
    )
    paced = await endpoints.ready((await endpoints.create(spec(limits=CallLimits(tpm=100)))).id)
    free = await endpoints.ready((await endpoints.create(spec(name="free"))).id)
    await endpoints.wait_for_turn(paced, request)
    await endpoints.wait_for_turn(free, request)
    assert reserved == [150.0]


async def test_sessions_of_one_process_share_concurrency(endpoints: EndpointService) -> None:
    created = await endpoints.create(spec(limits=CallLimits(concurrency=2)))
    one, other = await endpoints.ready(created.id), await endpoints.ready(created.id)
    running = most = 0
    full = asyncio.Event()

    async def call(index: int) -> None:
        nonlocal running, most
        async with (one if index % 2 else other).slots:
            running += 1
            most = max(most, running)
            if running == 2:
                full.set()
            await full.wait()
            await asyncio.sleep(0)
            running -= 1

    await asyncio.wait_for(asyncio.gather(*(call(index) for index in range(9))), 60)
    assert most == 2


@given(tokens_in=st.integers(0, 10**9), tokens_out=st.integers(0, 10**9))
def test_cost_is_the_price_per_million_times_the_tokens(tokens_in: int, tokens_out: int) -> None:
    price = Price(input_per_1m=2.0, output_per_1m=8.0)
    assert price.usd(tokens_in, tokens_out) == pytest.approx((2 * tokens_in + 8 * tokens_out) / 1e6)
    for_output = Price(output_per_1m=8.0).usd(tokens_in, tokens_out)
    assert for_output == pytest.approx(8 * tokens_out / 1e6)


def test_cost_is_unknown_without_a_price_or_without_counts() -> None:
    assert Price().usd(10, 10) is None
    assert Price(input_per_1m=1.0).usd(None, None) is None
    assert Price(input_per_1m=1.0, output_per_1m=1.0).usd(None, 2_000_000) is None
    assert Price(output_per_1m=1.0).usd(None, 2_000_000) == 2.0
