"""Manual sessions: ask, answer, and refuse answers to other steps."""

from typing import Any

import pytest

from app.demo.bank import demo_bank
from app.engine.prediction.correction import IntervalCorrection, IntervalFactor
from app.errors import InvalidInputError, InvalidStateError, StaleStepError
from app.items import Outcome
from app.records.sessions import SessionRecord
from app.services.banks.imports import BankImport
from app.services.container import Services
from app.services.sessions.manual import ManualAnswer
from app.services.sessions.run import open_run
from tests.services.sessions import by_hand, figures_of, length, replayed, tell


@pytest.fixture
async def manual(services: Services) -> SessionRecord:
    return await by_hand(services, length(5))


async def test_a_version_corrects_its_sessions_intervals(services: Services) -> None:
    twice = IntervalFactor(answers=(1,), factor=(2.0,), usual=(1.0,), power=0.0)
    correction = IntervalCorrection(theta=twice, n_examinees=99)
    knowledge = {"interval_correction": correction.to_dict()}
    request = BankImport(parameters=demo_bank().item_bank(), knowledge=knowledge)
    version = await services.banks.create_version("demo", request)
    assert (await services.versions.get("demo")).knowledge == knowledge == version.knowledge
    record = await by_hand(services, length(5))
    for _ in range(5):
        record = await tell(services, record.id, score=1.0)

    estimate, accuracy = figures_of(record)["estimate"], figures_of(record)["score"]
    known, raw = estimate["interval"], estimate["interval_raw"]
    assert known["hi"] - known["lo"] == pytest.approx(2 * (raw["hi"] - raw["lo"]))
    assert accuracy["interval_raw"] is None


async def test_alternating_servers_measure_as_one(
    services: Services, other_services: Services
) -> None:
    told = []
    for turns in ([services], [services] * 2 + [other_services] * 3):
        plan = {"stopping": {"se": 0.2, "min_items": 1, "max_items": 9}}
        record = await by_hand(services, plan)
        for number in range(9):
            given = {"outcome": Outcome.REFUSED} if number == 4 else {"score": number % 3 / 2}
            record = await tell(turns[number % len(turns)], record.id, **given)
            told.append({**figures_of(record), "usage": record.stop_reason})
    assert told[:9] == told[9:]


async def test_a_session_continues_from_its_first_item_without_other_reads(
    services: Services, manual: SessionRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_runs = []

    async def opening(versions: Any, record: Any, *given: Any, **more: Any) -> Any:
        opened_runs.append(record.arrivals)
        return await open_run(versions, record, *given, **more)

    monkeypatch.setattr("app.services.sessions.manual.open_run", opening)
    first = await services.manual_sessions.next_item(manual.id)
    for _ in range(3):
        await tell(services, manual.id, score=1.0)
    late = ManualAnswer(step_token=first.step_token, score=1.0)
    with pytest.raises(StaleStepError):
        await services.manual_sessions.answer(manual.id, late)
    await tell(services, manual.id, score=1.0)

    assert opened_runs == []


async def test_a_waiting_session_takes_one_kind_of_answer_to_its_item_and_nothing_else(
    services: Services, manual: SessionRecord
) -> None:
    refused: list[tuple[dict[str, object], str]] = [
        ({"item_id": "other", "score": 1.0}, "'other'"),
        ({}, "exactly one"),
        ({"score": 1.0, "response": "B"}, "exactly one"),
        ({"response": "B", "text": "It is B."}, "no other text beside it"),
    ]
    for given, words in refused:
        with pytest.raises(InvalidInputError, match=words):
            await tell(services, manual.id, **given)
    with pytest.raises(InvalidStateError, match="ended"):
        await replayed(services, manual.id)
    with pytest.raises(InvalidStateError, match="ended"):
        await services.derived_sessions.extend(manual.id, {}, {})
    awaited = await services.manual_sessions.next_item(manual.id)
    await services.sessions.cancel(manual.id)
    late = ManualAnswer(step_token=awaited.step_token, score=1.0)
    with pytest.raises(InvalidStateError, match="cancelled"):
        await services.manual_sessions.answer(manual.id, late)


async def test_a_replay_keeps_answers_and_with_equal_settings_every_bit(
    services: Services, manual: SessionRecord
) -> None:
    for number in range(5):
        await tell(services, manual.id, score=float(number < 3))
    parent = await services.sessions.get(manual.id)

    by_wle = await replayed(services, parent.id, {"estimator": {"method": "wle"}})

    old, new = [await services.sessions.responses(r.id) for r in (parent, by_wle)]
    assert figures_of(by_wle)["estimate"]["method"] == "wle"
    assert figures_of(by_wle)["estimate"] != figures_of(parent)["estimate"]
    assert [(r.item_key, r.closing.score) for r in old if r.closing] == [
        (r.item_key, r.closing.score) for r in new if r.closing
    ]
    assert (by_wle.parent_id, by_wle.relation) == (parent.id, "replay")
    assert by_wle.metadata == {"why": "again"}
    alike = await replayed(services, parent.id)
    assert figures_of(alike) == figures_of(parent)
    assert alike.provenance["left_out"] == 0


async def test_an_extended_manual_session_waits_for_its_next_answer_and_keeps_its_seconds(
    services: Services, manual: SessionRecord
) -> None:
    for _ in range(5):
        await tell(services, manual.id, score=1.0)
    parent = await services.sessions.get(manual.id)

    extended = await services.derived_sessions.extend(manual.id, length(6), {})
    ended = await tell(services, extended.id, score=0.0)

    seconds = [figures_of(record)["usage"]["seconds"] for record in (parent, extended, ended)]
    assert 0 < seconds[0] == seconds[1] < seconds[2]
    assert (extended.status, ended.status) == ("awaiting_response", "completed")
    assert figures_of(ended)["outcomes"]["scored"] == 6


async def test_an_extended_session_counts_the_failures_that_it_asks_again(
    services: Services, manual: SessionRecord
) -> None:
    await tell(services, manual.id, score=1.0, tokens_in=5, tokens_out=1, usd=0.25)
    await tell(services, manual.id, outcome="error", tokens_in=7, tokens_out=2, usd=0.5)
    await services.sessions.cancel(manual.id)
    record, took = manual, []
    for _ in range(2):
        record = await services.derived_sessions.extend(record.id, length(6), {})
        took.append(figures_of(record)["usage"])
        await tell(services, record.id, outcome="error", tokens_in=0, tokens_out=0, usd=1.0)
        await services.sessions.cancel(record.id)
    assert [(usage["tokens_in"], usage["usd"]) for usage in took] == [(12, 0.75), (12, 1.75)]
    assert figures_of(await replayed(services, record.id))["usage"]["usd"] == 2.75
