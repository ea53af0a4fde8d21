"""Figures of a session from its answers: usage, repeats, expected length; worked out otherwise."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from statistics import fmean, variance
from typing import Any

import numpy as np
import pytest
from cachetools import LRUCache

from app.engine import Design
from app.engine.bank import ItemBank, ItemIndex
from app.engine.design.parts import BudgetDesign
from app.engine.models.multidimensional import Loadings, MultidimensionalModel, Population
from app.engine.prediction.correction import (
    IntervalCorrection,
    IntervalFactor,
)
from app.engine.prediction.targets import WHOLE_BANK
from app.engine.state import Response, Usage
from app.errors import InvalidInputError
from app.records.fields import interval
from app.records.figures import NOT_TOLD
from app.records.sessions import Closing, SessionEvent
from app.services.banks.loaded import LoadedVersion
from app.services.container import Services
from app.services.sessions.asking import combined
from app.services.sessions.drafts import reachable_se
from app.services.sessions.figures import (
    Meter,
    SpareTime,
    effort_of,
    profile_of,
    right_in,
    saved,
    shown,
    spent_figures,
)
from app.services.sessions.plan import SessionPlan
from app.services.sessions.result import Result, score_in
from app.services.sessions.run import SessionRun
from tests.engine.corrections import level_factor
from tests.services.banks import alike, make_bank, question
from tests.services.sessions import length, run_of, spec
from tests.values import not_none

PAID = Closing(outcome="scored", score=1.0, tokens_in=10, tokens_out=2, usd=0.5, attempts=1)
UNTOLD = replace(PAID, tokens_in=None, tokens_out=None, usd=None)
RESERVED = replace(PAID, method={"usage": NOT_TOLD})


def metered(*closings: Closing, **budget: Any) -> Meter:
    """Return a meter that has taken answers to one item after the other."""
    meter = Meter(BudgetDesign(**budget))
    for item, closing in enumerate(closings):
        meter.take(closing, item)
    return meter


@pytest.mark.parametrize(
    ("closings", "sums", "at_most"),
    [
        ([], (0, 0, 0, 0.0), None),
        ([PAID, replace(PAID, attempts=3, usd=0.25)], (4, 20, 4, 0.75), None),
        ([PAID, replace(UNTOLD, attempts=None, outcome="error")], (1, 10, 2, 0.5), None),
        ([PAID, replace(UNTOLD, outcome="refused")], (2, 10, 2, None), None),
        ([PAID, replace(UNTOLD, outcome="unparsed")], (2, None, None, None), None),
        ([PAID, replace(PAID, tokens_out=None)], (2, 20, None, 1.0), None),
        ([PAID, RESERVED], (2, None, None, None), (2, 20, 4, 1.0)),
        (
            [PAID, replace(RESERVED, outcome="error", score=None)],
            *((2, None, None, None), (2, 20, 4, 1.0)),
        ),
    ],
)
def test_a_sum_is_unknown_as_soon_as_one_paid_answer_does_not_tell(
    closings: Sequence[Closing],
    sums: tuple[int | float | None, ...],
    at_most: tuple[int | float, ...] | None,
) -> None:
    meter = metered(*closings)
    told: Any = spent_figures([meter])
    names = ("calls", "tokens_in", "tokens_out", "usd")
    assert tuple(told[name] for name in names) == sums
    limit = told["at_most"]
    assert (None if limit is None else tuple(limit[name] for name in names)) == at_most
    both = spent_figures(iter([meter, metered(PAID)]))
    assert both["calls"] == told["calls"] + 1


def test_no_session_has_spent_nothing() -> None:
    nothing = {"calls": 0, "tokens_in": 0, "tokens_out": 0, "usd": 0.0, "at_most": None}
    assert spent_figures([]) == nothing


@pytest.mark.parametrize(
    ("budget", "closing", "is_blind"),
    [
        ({"tokens": 100}, PAID, False),
        ({"tokens": 100}, replace(PAID, tokens_in=None), True),
        ({"tokens": 100}, replace(PAID, tokens_out=None), True),
        ({"tokens": 100}, replace(PAID, usd=None), False),
        ({"usd": 1.0}, replace(PAID, usd=None), True),
        ({"usd": 1.0}, replace(PAID, tokens_in=None), False),
        ({"seconds": 1.0}, UNTOLD, False),
        ({"tokens": 100}, replace(UNTOLD, outcome="refused"), False),
        ({"tokens": 100}, replace(UNTOLD, attempts=None), False),
    ],
)
def test_a_budget_is_blind_to_what_an_answer_does_not_tell(
    budget: dict[str, float], closing: Closing, is_blind: bool
) -> None:
    assert metered(closing, **budget).is_blind is is_blind
    assert metered(closing, PAID, **budget).is_blind is is_blind


@pytest.mark.parametrize("n", [1, 2, 19, 20, 21, 100])
def test_quantiles_of_latency_are_the_least_values_that_so_many_do_not_exceed(n: int) -> None:
    values = [float(value) for value in np.random.default_rng(n).permutation(n)]
    usage = metered(*(replace(PAID, latency_ms=value) for value in values), PAID).figures(1.23456)
    assert usage["seconds"] == 1.235
    assert usage["latency_ms"] == {
        name: min(v for v in values if sum(other <= v for other in values) >= share * n)
        for name, share in (("p50", 0.5), ("p95", 0.95))
    }
    assert metered(PAID).figures(0.0)["latency_ms"] is None


def test_quantiles_of_latency_are_of_single_answers_also_where_items_are_repeated() -> None:
    fast, slow = (replace(PAID, latency_ms=value) for value in (10.0, 90.0))
    usage = metered(*[combined([fast, fast, replace(UNTOLD, latency_ms=None), slow])] * 5)
    assert usage.figures(0.0)["latency_ms"] == {"p50": 10.0, "p95": 90.0}


def test_judges_and_the_cache_are_summed_apart() -> None:
    cost: Any = {"calls": 2, "tokens_in": 30, "tokens_out": 4, "usd": 0.25}
    judged: Any = {"usage": cost, "cached": {**cost, "usd": 1.0}}
    kept: Any = {"cached": {**cost, "calls": 5}}
    twice = [replace(PAID, marking=judged)] * 2
    usage = metered(*twice, replace(PAID, method=kept)).figures(0.0)
    assert usage["judge"] == {"calls": 4, "tokens_in": 60, "tokens_out": 8, "usd": 0.5}
    assert usage["cache"] == {"calls": 9, "tokens_in": 90, "tokens_out": 12, "usd": 2.25}
    assert usage["calls"] == 3
    assert metered(PAID).figures(0.0) == {
        **spent_figures([metered(PAID)]),
        "seconds": 0.0,
        "latency_ms": None,
        "judge": None,
        "cache": None,
    }
    unknown: Any = {**cost, "usd": None}
    both = {"calls": 4, "tokens_in": 60, "tokens_out": 8, "usd": None}
    assert saved([None, unknown, unknown]) == both


def repeated(*scores: float | None) -> Closing:
    """Return the closing of several answers to one item."""
    closings = [
        replace(PAID, score=score, outcome="error" if score is None else "scored")
        for score in scores
    ]
    return combined(closings)


async def test_repeats_estimate_chances_of_single_answers(services: Services) -> None:
    version = await services.versions.load(bank="demo")
    plan = SessionPlan.from_dict(length(9, repeats=4))
    run = run_of(version, plan)
    items: list[list[float | None]] = [
        [1.0, 1.0, 0.0, 1.0],
        [0.0, 0.5, 1.0, 1.0],
        [1.0, None, 1.0, 0.0],
        [1.0, None, None, None],
        [0.0, None, 1.0, None],
        [1.0, 1.0, 1.0, 1.0],
        [None, None, None, None],
    ]
    meter = metered(PAID, *(repeated(*scores) for scores in items))
    meter.take(repeated(0.0, 0.0, 0.0, 0.0), None)  # of a pretest item

    figures = not_none(meter.repeats(run.test, run.state))

    known = [[score for score in scores if score is not None] for scores in items[:6]]
    assert (figures["n"], figures["items"], figures["estimate"]) == (4, 6, None)
    spread = fmean(variance(scores) for scores in known if len(scores) > 1)
    assert figures["within_item_variance"] == pytest.approx(spread)
    for k, chance in zip(range(1, 5), figures["pass_k"], strict=True):
        drawn = [[*combinations(scores, k)] for scores in known if len(scores) >= k]
        by_hand = fmean(fmean(set(some) == {1.0} for some in draws) for draws in drawn)
        assert chance == pytest.approx(by_hand)
    assert metered(PAID).repeats(run.test, run.state) is None


def test_answers_to_one_item_are_one_answer_of_their_mean_score_and_summed_cost() -> None:
    late = replace(PAID, score=0.5, latency_ms=30.0, attempts=2, answer_text="half")
    unscored = replace(UNTOLD, score=None, outcome="error", attempts=None, latency_ms=50.0)
    wrong = replace(PAID, score=0.0, latency_ms=20.0)

    made = combined([unscored, late, wrong])

    assert (made.outcome, made.score, made.answer_text) == ("scored", 0.25, "half")
    assert (made.tokens_in, made.tokens_out, made.usd) == (20, 4, 1.0)
    assert (made.attempts, made.latency_ms) == (3, 50.0)
    assert combined([wrong, replace(UNTOLD, score=1.0)]).usd is None
    cost: Any = {"calls": 2, "tokens_in": 30, "tokens_out": 4, "usd": 0.25}
    judged: Any = {"scorer": "judge", "reason": "first", "usage": cost, "cached": cost}
    limited: Any = {"scorer": "judge", "usage": cost, "at_most": {**cost, "usd": 1.0}}
    marked = combined([late, replace(late, marking=judged), replace(wrong, marking=limited)])
    assert marked.marking == {
        **judged,
        "usage": {"calls": 4, "tokens_in": 60, "tokens_out": 8, "usd": 0.5},
        "at_most": {"calls": 4, "tokens_in": 60, "tokens_out": 8, "usd": 1.25},
    }
    none = combined([unscored, replace(unscored, reason="The second.")])
    assert (none.score, none.reason, none.attempts) == (None, None, 0)


def test_the_number_of_right_answers_is_told_without_partial_credit() -> None:
    assert right_in([]) == {"right": None, "mean": None}
    assert right_in([1.0, 0.0, 1.0]) == {"right": 2, "mean": pytest.approx(2 / 3)}
    assert right_in([1.0, 0.5]) == {"right": None, "mean": 0.75}


def test_the_cost_of_an_item_is_unknown_without_items_or_without_prices() -> None:
    def told(usd: float | None, items: int, pretest: int = 0) -> float | None:
        usage = {"usd": usd, "latency_ms": {"p50": 1.0}}
        asked = {"progress": {"items": items}, "pretest": {"items": pretest}}
        effort = effort_of({"usage": usage, **asked})
        assert effort["latency_ms"] == {"p50": 1.0}
        cost: float | None = effort["usd_per_item"]
        return cost

    assert [told(1.0, 4), told(0.0, 4), told(1.0, 0), told(None, 4)] == [0.25, 0.0, None, None]
    assert told(1.0, 6, pretest=2) == 0.125  # the cost includes that of trial questions


def test_the_cost_of_an_item_counts_cached_answers_with_the_price_of_their_calls() -> None:
    def told(kept: float | None, judge: dict[str, float] | None = None) -> float | None:
        cache = {"usd": kept, "calls": 3}
        usage = {"usd": 0.25, "cache": cache, "judge": judge}
        cost: float | None = effort_of({"usage": usage, "progress": {"items": 4}})["usd_per_item"]
        return cost

    assert told(0.75) == 0.25
    assert told(None) is None
    assert told(0.75, judge={"usd": 1.0}) is None  # the judge's calls may be among the cached ones


def test_spare_time_grows_with_the_clock_up_to_its_most() -> None:
    now = 0.0
    spare = SpareTime(share=0.5, most_s=2.0, clock=lambda: now)
    found = []
    for spent_s, waited_s in zip((1.5, 0.5, 3, 0, 0, 0), (0, 0, 0, 3, 1, 99), strict=True):
        with spare.spent():
            now += spent_s
        now += waited_s
        found.append(spare.is_left())
    # Left: 2 - 1.5 + 0.75 = 1.25; 1; -0.5; 1; 1.5; 2 at most.
    assert found == [True, True, False, True, True, True]
    with spare.spent():
        now += 4.0
    assert not spare.is_left()  # 2 - 4 + 2 = 0
    now += 0.1
    assert spare.is_left()


def opened(version: LoadedVersion, **plan: Any) -> SessionRun:
    made = SessionPlan.from_dict({"preset": "ability", "concurrency": 1, **plan})
    return run_of(version, made)


def with_nine_answers(run: SessionRun, *, refused: int) -> float:
    """Answer nine items, refusing the first ones; return the information of the last."""
    information: float | None = None
    for turn in range(9):
        ((asked,), _) = run.choose(elapsed_s=0.0)
        information = asked.information
        score = None if turn < refused else float(turn % 2)
        outcome = "refused" if score is None else "scored"
        run.close(asked.step, Closing(outcome=outcome, score=score, attempts=1))
    return not_none(information)


@pytest.mark.parametrize(
    ("stopping", "unscored"),
    [
        ({"se": 0.3, "min_items": 1, "max_items": 500}, 0),
        ({"se": 0.3, "min_items": 1, "max_items": 500}, 3),
        ({"se": 0.45, "min_items": 100, "max_items": 500}, 3),
        ({"se": 0.9, "min_items": 9, "max_items": 500}, 0),
        ({"se": 0.1, "min_items": 1, "max_items": 30}, 0),
        ({"se": 0.05, "min_items": 1, "max_items": 100_000}, 0),
    ],
)
async def test_items_are_expected_until_the_standard_error_is_reached(
    services: Services, stopping: dict[str, float], unscored: int
) -> None:
    version = await services.versions.load(bank="demo")
    run = opened(version, stopping=stopping)
    assert run.summary(elapsed_s=0.0)["progress"]["expected_items"] is None  # nothing is asked
    information = with_nine_answers(run, refused=unscored)

    told = run.summary(elapsed_s=1.0)["progress"]
    at_end = run.summary(elapsed_s=1.0, final=True)["progress"]

    scored, more, se = 9 - unscored, 0, run.state.belief.se
    least = stopping["min_items"]
    while (se**-2 + more * information) ** -0.5 > stopping["se"] or scored + more < least:
        more += 1
    expected = min(9 + math.ceil(more * 9 / scored), int(stopping["max_items"]))
    assert told["expected_items"] == min(expected, version.n_active)
    assert (told["items"], told["scored"], at_end["expected_items"]) == (9, scored, 9)


async def test_items_are_expected_until_the_margin_is_reached(services: Services) -> None:
    version = await services.versions.load(bank="demo")
    run = opened(version, stopping={"se": None, "score_margin": 0.05, "max_items": 300})
    with_nine_answers(run, refused=3)
    figures: Any = run.summary(elapsed_s=1.0)

    interval, n = figures["score"]["interval"], run.test.n_counted
    reached = (interval["hi"] - interval["lo"]) / 2

    def margin(asked: int) -> float:
        return float(reached * (6 / asked * (n - asked) / (n - 6)) ** 0.5)

    least = next(asked for asked in range(6, n + 1) if margin(asked) <= 0.05)
    expected = 9 + math.ceil((least - 6) * 9 / 6)
    most = run.plan.stopping.max_items or n
    assert figures["progress"]["expected_items"] == min(expected, most, version.n_active)
    assert 9 < expected < most

    few = opened(version, stopping={"se": None, "score_margin": 0.05, "max_items": 300})
    with_nine_answers(few, refused=5)
    told = few.summary(elapsed_s=1.0)
    assert told["score"] is None
    assert not_none(told["progress"]["expected_items"]) > 9


async def test_a_run_counts_what_answers_tell_until_it_is_precise(services: Services) -> None:
    version = await services.versions.load(bank="demo")
    run = opened(version, stopping={"se": 0.4, "min_items": 12, "max_items": 12})
    assert opened(version, stopping={"se": None, "max_items": 9}).precision_reached is None
    errors: list[float] = []
    stop = None
    while stop is None:
        asked, stop = run.choose(elapsed_s=0.0)
        for item in asked:
            score = float(len(errors) % 2)
            told = run.close(item.step, replace(PAID, score=score, attempts=len(errors) % 3))
            errors.append(told.se or math.inf)
            enough = len(errors) >= 5 and errors[-1] <= 0.4
            assert run.precision_reached is enough
    assert run.state.usage == Usage(usd=6.0, tokens=144, calls=12)
    since = 1 + max(nth for nth, se in enumerate(errors, 1) if se > 0.4)
    assert 5 < since < 12
    assert f"reached with answer {since}; min_items 12 kept" in run.ending(stop).stop_detail

    run.close(run.ask_item(run.test.bank.n_items - 1, 0.5).step, Closing(outcome="refused"))  # type: ignore[arg-type]  # any position
    assert run.state.usage == Usage(usd=6.0, tokens=144, calls=12)


async def test_events_tell_of_answers_figures_and_questions(services: Services) -> None:
    version = await services.versions.load(bank="demo")
    run = opened(version)
    ((first,), _) = run.choose(elapsed_s=0.0)
    said: Any = {"outcome": "scored", "score": 1.0, "extracted": "B"}
    said |= {"reason": "so", "latency_ms": 5.0}
    closed = {first.step: run.close(first.step, Closing(**said))}
    ((second,), _) = run.choose(elapsed_s=0.0)
    step = run.step_forward(closed=closed, asked=[second], elapsed_s=1.0)

    of_first, of_second = (
        {"step": one.step, "item_id": version.key_at(one.position), "pretest": False}
        for one in (first, second)
    )
    figures: Any = step.summary
    assert [figures["progress"][name] for name in ("items", "in_flight")] == [1, 1]
    assert "person_fit" not in figures  # only the end has it
    told = {name: figures[name] for name in ("estimate", "score", "progress", "usage")}
    assert step.events == [
        SessionEvent("response.received", {**of_first, **said}),
        SessionEvent("estimate.updated", told),
        SessionEvent("session.item_selected", {**of_second, "information": second.information}),
    ]


async def test_without_enough_scored_answers_no_result_is_shown(services: Services) -> None:
    easy = {"se": 2.0, "min_items": 9, "max_items": 9}  # reached by the first answer
    run = opened(await services.versions.load(bank="demo"), stopping=easy)
    figures: list[Any] = []
    for n_before in range(5):
        ((asked,), _) = run.choose(elapsed_s=0.0)
        run.close(asked.step, replace(PAID, score=1.0))
        figures.append(run.summary(elapsed_s=1.0, final=True))
        assert run.precision_reached is (n_before == 4)
    for told in figures[:4]:
        assert (told["score"], told["profile"]) == (None, None)
        estimate = {name: told["estimate"][name] for name in ("theta", "se", "interval")}
        assert set(estimate.values()) == {None}
        assert told["estimate"]["at_bound"] is False
        assert "Needs at least 5 scored answers" in told["estimate"]["reason"]
    whole = figures[4]
    assert None not in (whole["estimate"]["theta"], whole["score"])
    whole["repeats"] = {"n": 2, "estimate": {"theta": 0.4, "se": 0.3}}
    whole["profile"] = {"abilities": [{"name": "general", "value": 0.5}], "tasks": [{"tag": "law"}]}
    assert shown(whole, "Theta is not to be had.") == {
        **whole,
        "estimate": {
            **whole["estimate"],
            **dict.fromkeys(("theta", "se", "interval", "interval_raw")),
            "at_bound": False,
            "reason": "Theta is not to be had.",
        },
        "repeats": {"n": 2, "estimate": None},
        "profile": {"abilities": [], "tasks": [{"tag": "law"}]},
    }
    assert shown(whole, None) == whole


@pytest.mark.parametrize(
    ("method", "precision"), [("eap", 1 / 2**2 + 12 / 4), ("mle", 12 / 4), ("map", 1 / 4 + 3)]
)
async def test_an_se_is_reachable_if_all_items_reach_it_at_the_best_theta(
    services: Services, method: str, precision: float
) -> None:
    keys = [f"q{number}" for number in range(12)]  # each has an information of 1/4 at theta 0
    await make_bank(services, "alike", alike(*keys), map(question, keys))
    least = precision**-0.5
    estimator = {"method": method, "prior_sd": 2.0} if method != "mle" else {"method": method}

    async def asked_for(se: float) -> Any:
        plan = {"preset": "ability", "estimator": estimator, "stopping": {"se": se}}
        return await services.sessions.create(spec(bank="alike", plan=plan))

    with pytest.raises(InvalidInputError, match=rf"reach {least:.3f} at best \(at theta = 0\)"):
        await asked_for(least - 0.001)
    made = await asked_for(least + 0.001)
    assert made.provenance["reachable_se"] == pytest.approx(least)
    await asked_for(made.provenance["reachable_se"])  # itself reachable


SEVERAL = MultidimensionalModel(
    Loadings(
        np.full(8, 1.2), np.random.default_rng(1).normal(size=8), np.full((8, 1), 0.7), nested=True
    ),
    Population(mean=np.array([0.8, -0.5]), covariance=np.array([[1.0, 0.3], [0.3, 1.5]])),
)


async def test_each_ability_has_its_interval_and_the_main_one_a_corrected_one(
    services: Services,
) -> None:
    version = replace(
        await services.versions.load(bank="demo"),
        bank=ItemBank.from_abilities(SEVERAL, [str(number) for number in range(8)]),
        reference_abilities=(-9.0, 9.0),
    )
    twice = IntervalFactor(answers=(1,), factor=(2.0,), usual=(1.0,), power=0.0)
    correction = IntervalCorrection(theta=twice, n_examinees=99)
    test = Design.from_dict({"preset": "ability"}).build(version.bank, correction=correction)
    state = test.start()
    for item in map(ItemIndex, range(6)):
        state = test.tell(state.with_pending(item), Response(item, float(item % 2)))
    for ability, width in zip(
        not_none(profile_of(version, test, state))["abilities"], (2.0, 1.0), strict=True
    ):
        half = 1.959964 * width * ability["se"]
        ends = ability["value"] - half, ability["value"] + half
        expected = {"lo": ends[0], "hi": ends[1], "level": 0.95}
        assert ability["interval"] == pytest.approx(expected, rel=1e-3)
        above = (ability["value"] + 9) / 18 if width == 2.0 else None
        assert ability["above"] == (above and pytest.approx(above))
    one = replace(version, reference_abilities=(0.0,))
    main, _ = not_none(profile_of(one, test, state))["abilities"]
    assert main["above"] is None  # one model is no population


async def test_of_several_abilities_the_main_one_is_reachable(services: Services) -> None:
    items, population, n, step = SEVERAL.items, SEVERAL.population, 8, 1e-5
    bank = ItemBank.from_abilities(SEVERAL, [str(number) for number in range(n)])
    demo = await services.versions.load(bank="demo")
    version = replace(demo, bank=bank, active=np.ones(n, dtype=bool), reachable=LRUCache(8))

    least, theta = await reachable_se(Design.from_dict({"preset": "ability"}), version)

    errors = {}
    for value in np.arange(-4, 4.25, 0.25):
        at = np.array([value, population.mean[1]])
        chance = items.expected_score(at[None, :])[0]
        points = at + step * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
        up, down, right, left = items.expected_score(points)
        slopes = np.array([up - down, right - left]) / (2 * step)
        information = slopes @ (slopes / (chance * (1 - chance))).T
        precision = np.linalg.inv(population.covariance) + information
        errors[float(value)] = np.linalg.inv(precision)[0, 0] ** 0.5
    assert least == pytest.approx(min(errors.values()), rel=1e-5)
    assert errors[theta] == min(errors.values())


def tagged(version: LoadedVersion, n_tags: int) -> LoadedVersion:
    """Return a version of eight items, among whom the tags t0, t1, ... are dealt out in turn."""
    tags = tuple(tuple(f"t{n}" for n in range(item, n_tags, 8)) for item in range(8))
    bank = ItemBank.from_abilities(SEVERAL, [str(number) for number in range(8)])
    return replace(version, bank=bank, tags=tags)


async def test_at_most_fifty_tasks_are_told_and_the_whole_bank_beside_them(
    services: Services,
) -> None:
    version = tagged(await services.versions.load(bank="demo"), 60)
    test = Design.from_dict({"preset": "ability"}).build(version.bank)
    tasks = (WHOLE_BANK, *(f"t{n}" for n in range(60)))
    test = replace(test, tasks=dict.fromkeys(tasks, test.predictor))
    fifty = [f"t{n}" for n in range(50)]
    for target, told in ((None, fifty), ({"t55": 1.0}, [WHOLE_BANK, *fifty])):
        profile = not_none(profile_of(version, test, test.start(), target))
        assert [task["tag"] for task in profile["tasks"]] == told


LEARNED = IntervalCorrection(theta=level_factor(3.0), n_examinees=40)


def result(extrapolation: Any) -> Result:
    """Return a result with a skewed posterior, whose lower tail is longer."""
    given: Any = {"theta": -2.0, "se": 0.5, "interval": (-6.5, 0.5), "score": None, "n_scored": 15}
    return Result(**given, extrapolation=extrapolation)


def at(standing: str, sd: float) -> dict[str, Any]:
    """Return an extrapolation whose score is known with this error."""
    return {"standing": standing, "sd": sd, "position": -2.0}


def of_tasks(of_score: str, **own: str) -> Any:
    """Return stored figures with a fifth of the answers unscored; only `law` is scored whole."""
    told = {"value": 0.5, "interval": interval(0.4, 0.6)}
    tasks = [
        {"tag": tag, "n_items": 10, "n_asked": n_asked, **told, **own}
        for tag, n_asked in (("law", 10), ("art", 3))
    ]
    score = {**told, "method": of_score, "target": {"law": 1.0, "history": 2.0}, "nonresponse": 0.2}
    return {"score": score, "profile": {"abilities": [], "tasks": tasks}}


def test_a_task_that_was_scored_whole_has_no_room_for_unscored_answers() -> None:
    law, art = (not_none(score_in(of_tasks("combined"), tag)) for tag in ("law", "art"))
    assert (law["method"], law["nonresponse"]) == ("all_items", 0.0)
    assert (art["method"], art["nonresponse"]) == ("combined", 0.2)
    assert (law["target"], art["target"]) == ({"law": 1.0}, {"art": 1.0})
    whole = not_none(score_in(of_tasks("combined", tag=WHOLE_BANK)))
    assert (whole["target"], whole["interval"]) == (None, interval(0.4, 0.6))


def test_a_task_is_not_known_because_what_the_test_was_about_is() -> None:
    older = not_none(score_in(of_tasks("all_items"), "art"))
    assert older["method"] == "score-model"
    newer = not_none(score_in(of_tasks("all_items", method="combined"), "art"))
    assert newer["method"] == "combined"


def test_decisions_use_no_narrower_interval_than_reported() -> None:
    # A score may be known where the ability is open, and the other way round.
    open_, placed = result(at("unknown", 0.3)), result(at("within", 1.7))

    lo, hi = open_.to_decide(LEARNED)
    compared = open_.ability(LEARNED).stated().interval
    assert compared[0] > -6.5  # alone it would exclude values that the session holds possible
    assert lo == -6.5
    assert hi == compared[1] > 0.5
    for said, correction, ends in (
        (placed, LEARNED, (-2.1, -1.9)),
        (open_, None, (-2.1, -1.9)),
        (open_, LEARNED, (None, -1.9)),
        (open_, LEARNED, (-2.1, None)),
    ):
        assert replace(said, interval=ends).to_decide(correction) == ends
