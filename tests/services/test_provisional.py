"""New questions without answers: asked at once, then calibrated from sessions."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.calibration.pipeline.plan import CalibrationPlan
from app.errors import InvalidInputError
from app.exchange.item_record import parse_item
from app.records.banks import PROVISIONAL, BankSpec, BankVersion, Provisional
from app.records.sessions import SessionRecord
from app.reports.version.page import summary
from app.services.banks.imports import BankImport
from app.services.banks.provisional import level_in
from app.services.calibrations.publication import Publication
from app.services.container import Services
from app.services.responses.collection import Collection
from app.services.sessions.manual import NextItem
from tests.services.calibrations import calibrated
from tests.services.sessions import answered, by_hand, length
from tests.values import not_none

pytestmark = pytest.mark.usefixtures("fits_here")

BANK = "own"
N = 12
PLAN = length(10)
N_EXAMINEES = 8


def items(n: int = N, **fields: object) -> list[dict[str, object]]:
    return [
        {
            "key": f"q{i}",
            "prompt": f"What is {i} + {i}?",
            "target": str(2 * i),
            "choices": [str(2 * i), str(2 * i + 1), "7 and a half", "no idea"] if i % 2 else None,
            **fields,
        }
        for i in range(n)
    ]


async def made(services: Services, **how: Any) -> BankVersion:
    given = {"items": [parse_item(item) for item in items()], "provisional": True, **how}
    report = await services.banks.import_bank(BankSpec(name=BANK), BankImport(**given))
    return not_none(report.version)


async def taken(services: Services, seed: int) -> SessionRecord:
    """Run a manual session where items with lower numbers are more often right."""
    record = await by_hand(services, PLAN, bank=BANK, seed=seed)
    rng = np.random.default_rng(seed)
    theta = rng.normal()

    def answer(awaited: NextItem) -> dict[str, float]:
        place = int(awaited.item.key[1:])
        return {"score": float(rng.random() < 1 / (1 + np.exp(-2 * (theta - place / 3 + 2))))}

    return await answered(services, record, answer)


async def test_questions_alone_make_a_bank_that_is_calibrated_by_its_sessions(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.records.banks.FIRST_EXAMINEES", N_EXAMINEES)
    version = await made(services)
    assert version.provisional
    sessions = [await taken(services, seed) for seed in range(N_EXAMINEES)]

    offer = await services.recalibration_advice.look(BANK)
    await services.response_sets.create("live")
    report = await services.collector.collect("live", Collection(bank=BANK))
    record = await calibrated(services, CalibrationPlan(prior_version_id=version.id), "live")
    later = await services.calibrations.publish(record.id, Publication(bank=BANK))

    # Guesses cannot distinguish items well enough to select by them: all are sampled.
    asked = await services.sessions.responses(sessions[0].id)
    assert len(asked) == 10
    assert all(one.probability is not None and one.probability < 1.0 for one in asked)
    assert "guesses" in sessions[0].provenance["uncertainty"]
    assert (offer.n_examinees, offer.due) == (N_EXAMINEES, True)
    assert "recalibrate own" in offer.explanation
    assert report.accepted == 10 * N_EXAMINEES
    known, before = (not_none(Provisional.of(one.knowledge)) for one in (later, version))
    assert (known.n_examinees, known.n_answers) == (N_EXAMINEES, 10 * N_EXAMINEES)
    assert known.widening < before.widening
    assert later.provisional
    loaded = await services.versions.load(later.id)
    b = dict(zip(loaded.keys, loaded.bank.b, strict=True))
    assert np.corrcoef([b[f"q{i}"] for i in range(N)], range(N))[0, 1] > 0.7
    again = await services.recalibration_advice.look(BANK)
    assert (again.n_examinees, again.due) == (N_EXAMINEES, False)
    assert again.wanted == 12
    after = await by_hand(services, PLAN, bank=BANK)
    assert "answers of 8 examinees" in after.provenance["uncertainty"]
    said = summary(await services.version_reports.report(BANK))
    assert "answers of 8 examinees" in said[1]
    # The prior belief remains the start of the next calibration.
    assert later.knowledge[PROVISIONAL]["beliefs"] == version.knowledge[PROVISIONAL]["beliefs"]
    assert (await services.joins.of_sessions(version)).check.verdict == "undecided"


async def test_difficulty_comes_from_where_the_import_says(services: Services) -> None:
    loaded = await services.versions.load((await made(services, difficulty="position")).id)
    assert (np.diff(loaded.bank.b) > 0).all()
    assert loaded.bank.c[:2] == pytest.approx([0.0, 0.25], abs=0.02)

    with pytest.raises(InvalidInputError, match="no item has one tag that tells a level"):
        await made(services, difficulty="tags")
    with pytest.raises(InvalidInputError, match="provisional import"):
        await made(services, provisional=False, difficulty="position")


async def test_earlier_guesses_are_kept_beside_later_ones(services: Services) -> None:
    first = [parse_item(item) for item in items(6)]
    guessed = [replace(record, difficulty=float(n)) for n, record in enumerate(first)]
    await made(services, items=guessed)
    rest = [parse_item(item) for item in items()[6:]]
    later = [replace(record, difficulty=2.5 if n else None) for n, record in enumerate(rest)]
    known = (await made(services, items=later)).knowledge[PROVISIONAL]
    assert (known["difficulty"], known["n_guessed"]) == ("given", 11)
    b = dict(zip(known["beliefs"]["keys"], known["beliefs"]["b"], strict=True))
    assert b["q0"] < b["q2"] < b["q7"] == b["q11"] < b["q3"] < b["q5"]
    assert b["q6"] == 0.0

    anew = await made(services, items=[], difficulty="none")
    assert set(anew.knowledge[PROVISIONAL]["beliefs"]["b"]) == {0.0}


async def test_only_versions_of_guesses_are_revised(services: Services) -> None:
    demo = await services.versions.get("demo")
    await made(services)
    await taken(services, 1)
    await services.response_sets.create("live")
    await services.collector.collect("live", Collection(bank=BANK))

    with pytest.raises(InvalidInputError, match="holds no beliefs about its items"):
        await services.calibrations.create("live", CalibrationPlan(prior_version_id=demo.id))
    assert not (await services.recalibration_advice.look("demo")).due


@pytest.mark.parametrize(
    ("tags", "level"),
    [
        (["algebra", "Easy"], 1.0),
        (["very_hard"], 3.5),
        (["level-3"], 3.0),
        (["grade:8"], 8.0),
        (["difficulty = medium"], 2.0),
        (["easy", "hard"], None),
        (["levelling", "hardware"], None),
        ([], None),
    ],
)
def test_tags_give_a_level_where_they_name_one(tags: list[str], level: float | None) -> None:
    assert level_in(tags) == level
