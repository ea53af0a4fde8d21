"""Versions with parameters joined to wrong questions, detected from answers."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from app.acting import Acting, acting_for
from app.records.banks import BankVersion
from app.records.gates import GateSpec
from app.records.sessions import Examinee, SessionRecord
from app.reports.figures import Trust
from app.reports.headline import headline_of
from app.reports.joins import HEADINGS, join_sentence
from app.reports.session.page import render as session_page
from app.reports.version.page import render, summary
from app.services.banks import joins
from app.services.banks.joins import JoinChecks, JoinLook
from app.services.container import Services
from tests.databases import executed
from tests.services.banks import make_bank, spread
from tests.services.calibrations import imported
from tests.services.sessions import answered, by_hand, length
from tests.values import not_none

KEYS = tuple(f"q{n}" for n in range(80))
B = np.linspace(-2.5, 2.5, len(KEYS))
BROKEN = HEADINGS["broken"]
_DEALT = np.random.default_rng(5).permutation(len(KEYS))


async def banks_of(services: Services) -> None:
    """Create a bank joined correctly, and one with shuffled parameters."""
    right = spread(*KEYS, lowest=-2.5, a=1.8)
    await make_bank(services, "right", right)
    await make_bank(services, "wrong", replace(right, intercept=right.intercept[_DEALT]))


def answers(theta: float, seed: int) -> list[float]:
    rng = np.random.default_rng(seed)
    right = rng.random(len(KEYS)) < 1 / (1 + np.exp(-1.8 * (theta - B)))
    return [float(score) for score in right]


async def test_answers_of_a_response_set_tell_a_wrong_join(services: Services) -> None:
    rows = ["model," + ",".join(KEYS)]
    for n, theta in enumerate((-1.0, 0.0, 0.5, 1.0)):
        rows.append(f"m{n}," + ",".join(f"{score:g}" for score in answers(theta, n)))
    await banks_of(services)
    await imported(services, "\n".join(rows), "new")
    right = (await services.joins.look("right", response_set="new")).check
    wrong = (await services.joins.look("wrong", response_set="new")).check
    assert right.verdict == "holds"
    assert wrong.verdict == "broken"
    assert (right.rank_correlation or 0) < -0.5


async def test_one_session_suffices_where_its_answers_show_it(services: Services) -> None:
    await banks_of(services)
    scores = dict(zip(KEYS, answers(0.3, 9), strict=True))
    for bank in ("right", "wrong"):
        nobody = (await services.joins.look(bank)).check
        assert (nobody.verdict, nobody.n_answers) == ("undecided", 0)
        session = await by_hand(services, length(80), bank=bank)
        await answered(services, session, lambda at: {"score": scores[at.item.key]})
        told = (await services.joins.look(bank)).check
        session_report = await services.session_reports.report(session.id, reveal=True)
        assert session_report.join == told
        assert join_sentence(told) in session_page(session_report)
        warned = [caution.code for caution in session_report.warnings]
        version_report = await services.version_reports.report(bank)
        assert version_report.join == told
        page = render(version_report)
        if bank == "right":
            assert told.verdict == "holds"
            assert "join_broken" not in warned
            assert "The questions have their own parameters." in page
        else:
            assert HEADINGS[told.verdict] in summary(version_report)
            assert told.verdict in ("broken", "doubtful")
            assert warned[0] == f"join_{told.verdict}"


async def session_on(
    services: Services, bank: str, scores: list[float], name: str = "m", *, model: str | None = None
) -> SessionRecord:
    """Return a session that asked every question of a bank but one."""
    given, examinee = dict(zip(KEYS, scores, strict=True)), Examinee(name=name, model=model)
    session = await by_hand(services, length(79), bank=bank, examinee=examinee)
    return await answered(services, session, lambda at: {"score": given[at.item.key]})


async def test_a_broken_join_makes_the_trust_in_all_results_on_it_poor(services: Services) -> None:
    await banks_of(services)
    said: dict[str, set[str]] = {}
    for bank in ("right", "wrong"):
        sessions = [
            await session_on(services, bank, answers(0.3, seed), f"m{seed}") for seed in (9, 10, 11)
        ]
        cautious = GateSpec(metric="score", threshold=0.1)
        gate = await services.gates.create(cautious, sessions[0].id)
        board = (await services.leaderboards.of_bank(bank)).board
        one, other, _ = [session.id for session in sessions]
        compared = await services.comparisons.sessions(one, other, confidence=0.95)
        said[bank] = {gate.detail, board.caution or "", compared.caution or ""}
        for session in (sessions[2], await services.sessions.get(one)):
            headline = not_none(headline_of(session))
            report = await services.session_reports.report(session.id, reveal=True)
            assert report.headline == headline
            is_poor = headline.trust == Trust(level="poor", reason=BROKEN)
            assert is_poor == (bank == "wrong")
            if bank == "right":
                assert headline_of(replace(session, join=None)) == headline
                unsure = not_none(headline_of(replace(session, join="doubtful")))
                assert unsure.trust == Trust(level="fair", reason=HEADINGS["doubtful"])
            else:
                failed = not_none(headline_of(replace(session, status="failed")))
                assert failed.trust.reason.startswith("The test failed")
    assert all(BROKEN in words for words in said["wrong"])
    assert not any(BROKEN in words for words in said["right"])


async def test_one_odd_model_does_not_convict_a_bank(services: Services) -> None:
    await banks_of(services)
    odd = [float(score) for score in np.random.default_rng(3).integers(0, 2, len(KEYS))]
    sessions = [
        await session_on(services, "right", odd, name, model="odd")
        for name in ("chat", "completions", "again")
    ]
    assert sessions[-1].join == "doubtful"
    look = await services.joins.look("right")
    assert (look.n_sessions, look.check.n_examinees) == (3, 1)
    assert "or an examinee answers unlike those of the calibration" in join_sentence(look.check)


async def test_a_verdict_of_many_sessions_is_not_renewed_at_each_end(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    await banks_of(services)
    right, wrong = [await services.versions.get(name) for name in ("right", "wrong")]
    check, looks = (await services.joins.of_sessions(right)).check, list[str]()

    async def look(_service: JoinChecks, version: BankVersion, _: object) -> JoinLook:
        looks.append(version.id)
        return JoinLook(version=version, check=check, n_sessions=60)

    monkeypatch.setattr(JoinChecks, "of_sessions", look)
    for version, share in ((right, np.inf), (wrong, 1e-9)):
        monkeypatch.setattr(joins, "_SHARE", share)
        for _ in range(3):
            await services.joins.renew(version.id)
    assert looks == [right.id] * 3 + [wrong.id]


async def test_sessions_that_end_during_a_look_share_the_next(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    await banks_of(services)
    version = await services.versions.get("right")
    check, looks = (await services.joins.of_sessions(version)).check, list[list[str]]()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def look(_service: JoinChecks, _version: BankVersion, ending: list[str]) -> JoinLook:
        looks.append(ending)
        begun.set()
        await go_on.wait()
        return JoinLook(version=version, check=check, n_sessions=len(ending))

    monkeypatch.setattr(JoinChecks, "of_sessions", look)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(services.joins.renew(version.id, ["a"]))
        await begun.wait()
        for name in "bcd":
            tasks.create_task(services.joins.renew(version.id, [name]))
        await asyncio.sleep(0)
        go_on.set()
    assert looks == [["a"], ["b", "c", "d"]]


async def test_unparseable_answers_tell_nothing_of_a_join(services: Services) -> None:
    await banks_of(services)
    # Had they counted as wrong answers, the hard questions would have been answered best.
    session = await by_hand(services, length(20), bank="right", unparsed_policy="wrong")
    await answered(
        services, session, lambda at: {"score": 1.0} if at.step == 3 else {"outcome": "unparsed"}
    )
    check = (await services.joins.look("right")).check
    assert (check.n_examinees, check.n_answers) == (0, 0)


async def test_cached_answers_tell_nothing_new_of_a_join(services: Services) -> None:
    await banks_of(services)
    await answered(services, await by_hand(services, length(10), bank="right"))
    cached = """UPDATE administrations SET method = '{"cached": {}}' WHERE step <= 4"""
    await executed(services.database, cached)
    assert (await services.joins.look("right")).check.n_answers == 6


async def test_answers_on_a_lent_bank_bear_on_their_project_alone(services: Services) -> None:
    await banks_of(services)
    await services.banks.update_bank("wrong", 1, {"shared": True})
    theirs = await services.projects.create("theirs")
    ours = await session_on(services, "wrong", [float(b < 0.3) for b in B[_DEALT]])
    with acting_for(Acting(theirs.id)):
        assert (await session_on(services, "wrong", answers(0.3, 9))).join == "doubtful"
    assert (await services.sessions.get(ours.id)).join == "holds"


async def test_a_session_and_what_extends_it_are_one_examinee(services: Services) -> None:
    await banks_of(services)
    session = await answered(services, await by_hand(services, length(10), bank="right"))
    longer = await services.derived_sessions.extend(session.id, length(12), {})
    await answered(services, longer)
    check = (await services.joins.look("right")).check
    assert (check.n_examinees, check.n_answers) == (1, 12)
