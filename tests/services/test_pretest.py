"""Items without parameters in sessions: asked and stored, but part of no figure."""

import asyncio
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from app.api.schemas.sessions import SessionRead
from app.demo.bank import demo_bank
from app.engine.bank import ItemBank
from app.engine.design.parts import StoppingDesign
from app.errors import InvalidInputError, NotFoundError
from app.exchange.item_record import parse_item
from app.items import Outcome
from app.pages.rendering import fragment
from app.records.banks import BankSpec
from app.records.fields import interval
from app.records.gates import GateSpec
from app.records.sessions import Closing, Examinee, Provenance, SessionRecord
from app.services.banks.imports import BankImport
from app.services.container import Services
from app.services.results.leaderboards import _board
from app.services.results.measured import scores_left_out
from app.services.results.simulations import SimulationSpec
from app.services.sessions.manual import NextItem
from app.services.sessions.plan import PretestItems, PretestPlan, SessionPlan
from app.services.sessions.report import SessionFormat
from app.services.sessions.result import cautions_of
from app.services.visibility import View
from app.storage.paging import PageRequest
from tests.services import sessions
from tests.services.banks import alike, make_bank, question
from tests.services.living import BANK, living_bank
from tests.services.sessions import by_hand, figures_of, length, played, replayed, run_of, tell
from tests.values import not_none

PLAN = length(12)


@pytest.fixture(autouse=True)
async def _living(services: Services) -> None:
    await living_bank(services)


async def begun(
    services: Services, n_pretest: int | None, *, seed: int = 3, bank: str = BANK, **plan: Any
) -> SessionRecord:
    given = {**PLAN, **plan}
    if n_pretest is not None:
        given["pretest"] = {"items_per_session": n_pretest}
    return await by_hand(services, given, bank=bank, seed=seed)


async def answered(
    services: Services, record: SessionRecord, *, pretest_outcome: str | None = None
) -> SessionRecord:
    """Answer a session to its end, a third of the answers wrong by the letters of the keys."""

    def answer(awaited: NextItem) -> dict[str, Any]:
        if pretest_outcome and awaited.version.is_pretest(awaited.item.position):
            return {"outcome": Outcome(pretest_outcome)}
        return {"score": float(sum(awaited.item.key.encode()) % 3 > 0)}

    return await sessions.answered(services, record, answer)


async def test_gates_pages_and_files_say_what_a_score_excludes(services: Services) -> None:
    session = await answered(services, await begun(services, 0))
    version = await services.versions.load(session.bank_version_id)
    assert session.provenance["n_uncalibrated"] == len(version.pretest) > 0
    counted = f"the bank's {version.bank.n_items:,} calibrated questions"
    left_out = f"excludes {len(version.pretest)} uncalibrated questions"

    for metric in ("score", "theta"):
        about = GateSpec(metric=metric, threshold=0.5)
        said = (await services.gates.create(about, session.id)).detail
        assert (left_out in said) == (metric == "score")

    shown = {"session": SessionRead.of(session, View(is_whole=True)), "strip": None}
    live = fragment("parts/figures.html", shown)
    as_file = await services.session_reports.export(session.id, SessionFormat.EEE, reveal=True)
    told = as_file.decode()
    assert counted in unescape(live)
    assert counted in told
    assert left_out in live
    assert told.count(left_out) == 1  # of the score, not of the ability
    assert "whole" not in live + told

    assert left_out in str(scores_left_out([session], {}))
    smaller: Provenance = {**session.provenance, "n_items": 7}
    other = replace(session, provenance=smaller)
    assert "were 7 to" in str(scores_left_out([session, other], {}))
    older: Any = {**session.provenance}
    del older["n_uncalibrated"]
    complete = replace(session, provenance=older)
    assert left_out in str(cautions_of(session, is_score=True))
    assert "excludes" not in str(cautions_of(complete, is_score=True))
    assert scores_left_out([complete, complete], {}) is None
    fewer: Provenance = {**complete.provenance, "n_items": 7}
    assert "were 7 to" in str(scores_left_out([complete, replace(complete, provenance=fewer)], {}))


async def test_a_leaderboard_decides_nothing_between_scores_of_different_questions(
    services: Services,
) -> None:
    session = await answered(services, await begun(services, 0))

    def scored(value: float, n_items: int) -> SessionRecord:
        about = {"value": value, "interval": interval(value - 0.01, value + 0.01)}
        summary: Any = {**session.summary, "score": {**not_none(session.summary["score"]), **about}}
        provenance: Provenance = {**session.provenance, "n_items": n_items}
        return replace(session, summary=summary, provenance=provenance)

    def ranges(*sessions: SessionRecord) -> list[tuple[int, int]]:
        entries = _board("scale", sessions, {}, {}, "score", 0.95).entries
        return [(entry.rank_lo, entry.rank_hi) for entry in entries]

    assert ranges(scored(0.9, 24), scored(0.5, 24)) == [(1, 1), (2, 2)]
    assert ranges(scored(0.9, 24), scored(0.5, 36)) == [(1, 2), (1, 2)]
    apart = ranges(scored(0.9, 24), scored(0.5, 36), scored(0.1, 24))
    assert apart == [(1, 2), (1, 3), (2, 3)]


async def test_a_leaderboard_notices_questions_that_were_exchanged(services: Services) -> None:
    async def ended(name: str, score: float) -> None:
        examinee = Examinee(name=name)
        session = await by_hand(services, length(15), bank="swapped", examinee=examinee)
        await sessions.answered(services, session, lambda _: {"score": score})

    keys = [f"q{n}" for n in range(20)]
    await make_bank(services, "swapped", alike(*keys), map(question, keys), scale="old")
    await ended("worst", 0.0)
    await ended("best", 1.0)
    keys[-1] = "other"
    await make_bank(services, "swapped", alike(*keys), map(question, keys), scale="old")
    await ended("later", 1.0)
    board = (await services.leaderboards.of_bank("swapped")).board
    ranks = {one.session.endpoint_name: (one.rank_lo, one.rank_hi) for one in board.entries}
    assert ranks == {"later": (1, 3), "best": (1, 2), "worst": (2, 3)}
    assert "which were not always the same 20: scores of different" in (board.caution or "")


async def test_the_test_is_the_same_with_and_without_items_in_pretest(services: Services) -> None:
    plain = await answered(services, await begun(services, 0))
    seeded = await answered(services, await begun(services, 4))

    rows = await services.sessions.responses(seeded.id)
    of_test = [row.item_key for row in rows if not row.is_pretest]
    steps = [row.step for row in rows if row.is_pretest]
    assert of_test == [row.item_key for row in await services.sessions.responses(plain.id)]
    for name in ("estimate", "score", "outcomes", "progress", "person_fit"):
        assert figures_of(seeded)[name] == figures_of(plain)[name]
    assert figures_of(plain)["pretest"]["items"] == 0
    assert figures_of(seeded)["pretest"]["planned"] == figures_of(seeded)["pretest"]["items"] == 4
    assert figures_of(seeded)["pretest"]["outcomes"]["scored"] == 4
    assert len(steps) == 4
    assert len(rows) == 16
    assert steps != [13, 14, 15, 16]  # among the other items, not after them
    assert [row.step for row in rows] == list(range(1, 17))
    assert all(row.information is None for row in rows if row.is_pretest)
    lines = await services.session_reports.export(seeded.id, SessionFormat.EEE_ITEMS, reveal=True)
    assert len(lines.splitlines()) == len(of_test)


async def test_failed_answers_in_pretest_are_no_failures_of_the_test(services: Services) -> None:
    failures = {"max_consecutive": 1, "max_share": 0.01}
    created = await begun(services, 5, failures=failures)

    ended = await answered(services, created, pretest_outcome="error")

    assert ended.status == "completed"
    assert ended.stop_reason == "max_items"
    assert figures_of(ended)["outcomes"]["error"] == 0
    assert figures_of(ended)["pretest"]["outcomes"]["error"] == 5


async def test_the_cost_of_pretest_items_counts_towards_the_budget(services: Services) -> None:
    version = await services.versions.load(bank=BANK)
    first = version.pretest[0].position
    plan = SessionPlan.from_dict(
        {
            "budget": {"tokens": 100},
            "pretest": {"items_per_session": 1, "positions": [first]},
            "concurrency": 1,
        }
    )
    run = run_of(version, plan)
    costly = Closing(outcome="scored", score=1.0, tokens_in=100, tokens_out=0, attempts=1)
    was_pretest = []
    stop = None
    while stop is None:
        asked, stop = run.choose(elapsed_s=0.0)
        for item in asked:
            was_pretest.append(version.is_pretest(item.position))
            closing = costly if was_pretest[-1] else replace(costly, tokens_in=0)
            run.close(item.step, closing)

    assert stop.reason == "budget_exhausted"
    assert was_pretest[-1]
    assert run.summary(elapsed_s=0.0)["usage"]["tokens_in"] == 100


async def test_a_run_with_items_in_pretest_is_rebuilt_bit_for_bit(services: Services) -> None:
    version = await services.versions.load(bank=BANK)
    positions = [item.position for item in version.pretest[:8]]
    plan = SessionPlan.from_dict(
        {
            "stopping": {"se": None, "max_items": 60},
            "concurrency": 4,
            "pretest": {"items_per_session": 8, "positions": positions},
        }
    )
    scores = [None if turn % 5 == 3 else float(turn % 3 == 0) for turn in range(40)]
    closings = [
        Closing(outcome="error" if score is None else "scored", score=score, attempts=1, usd=0.1)
        for score in scores
    ]
    run, _ = played(
        version, plan, closings, lambda steps, turn: steps[turn % 4], seed=5, final=True
    )
    assert not_none(run.summary(elapsed_s=1.0)["pretest"])["items"] == 8


async def test_items_in_pretest_are_asked_equally_often(services: Services) -> None:
    await asyncio.gather(*(begun(services, 7, seed=seed) for seed in range(12)))

    page = await services.versions.items(BANK, "latest", PageRequest(limit=100), status="pretest")
    counts = [item.pretest_sessions for item in page.items]
    assert sum(counts) == 84
    assert max(counts) - min(counts) <= 1


async def test_the_bank_sets_the_number_unless_the_session_does(services: Services) -> None:
    bank = (await services.banks.get_bank(BANK)).bank
    await services.banks.update_bank(bank.id, bank.revision, {"pretest_items": 2})

    by_bank = await begun(services, None)
    by_session = await begun(services, 0)

    assert figures_of(by_bank)["pretest"]["planned"] == 2
    assert figures_of(by_bank)["pretest"]["caution"] is None
    assert figures_of(by_session)["pretest"]["planned"] == 0
    with pytest.raises(InvalidInputError, match="items_per_session: expected a number >= 0, got"):
        await begun(services, -1)
    changed = (await services.banks.get_bank(BANK)).bank
    with pytest.raises(InvalidInputError, match="expected 0 to 1000, got 1001"):
        await services.banks.update_bank(bank.id, changed.revision, {"pretest_items": 1001})


async def test_a_forecast_says_that_trial_questions_come_on_top(services: Services) -> None:
    plan: Any = {"stopping": {"score_margin": None, "max_items": 12}}
    spec = SimulationSpec(bank=BANK, plan=plan, n_examinees=1)
    assert (await services.simulations.simulate(spec)).caution is None
    bank = (await services.banks.get_bank(BANK)).bank
    await services.banks.update_bank(bank.id, bank.revision, {"pretest_items": 1000})
    n_trials = len(range(0, len(demo_bank().items), 5))
    told = (await services.simulations.simulate(spec)).caution
    assert told == f"Trial questions ({n_trials} a session) come on top, with their cost and time."


async def test_no_more_are_asked_than_there_are_and_none_with_faults(services: Services) -> None:
    good = {"key": "good", "prompt": "1 + 1 =", "target": "2"}
    rows = [
        {"key": "known", "prompt": "2 + 2 =", "target": "4"},
        good,
        {**good, "key": "twin"},
        {"key": "no-key", "prompt": "3 + 3 ="},
    ]
    parameters = ItemBank.from_difficulties(a=[1.0], b=[0.0], item_ids=["known"])
    request = BankImport(items=[parse_item(row) for row in rows], parameters=parameters)
    await services.banks.import_bank(BankSpec(name="faulty"), request)

    record = await begun(services, 9, bank="faulty")

    version = await services.versions.load(record.bank_version_id)
    positions = record.design["pretest"]["positions"]
    assert [version.key_at(position) for position in positions] == ["good"]
    assert figures_of(record)["pretest"]["planned"] == 1
    assert figures_of(record)["pretest"]["caution"].startswith("The bank version has only 1 item ")


async def test_answers_in_pretest_count_in_a_later_version(services: Services) -> None:
    ended = await answered(services, await begun(services, 4))
    whole = await services.banks.create_version(
        BANK, BankImport(parameters=demo_bank().item_bank(), scale="old")
    )

    same = await replayed(services, ended.id)
    later = await replayed(services, ended.id, version=whole.id)

    assert figures_of(same)["estimate"] == figures_of(ended)["estimate"]
    assert figures_of(same)["pretest"]["outcomes"]["scored"] == 4
    assert figures_of(later)["outcomes"]["scored"] == 16
    assert figures_of(later)["pretest"]["items"] == 0


async def test_an_extended_session_asks_the_planned_pretest_items(services: Services) -> None:
    parent = await begun(services, 6)
    await tell(services, parent.id, score=1.0)
    await services.sessions.cancel(parent.id)

    await begun(services, 6)  # others are asked least now
    extended = await services.derived_sessions.extend(parent.id, {}, {})
    assert extended.design["pretest"] == parent.design["pretest"]
    ended = await answered(services, extended)

    rows = await services.sessions.responses(ended.id)
    assert sum(row.is_pretest for row in rows) == 6
    assert len({row.item_key for row in rows}) == len(rows) == 18


def test_the_seed_places_pretest_items_within_the_window() -> None:
    assert all(len(moments(5, 20, None, seed)) == 5 for seed in range(50))
    assert moments(5, 20, None, 1) == moments(5, 20, None, 1)
    assert len({tuple(moments(5, 20, None, seed)) for seed in range(50)}) > 40


@pytest.mark.parametrize(
    ("min_items", "max_items", "window"), [(20, 50, 20), (1, None, 6), (None, 4, 4)]
)
def test_the_window_is_the_least_length_of_the_test(
    min_items: int | None, max_items: int | None, window: int
) -> None:
    found = {at for seed in range(100) for at in moments(3, min_items, max_items, seed)}
    assert found == set(range(window))
    none = PretestItems(PretestPlan(), StoppingDesign(min_items=min_items), seed=1)
    assert none.figures()["caution"] is None


def moments(n: int, min_items: int | None, max_items: int | None, seed: int) -> list[int]:
    """Return after how many other items each of `n` pretest items is asked."""
    plan = PretestPlan(items_per_session=n, positions=tuple(range(40, 40 + n)))
    stopping = StoppingDesign(min_items=min_items, max_items=max_items)
    items, found = PretestItems(plan, stopping, seed=seed), []
    for n_asked in range(100):
        while (position := items.due(n_asked)) is not None:
            items.ask(position)
            found.append(n_asked)
    return found


async def test_new_items_join_in_pretest_beside_the_old(services: Services) -> None:
    old = await services.versions.get(BANK)
    new = [parse_item({"key": f"new-{i}", "prompt": f"{i}?", "target": "x"}) for i in range(3)]
    report = await services.banks.import_into(BANK, BankImport(items=new, from_version="latest"))

    version = not_none(report.version)
    assert (version.number, version.scale) == (old.number + 1, old.scale)
    assert version.parameters_hash == old.parameters_hash
    assert version.n_items == old.n_items + 3
    loaded = await services.versions.load(version.id)
    before = await services.versions.load(old.id)
    added = {item.key for item in loaded.pretest} - {item.key for item in before.pretest}
    assert added == {item.key for item in new}
    with pytest.raises(InvalidInputError, match="not both"):
        await services.banks.create_version(BANK, BankImport(from_version="1", scale="other"))
    with pytest.raises(NotFoundError, match="version"):
        await services.banks.create_version(BANK, BankImport(from_version="9"))
