"""Items asked several times, and the cache of answers."""

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from typing_extensions import override

from app.calling import GenerationParams
from app.errors import InvalidInputError
from app.exchange.item_record import ItemRecord
from app.items import ItemContent, ScorerSpec
from app.records.banks import BankSpec
from app.records.endpoints import Price, ReasoningTags
from app.records.sessions import SessionRecord
from app.services.container import Services
from app.services.responses.collection import Collection
from tests.servers import serving
from tests.services.banks import alike, make_bank
from tests.services.judged import marker
from tests.services.sessions import figures_of, spec
from tests.worker.models import N_ITEMS, Model, sampling, sums
from tests.worker.sessions import closings, model_at, rescored, run_session


async def run(
    services: Services, url: str, plan: dict[str, Any], n: int = N_ITEMS, **changes: Any
) -> SessionRecord:
    stopping = {"score_margin": None, "min_items": 1, "max_items": n}
    full = {"stopping": stopping, "concurrency": 8, **plan}
    endpoint = model_at(f"{url}/v1", price=Price(input_per_1m=1.0, output_per_1m=2.0))
    endpoint = replace(endpoint, api_key=changes.pop("api_key", "key-one-two"))
    given = {"bank": "sums", "plan": full, "endpoint": endpoint, **changes}
    return await run_session(services, **given)


def assert_same_estimate(one: SessionRecord, other: SessionRecord) -> None:
    """Compare up to rounding, since answers in flight together may come in any order."""
    for name in ("theta", "se"):
        figures = (figures_of(record)["estimate"][name] for record in (one, other))
        assert next(figures) == pytest.approx(next(figures), abs=1e-9)


async def test_the_second_test_makes_no_call_and_finds_the_same(working: Services) -> None:
    await sums(working)
    model = sampling()
    with serving(model.app) as url:
        first = await run(working, url, {"cache": True})
        n_calls = len(model.calls)
        second = await run(working, url, {"cache": True})
        assert len(model.calls) == n_calls == N_ITEMS
        await run(working, url, {"cache": True}, api_key="another-key")
        assert len(model.calls) == 2 * N_ITEMS  # another key does not get the cached answers
        await run(working, url, {})
        assert len(model.calls) == 3 * N_ITEMS

    assert_same_estimate(second, first)
    assert figures_of(first)["usage"]["cache"] is None
    usage = figures_of(second)["usage"]
    assert (usage["calls"], usage["tokens_in"], usage["usd"]) == (0, 0, 0.0)
    assert usage["cache"]["calls"] == N_ITEMS
    assert usage["cache"]["tokens_in"] == figures_of(first)["usage"]["tokens_in"] == 10 * N_ITEMS
    assert usage["cache"]["usd"] == pytest.approx(figures_of(first)["usage"]["usd"])
    await working.response_sets.create("all")
    collected = await working.collector.collect("all", Collection(bank="sums"))
    # One address, model and settings are one examinee, and each item counts once.
    assert (collected.sessions, collected.accepted) == (4, N_ITEMS)


async def test_an_answer_that_was_cut_is_not_the_whole_one(working: Services) -> None:
    class Refusing(Model):
        """Refuses stop sequences, as reasoning models do."""

        @override
        async def _answer(self, request: Request) -> Response:
            if "stop" in await request.json():
                error = {"code": "unsupported_parameter", "param": "stop", "message": "No."}
                return JSONResponse({"error": error}, 400)
            return await super()._answer(request)

    await sums(working)
    model = Refusing(lambda _: "5\n\nAnswer: 4")
    with serving(model.app) as url:
        for stop, answer in ((("\n\n",), "5"), ((), "5\n\nAnswer: 4")):
            endpoint = model_at(f"{url}/v1", sampling=GenerationParams(stop=stop))
            ended = await run(working, url, {"cache": True}, endpoint=endpoint)
            found = await closings(working, ended)
            assert {closing.answer_text for closing in found.values()} == {answer}
    assert len(model.calls) == 2 * N_ITEMS


async def test_an_answer_without_other_tags_of_reasoning_is_another_one(working: Services) -> None:
    await sums(working)
    model = Model(lambda _: "<a>5</a>4")
    with serving(model.app) as url:
        for tag, answer in (("a", "4"), ("b", "<a>5</a>4")):
            tags = ReasoningTags(open=f"<{tag}>", close=f"</{tag}>")
            endpoint = model_at(f"{url}/v1", reasoning=tags)
            ended = await run(working, url, {"cache": True}, n=1, endpoint=endpoint)
            found = await closings(working, ended)
            assert {closing.answer_text for closing in found.values()} == {answer}


async def test_answers_on_a_withheld_bank_are_cached_for_that_bank_only(working: Services) -> None:
    await sums(working)
    await sums(working, "alike")
    await sums(working, "secret", visibility="withheld")
    model = sampling()
    with serving(model.app) as url:
        for bank, n_calls in (("secret", 1), ("sums", 2), ("secret", 2), ("alike", 2)):
            await run(working, url, {"cache": True}, bank=bank)
            assert len(model.calls) == n_calls * N_ITEMS


async def test_judgements_are_cached_by_the_same_rules(working: Services) -> None:
    n = 6
    scores = itertools.count()
    judge = Model(lambda _: json.dumps({"score": 1 + next(scores) % 10, "reason": "so"}))
    model = sampling(2)
    with serving(model.app) as url, serving(judge.app) as judge_url:
        await marker(working, f"{judge_url}/v1")
        await sums(
            working, n=n, default_scorer=ScorerSpec("judge", {"judges": ["judge"], "repeats": 2})
        )
        plan = {"cache": True, "repeats": 2}
        first = await run(working, url, plan, n=n)
        n_judged = len(judge.calls)
        second = await run(working, url, plan, n=n)
        assert len(model.calls) == 2 * n
        assert n_judged == len(judge.calls) == 4 * n  # two judgements of each of two answers

    assert_same_estimate(second, first)
    saved = figures_of(second)["usage"]["cache"]
    assert saved["calls"] == 6 * n
    usage, again = figures_of(first)["usage"], figures_of(second)["usage"]
    assert saved["usd"] == pytest.approx(usage["usd"] + usage["judge"]["usd"])
    assert (again["usd"], again["judge"]["calls"], again["judge"]["usd"]) == (0.0, 0, 0.0)


async def test_repeats_count_as_their_mean_and_estimate_the_noise(working: Services) -> None:
    n = 120
    await sums(working, n=n)
    model = sampling(4)
    with serving(model.app) as url:
        ended = await run(working, url, {"preset": "ability", "repeats": 3}, n=n)

    assert len(model.calls) == 3 * n == figures_of(ended)["usage"]["calls"]
    found = await closings(working, ended)
    figures = figures_of(ended)["repeats"]
    assert (figures["n"], figures["items"]) == (3, n)
    assert 1.0 < figures["estimate"]["answers_per_item"] < 3.0
    assert figures["estimate"]["se"] < figures_of(ended)["estimate"]["se"]
    assert {closing.score for closing in found.values()} > {0.0, 1.0}

    again = await rescored(working, ended.id)
    assert figures_of(again)["rescore"]["changed"] == 0
    assert_same_estimate(again, ended)


async def test_each_repeat_has_a_seed_and_a_kept_answer_of_its_own(working: Services) -> None:
    await sums(working)
    model = sampling()
    with serving(model.app) as url:
        endpoint = model_at(f"{url}/v1", sampling=GenerationParams(seed=7))
        first = await run(working, url, {"repeats": 2, "cache": True}, endpoint=endpoint)
        assert sorted(body["seed"] for _, body in model.calls) == [7] * N_ITEMS + [8] * N_ITEMS
        second = await run(working, url, {"repeats": 2, "cache": True}, endpoint=endpoint)
        assert len(model.calls) == 2 * N_ITEMS
    again, once = ({**figures_of(r)["repeats"], "estimate": None} for r in (second, first))
    assert again == once
    assert figures_of(second)["usage"]["cache"]["calls"] == 2 * N_ITEMS


async def test_the_number_of_repeats_is_limited(services: Services) -> None:
    for repeats in (0, 33):
        with pytest.raises(InvalidInputError, match=r"/repeats: expected a number [<>]= "):
            await services.sessions.create(spec(plan={"repeats": repeats}))
    item = ItemRecord(key="a", content=ItemContent(prompt="?", choices=("x", "y"), target=("x",)))
    bank = BankSpec(name="choices", prompt={"mode": "loglikelihood"})
    await make_bank(services, bank, alike("a"), [item])
    endpoint = model_at("http://127.0.0.1:9/v1", kind="openai_completions")
    with pytest.raises(InvalidInputError, match="repeats need mode 'generate'"):
        await services.sessions.create(spec(bank="choices", endpoint=endpoint, plan={"repeats": 2}))
