"""Sessions: what is refused before one is created, and what is stored of it."""

import json
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from app.acting import DEFAULT_PROJECT, Acting, acting_for
from app.errors import InvalidInputError, InvalidStateError, MissingScopeError, NotFoundError
from app.records.endpoints import Price
from app.records.sessions import Examinee, ExamineeKind, Plan, SessionFilter
from app.services.container import Services
from app.services.sessions.drafts import SessionSpec, check_plan
from app.services.sessions.plan import SessionPlan, nothing_to_ask
from app.services.sessions.report import SessionFormat
from app.services.sessions.run import open_run
from app.services.sessions.service import SessionService
from app.services.visibility import View
from app.storage.paging import PageRequest
from tests.services.banks import alike, make_bank, question
from tests.services.sessions import answered, by_hand, length, scripted, spec
from tests.values import not_none


async def test_a_refused_session_leaves_no_endpoint_behind(services: Services) -> None:
    named = scripted({"name": "kept?"}, theta=0.0)
    with pytest.raises(InvalidInputError, match="price"):
        await services.sessions.create(spec(endpoint=named, plan={"budget": {"usd": 1.0}}))
    assert not (await services.endpoints.list(PageRequest())).items


BY_HAND = {"concurrency": 64, "answer_within": 5.0, "idle_timeout": 5.0, "budget": {"usd": 1.0}}


@pytest.mark.parametrize(
    ("price", "plan", "pointer"),
    [
        (None, {"repeats": 2}, "/repeats"),
        (None, {"cache": True}, "/repeats"),
        (None, {"concurrency": 65}, "/concurrency"),
        (None, BY_HAND, None),
        (Price(), {"answer_within": 5.0}, "/answer_within"),
        (Price(), {"idle_timeout": 5.0}, "/answer_within"),
        (Price(), {"budget": {"usd": 1.0}}, "/budget/usd"),
        (Price(), {"repeats": 2, "cache": True, "concurrency": 65}, None),
    ],
)
def test_a_plan_suits_whoever_answers(price: Price | None, plan: Any, pointer: str | None) -> None:
    made = SessionPlan.from_dict(plan)
    if pointer is None:
        check_plan(made, price)
        return
    with pytest.raises(InvalidInputError) as refused:
        check_plan(made, price)
    assert refused.value.problems[0].pointer == pointer


async def test_unknown_banks_and_endpoints_are_refused(services: Services) -> None:
    with pytest.raises(NotFoundError, match="nothing"):
        await services.sessions.create(spec(bank="nothing"))
    with pytest.raises(NotFoundError, match="end_x"):
        await services.sessions.create(spec(endpoint=None, endpoint_id="end_x"))


async def test_sessions_are_listed_by_status_newest_first(services: Services) -> None:
    made = [await services.sessions.create(spec()) for _ in range(3)]
    await services.sessions.cancel(made[1].id)

    queued = await services.sessions.list_page(PageRequest(), SessionFilter(status="queued"))
    first = await services.sessions.list_page(PageRequest(limit=2))

    assert [record.id for record in queued.items] == [made[2].id, made[0].id]
    assert first.has_more
    rest = await services.sessions.list_page(PageRequest(limit=2, after=first.items[-1].id))
    assert [record.id for record in rest.items] == [made[0].id]


async def test_an_ended_session_cannot_be_cancelled_paused_or_resumed(services: Services) -> None:
    record = await services.sessions.create(spec())
    await services.sessions.cancel(record.id)

    for verb in (services.sessions.cancel, services.sessions.pause, services.sessions.resume):
        with pytest.raises(InvalidStateError, match="cancelled"):
            await verb(record.id)


async def test_a_manual_session_asks_one_item_at_a_time_by_default(services: Services) -> None:
    live = await services.sessions.create(spec(plan=length(5)))
    one = await by_hand(services, length(5))
    three = await by_hand(services, length(5, concurrency=3))
    assert live.design["concurrency"] > 1
    assert (one.design["concurrency"], three.design["concurrency"]) == (1, 3)


@pytest.mark.slow
async def test_exposure_control_is_fitted_when_a_session_asks_for_it(services: Services) -> None:
    plan, firsts = length(5, selection={"exposure": {"max_rate": 0.3}}), set()
    for seed in range(8):
        record = await by_hand(services, plan, seed=seed)
        firsts.add((await services.manual_sessions.next_item(record.id)).item.key)

    assert len(firsts) > 1  # otherwise every test starts with the same item


async def test_a_session_keeps_to_its_prompt_and_policy(services: Services) -> None:
    record = await by_hand(services, length(2))
    bank = (await services.banks.get_bank("demo")).bank

    await services.banks.update_bank(bank.id, bank.revision, {"unparsed_policy": "wrong"})
    awaited = await services.manual_sessions.next_item(record.id)

    assert awaited.version.unparsed_policy == "missing"
    assert record.provenance["parameters_hash"] == awaited.version.parameters_hash
    later = await by_hand(services, length(2))
    assert later.provenance["asking"]["unparsed_policy"] == "wrong"


def by_cost(price: Price | None = None) -> SessionSpec:
    """Return a session that selects items by information per cost."""
    endpoint = scripted({"price": price or Price()}, theta=0.0)
    plan = length(5, preset="ability", selection={"cost_weight": 1.0}, concurrency=1)
    return spec(bank="priced", endpoint=endpoint, plan=plan)


async def test_information_per_cost_uses_prices_or_else_tokens(services: Services) -> None:
    tokens = {"reads": (100, 10), "balanced": (50, 20), "writes": (1, 50)}
    items = [
        question(key, expected_tokens_in=read, expected_tokens_out=written)
        for key, (read, written) in tokens.items()
    ]
    await make_bank(services, "priced", alike(*tokens), items)

    # Costs: 60, 45 and 50.5 output tokens; then in money, by each way of charging.
    for price, first in (
        (None, "balanced"),
        (Price(), "balanced"),
        (Price(input_per_1m=0.0, output_per_1m=0.0), "balanced"),
        (Price(input_per_1m=1.0, output_per_1m=10.0), "reads"),
        (Price(input_per_1m=1.0, output_per_1m=1.0), "writes"),
        (Price(output_per_1m=3.0), "reads"),
    ):
        run = await open_run(services.versions, await services.sessions.create(by_cost(price)))
        ((asked,), _) = run.choose(elapsed_s=0.0)
        assert run.version.key_at(asked.position) == first, price


async def test_a_choice_by_cost_is_refused_where_costs_are_not_known(services: Services) -> None:
    await make_bank(services, "priced", alike("q"), [question("q")])

    with pytest.raises(InvalidInputError, match="expected tokens, in and out") as refused:
        await services.sessions.create(by_cost(Price(input_per_1m=1.0, output_per_1m=2.0)))

    assert refused.value.problems[0].pointer == "/selection/cost_weight"
    assert not (await services.sessions.list_page(PageRequest())).items
    assert not (await services.endpoints.list(PageRequest())).items


SHORT = {"stopping": {"se": None, "min_items": 1, "max_items": 30}}
LONGER: Plan = {"stopping": {"se": None, "min_items": 1, "max_items": 60}}


async def test_a_live_session_that_is_extended_waits_for_a_worker(services: Services) -> None:
    record = await services.sessions.create(spec())
    await services.sessions.cancel(record.id)
    extended = await services.derived_sessions.extend(record.id, length(14), {})
    assert (extended.mode, extended.status) == ("live", "queued")


async def test_only_an_admin_answers_for_an_examinee_of_another_key(services: Services) -> None:
    examinee = Examinee(name="anna", kind=ExamineeKind.PERSON)
    await by_hand(services, examinee=examinee)
    given = spec(mode="manual", endpoint=None, examinee=examinee)
    with acting_for(Acting(DEFAULT_PROJECT, "key_of_another")):
        with pytest.raises(MissingScopeError, match="'anna' was named by another key"):
            await services.sessions.create(given)
        assert (await services.sessions.create(given, is_admin=True)).examinee == examinee


async def test_a_report_names_the_endpoint_and_an_export_its_model(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await answered(services, await by_hand(services, length(5)))
    provenance: Any = {**record.provenance, "n_never_asked": 7}
    for name, model, metadata, reported, exported in (
        ("mine", "m", {"model": "told"}, "mine", "m"),
        (None, "m", {"model": "told"}, "m", "m"),
        ("mine", None, {"model": "told"}, "mine", "told"),
        ("mine", None, {}, "mine", "mine"),
        (None, None, {"model": "told"}, "told", "told"),
        (None, None, {}, "A model answered for by hand", "manual"),
    ):
        named = replace(record, endpoint_name=name, endpoint_model=model, metadata=metadata)
        stored = AsyncMock(return_value=replace(named, provenance=provenance))
        monkeypatch.setattr(SessionService, "get", stored)
        identity = (await services.session_reports.report(record.id, reveal=True)).identity
        assert (identity.examinee, identity.n_never_asked) == (reported, 7)
        file = await services.session_reports.export(record.id, SessionFormat.EEE, reveal=True)
        assert json.loads(file)["model_info"]["name"] == exported


async def test_errors_are_asked_again(services: Services) -> None:
    begun = await by_hand(services, SHORT)
    failed = await answered(services, begun, lambda _: {"outcome": "error"})
    assert failed.status == "failed"
    assert nothing_to_ask(failed) is None
    longer = await services.derived_sessions.extend(failed.id, LONGER, {})
    assert longer.status == "awaiting_response"


async def test_a_session_with_too_many_refusals_is_not_extended(services: Services) -> None:
    begun = await by_hand(services, SHORT)
    failed = await answered(services, begun, lambda _: {"outcome": "refused"})
    assert failed.status == "failed"
    reason = not_none(nothing_to_ask(failed))
    assert reason == failed.stop_detail
    with pytest.raises(InvalidStateError) as refused:
        await services.derived_sessions.extend(failed.id, LONGER, {})
    told = f"A session that extends {failed.id} would ask nothing. {reason}"
    assert refused.value.detail == told
    lenient: Plan = {**LONGER, "failures": {"max_share": 1.0}}
    longer = await services.derived_sessions.extend(failed.id, lenient, {})
    assert longer.status == "awaiting_response"


async def test_an_extension_that_would_ask_nothing_is_refused(services: Services) -> None:
    await make_bank(services, "few", alike(*"abcdef"))
    begun = await by_hand(services, length(3), bank="few")
    ended = await answered(services, begun, lambda _: {"score": 1.0})
    extend = services.derived_sessions.extend

    assert nothing_to_ask(ended) is None
    unchanged: Plan = {}
    for changes in (unchanged, length(3), length(2)):
        with pytest.raises(InvalidInputError, match="more than the 3 questions asked") as refused:
            await extend(ended.id, changes, {})
        assert refused.value.problems[0].pointer == "/stopping/max_items"
        assert ("the limit of the old session" in str(refused.value)) == (changes == unchanged)

    whole = await answered(services, await extend(ended.id, length(6), {}), lambda _: {"score": 1})
    assert nothing_to_ask(whole) == "All 6 questions that may be asked were asked."
    with pytest.raises(InvalidStateError, match=r"would ask nothing\. Every active item"):
        await extend(whole.id, length(12), {})
    found = await services.sessions.list_page(PageRequest())
    assert {one.id for one in found.items} == {ended.id, whole.id}


async def test_an_extension_keeps_the_rules_that_it_does_not_name(services: Services) -> None:
    extend = services.derived_sessions.extend
    missed: Plan = {"stopping": {"score_margin": 0.01, "min_items": 6, "max_items": 6}}
    reached: Plan = {"stopping": {"score_margin": 0.5, "min_items": 6, "max_items": 90}}
    for plan, told, wanted in (
        (missed, {"max_items": 9}, (None, 0.01, 6, 9)),
        (missed, {"score_margin": 0.02, "max_items": 9}, (None, 0.02, 6, 9)),
        (missed, {"se": 0.2, "max_items": 9}, (0.2, None, 6, 9)),
        (missed, {"score_margin": None, "max_items": 9}, (None, None, 6, 9)),
        (reached, {"max_items": 20}, (None, None, 6, 20)),
        (reached, {"score_margin": 0.05}, (None, 0.05, 6, 90)),
    ):
        ended = await answered(services, await by_hand(services, plan))
        longer = await extend(ended.id, {"stopping": told}, {})
        stopping = longer.design["stopping"]
        found = tuple(stopping[name] for name in ("se", "score_margin", "min_items", "max_items"))
        assert found == wanted, told
    failed = await answered(
        services, await by_hand(services, missed), lambda _: {"outcome": "error"}
    )
    longer = await extend(failed.id, {"stopping": {"max_items": 4}}, {})
    assert longer.design["stopping"]["min_items"] == 4  # the new limit goes before the old minimum


async def test_an_extension_goes_on_beyond_every_goal_that_was_reached(services: Services) -> None:
    numbers = {"score_margin": None, "se": None, "min_items": 5, "max_items": 40}
    for goal in (
        {"cut_score": {"theta": -3.0, "confidence": 0.6}},
        {"theta_change": 5.0},
        {"min_information": 50.0},
        {"any_of": [{"se": 3.0}]},
        {"all_of": [{"se": 3.0}, {"score_margin": 0.5}]},
        {"score_margin": 0.5, "any_of": [{"se": 3.0}]},
    ):
        plan: Plan = {"preset": "ability", "stopping": {**numbers, **goal}}
        ended = await answered(services, await by_hand(services, plan))
        assert ended.summary["progress"]["items"] == 5
        longer = await services.derived_sessions.extend(
            ended.id, {"stopping": {"max_items": 60}}, {}
        )
        left = {name: rule for name, rule in longer.design["stopping"].items() if rule}
        assert left == {"min_items": 5, "max_items": 60}, goal


async def test_a_replay_on_a_larger_version_may_be_extended(services: Services) -> None:
    await make_bank(services, "small", alike(*"abcdef"))
    begun = await by_hand(services, length(9), bank="small")
    whole = await answered(services, begun, lambda _: {"score": 1.0})
    large = await make_bank(services, "large", alike(*"abcdefgh"))
    derived = services.derived_sessions
    everything = View(is_whole=True)
    replay = await derived.replay(
        whole.id, {}, bank_version_id=large.id, metadata={}, view=everything
    )
    assert replay.stop_reason == whole.stop_reason == "bank_exhausted"
    assert nothing_to_ask(replay) is None
    assert (await derived.extend(replay.id, length(9), {})).status == "awaiting_response"
