"""Versions with parameters joined to wrong questions, detected from answers."""

from pathlib import PurePosixPath

import numpy as np

from app.engine.bank import ItemBank
from app.exchange.results.recorded import SourceFile
from app.records.banks import BankSpec
from app.records.sessions import Plan
from app.reports.joins import join_sentence
from app.reports.session.page import render as session_page
from app.reports.version.page import render
from app.services.banks.imports import BankImport
from app.services.container import Services
from app.services.responses.imports import AnswerImport
from tests.services.sessions import answered, spec

KEYS = tuple(f"q{n}" for n in range(80))
B = np.linspace(-2.5, 2.5, len(KEYS))
_DEALT = np.random.default_rng(5).permutation(len(KEYS))


async def banks_of(services: Services) -> None:
    """Create a bank joined correctly, and one with shuffled parameters."""
    for name, b in (("right", B), ("wrong", B[_DEALT])):
        parameters = ItemBank.from_difficulties(a=np.full(len(KEYS), 1.8), b=b, item_ids=KEYS)
        await services.banks.import_bank(BankSpec(name=name), BankImport(parameters=parameters))


def answers(theta: float, seed: int) -> list[float]:
    rng = np.random.default_rng(seed)
    right = rng.random(len(KEYS)) < 1 / (1 + np.exp(-1.8 * (theta - B)))
    return [float(score) for score in right]


async def test_answers_of_a_response_set_tell_a_wrong_join(services: Services) -> None:
    rows = ["model," + ",".join(KEYS)]
    for n, theta in enumerate((-1.0, 0.0, 0.5, 1.0)):
        rows.append(f"m{n}," + ",".join(f"{score:g}" for score in answers(theta, n)))
    file = SourceFile(PurePosixPath("new.csv"), "", "\n".join(rows).encode())
    await banks_of(services)
    await services.response_sets.import_set("new", AnswerImport(files=[file]))
    right = (await services.joins.look("right", response_set="new")).check
    wrong = (await services.joins.look("wrong", response_set="new")).check
    assert right.verdict == "holds"
    assert wrong.verdict == "broken"
    assert (right.rank_correlation or 0) < -0.5


async def test_one_session_suffices_where_its_answers_show_it(services: Services) -> None:
    plan = {"stopping": {"se": None, "min_items": 80, "max_items": 80}}
    await banks_of(services)
    scores = dict(zip(KEYS, answers(0.3, 9), strict=True))
    for bank in ("right", "wrong"):
        nobody = (await services.joins.look(bank)).check
        assert (nobody.verdict, nobody.n_answers) == ("undecided", 0)
        session = await services.sessions.create(
            spec(mode="manual", bank=bank, endpoint=None, plan=plan)
        )
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
            assert told.verdict in ("broken", "doubtful")
            assert warned[0] == f"join_{told.verdict}"


async def test_a_session_and_what_extends_it_are_one_examinee(services: Services) -> None:
    await banks_of(services)
    plan = {"stopping": {"se": None, "min_items": 10, "max_items": 10}}
    session = await services.sessions.create(
        spec(mode="manual", bank="right", endpoint=None, plan=plan)
    )
    await answered(services, session, lambda at: {"score": float(at.step % 2)})
    more: Plan = {"stopping": {"se": None, "min_items": 12, "max_items": 12}}
    longer = await services.derived_sessions.extend(session.id, more, {})
    await answered(services, longer, lambda at: {"score": float(at.step % 2)})
    check = (await services.joins.look("right")).check
    assert (check.n_examinees, check.n_answers) == (1, 12)
