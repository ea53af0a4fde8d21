"""Calibrations and their parts, until they are published; the tests act as the worker."""

import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from typing import Any

import numpy as np
import pytest

from app.calibration.filters import FilterSettings
from app.calibration.logistic.calibrate import Calibration, CalibrationSettings
from app.calibration.matrix import ScoreMatrix
from app.calibration.pipeline.fit import CALIBRATORS, decided, fit, prepared, with_card
from app.calibration.pipeline.plan import MODELS, CalibrationPlan
from app.engine.knowledge import CURVES
from app.engine.ranking.rules import Metric, RankingRules
from app.errors import (
    CalibrationError,
    InvalidInputError,
    InvalidStateError,
    LeaseLostError,
    NotFoundError,
    UnknownNameError,
)
from app.records.calibrations import COLUMNS, CalibrationRecord
from app.records.sessions import Examinee
from app.reports.version.page import summary as version_summary
from app.services.calibrations import process
from app.services.calibrations.process import fit_in_process
from app.services.calibrations.publication import Publication
from app.services.container import Services
from app.services.rankings.service import RankingSpec
from app.services.sessions.manual import ManualAnswer
from app.storage.paging import PageRequest
from app.storage.repositories.response_sets import ResponseSetRepository
from tests.services.calibrations import (
    answers,
    calibrated,
    claimed,
    completed,
    driven,
    imported,
    lost,
    queued,
    run,
    runner_of,
)
from tests.services.sessions import answered, by_hand, events_of, failure_of, figures_of
from tests.values import not_none

pytestmark = pytest.mark.usefixtures("fits_here")

PLAN = CalibrationPlan()
KEEP_ALL = CalibrationPlan(filters=FilterSettings.none())


async def test_answers_arriving_during_the_read_wait_for_the_next_calibration(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await imported(services, answers(60, 5))
    item_keys, newer = ResponseSetRepository.item_keys, answers(70, 8, seed=8)

    async def overtaken(self: ResponseSetRepository, set_id: str) -> list[str]:
        keys = await item_keys(self, set_id)
        monkeypatch.undo()
        await imported(services, newer)
        return keys

    monkeypatch.setattr(ResponseSetRepository, "item_keys", overtaken)
    given = await services.calibrations.prepared(found.id, PLAN)

    now = await services.response_sets.get(found.id)
    assert now.revision > given.response_set.revision == found.revision
    assert given.filtered.matrix.n_examinees == found.n_examinees < now.n_examinees
    later = await services.calibrations.prepared(found.id, PLAN)
    assert later.response_set.revision == now.revision
    assert later.filtered.matrix.n_examinees == now.n_examinees


async def test_a_calibration_in_a_process_gives_the_same_result(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # as many models are held out as in the process
    await imported(services, answers())
    matrix = prepared(await services.response_sets.matrix("answers"), PLAN).matrix
    seen: list[dict[str, Any]] = []

    async def note(progress: dict[str, Any]) -> None:
        seen.append(progress)

    there = await fit_in_process(matrix, PLAN, note)
    alone = fit(matrix, PLAN, lambda _: None)
    here = with_card(matrix, PLAN, alone, lambda _: None, clock=lambda: 0.0)
    log_likelihood = there.figures["log_likelihood"]
    assert log_likelihood == pytest.approx(here.figures["log_likelihood"], abs=1e-6)
    assert set(there.columns) == set(COLUMNS)
    for name in COLUMNS:
        np.testing.assert_allclose(
            there.columns[name], here.columns[name], rtol=1e-6, equal_nan=True
        )
    assert there.knowledge == here.knowledge
    assert CURVES in here.knowledge  # without a report card it still predicts scores
    assert {progress["phase"] for progress in seen} == {"calibrating", "checking_fit"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model,q1,q2\nm1,1,0\n", "at least 2 examinees"),
        ("model,q1\nm1,1\nm2,0\nm3,1\n", "at least 2 items [^;]*, got 1\\.$"),
        ("model,q1,q2\nm1,1,0\nm2,0,0\nm3,1,0\n", "items .*, got 1; set aside: 1 constant\\.$"),
        ("model,q1,q2\nm1,1,0\nm2,1,0\nm3,1,0\n", "No item is left.* record 30 or more"),
        ("model,q1,q2,q3\nm1,1,,\nm2,,0,\nm3,,,1\n", "No item is left"),
        ("model,q1,q2\nm1,1,0\nm2,0.5,1\nm3,0,1\n", "got 0.5 .* model 'continuous' takes"),
    ],
)
async def test_answers_without_information_are_refused_before_queueing(
    services: Services, text: str, expected: str
) -> None:
    with pytest.raises((CalibrationError, InvalidInputError), match=expected):
        await queued(services, text, KEEP_ALL)
    async with services.database.reading() as uow:
        assert (await uow.calibrations.list_page(PageRequest())).items == ()


async def test_an_empty_set_is_refused(services: Services) -> None:
    await services.response_sets.create("empty")
    with pytest.raises(InvalidInputError, match="no scored answers"):
        await services.calibrations.create("empty", PLAN)


def test_every_response_model_of_a_plan_can_be_calibrated() -> None:
    assert set(CALIBRATORS) == set(MODELS)


def with_a_falling_item() -> ScoreMatrix:
    scores = answers().matrix.scores.copy()
    scores[:, 3] = 1 - scores[:, 3]
    return ScoreMatrix.of(scores)


def test_negative_slopes_are_allowed_if_falling_items_pass_the_filters() -> None:
    rising, falling = answers().matrix, with_a_falling_item()
    rasch = CalibrationPlan(model="1pl", filters=KEEP_ALL.filters)
    assert not decided(rising, KEEP_ALL).settings().negative_slopes
    assert decided(falling, KEEP_ALL).settings().negative_slopes
    assert not decided(falling, PLAN).settings().negative_slopes  # its filter removes the item
    assert not decided(falling, rasch).settings().negative_slopes
    positive = CalibrationPlan(filters=KEEP_ALL.filters, negative_slopes=False)
    assert decided(falling, positive) == positive


def test_cross_validation_uses_the_calibrated_model(monkeypatch: pytest.MonkeyPatch) -> None:
    falling, plan, kinds = with_a_falling_item(), replace(KEEP_ALL, report_card=True), []

    def calibrated(
        matrix: ScoreMatrix, settings: CalibrationSettings, *, watch: object
    ) -> Calibration:
        kinds.append(settings.negative_slopes)
        raise CalibrationError("This is as far as it need go.")

    fitted = fit(falling, plan, lambda _: None)
    monkeypatch.setattr("app.calibration.linking.linked.calibrate", calibrated)
    with_card(falling, plan, fitted, lambda _: None, clock=lambda: 0.0)
    assert (fitted.columns["a"] < 0.0).any()
    assert kinds == [True]


def test_settings_that_exclude_each_other_are_refused() -> None:
    for wrong, error, says in (
        ({"model": "5pl"}, UnknownNameError, "5pl"),
        ({"model": "1pl", "negative_slopes": True}, InvalidInputError, "1PL"),
        ({"compare": ("2pl", "rasch")}, UnknownNameError, "rasch"),
        ({"partition_size": 99}, InvalidInputError, "at least 100 items"),
    ):
        with pytest.raises(error, match=says):
            CalibrationPlan(**wrong)
    plan = CalibrationPlan(
        model="3pl", priors=False, compare=("1pl",), filters=FilterSettings(least_mean=0.05)
    )
    assert CalibrationPlan.from_dict(plan.to_dict()) == plan


async def test_filtered_items_are_listed_with_a_reason(services: Services) -> None:
    scores = answers(60).matrix.scores
    found = await imported(services, ScoreMatrix.of(np.column_stack([scores, np.ones(60)])))
    result = (await calibrated(services, KEEP_ALL)).result or {}
    assert result["response_set_revision"] == found.revision
    assert result["dropped"]["items"] == []
    assert result["score_only"] == [{"name": "q13", "reason": "constant", "value": 1.0}]
    assert result["constants"] == {"q13": 1.0}
    assert any("fewer than 250 answers" in warning for warning in result["warnings"])


async def test_answers_that_went_bad_in_the_queue_fail_with_the_reason(services: Services) -> None:
    made = await queued(services, answers(60))
    await imported(services, "model,q1\nodd,0.25\n")
    record = await driven(services, made.id)
    assert record.status == "failed"
    assert failure_of(record)["code"] == "invalid_input"
    assert "got 0.25 for examinee 'odd', item 'q1'" in failure_of(record)["detail"]
    with pytest.raises(InvalidStateError, match="failed"):
        await services.calibrations.items(made.id)


async def test_a_worker_without_its_lease_writes_nothing(services: Services) -> None:
    made = await queued(services, answers(60))
    late = not_none(await claimed(services, made.id, "late"))
    assert await claimed(services, made.id, "other") is None
    cancelled = await services.calibrations.cancel(made.id)
    assert cancelled.status == "cancelled"
    held, lease = {made.id: late.lease_epoch}, timedelta(seconds=9)
    async with services.database.unit_of_work() as uow:
        assert await uow.calibrations.renew(held, lease=lease) == set()
        with pytest.raises(LeaseLostError):
            await uow.calibrations.report(late, {"phase": "calibrating"})
    await runner_of(services).drive(late)
    assert await services.calibrations.get(made.id) == cancelled


async def test_publishing_makes_one_version_to_test_on(services: Services) -> None:
    record = await completed(services)
    version = await services.calibrations.publish(record.id, Publication(bank="arc", notes="first"))
    assert (version.number, version.response_model, version.provisional) == (1, "2pl", False)
    assert version.scale.startswith("arc-v1-")
    assert version.notes == "first"
    facts = not_none(version.calibration)
    assert (facts["id"], facts["n_examinees"]) == (record.id, 300)
    assert facts["fit"] == (record.result or {})["fit"]
    assert set((record.result or {})["knowledge"]) == {"curves"}  # scores are still predicted
    with pytest.raises(InvalidStateError, match="with a report card"):
        await services.calibrations.abilities(record.id)
    loaded = await services.versions.load(version.id)
    rows = await services.calibrations.items(record.id)
    assert loaded.bank.a.tolist() == [row["a"] for row in rows]
    assert await services.versions.get("arc") == version
    published = await services.calibrations.get(record.id)
    assert (published.bank_id, published.bank_version_id) == (version.bank_id, version.id)
    again = await services.calibrations.publish(record.id, Publication(bank="arc", notes="again"))
    other = await services.calibrations.publish(record.id, Publication(bank="other"))
    assert (again.number, other.number) == (2, 1)
    same = await services.calibrations.publish(record.id, Publication(bank="arc"))
    assert same == again == await services.versions.get("arc")
    assert {again.scale, other.scale} == {version.scale}
    assert other.parameters_hash == again.parameters_hash == version.parameters_hash


async def test_misfitting_items_are_flagged_in_the_version(services: Services) -> None:
    simulated = answers(600)
    rng = np.random.default_rng(3)
    scores = simulated.matrix.scores.copy()
    middle = np.abs(simulated.theta) < 0.8  # right only in the middle, so no logistic curve
    scores[:, 4] = np.where(middle, rng.random(600) < 0.97, rng.random(600) < 0.35)
    await imported(services, ScoreMatrix.of(scores))
    record = await calibrated(services, KEEP_ALL)
    version = await services.calibrations.publish(
        record.id, Publication(bank="arc", allow=("negative_slope",))
    )
    page = await services.versions.items(
        "arc", str(version.number), PageRequest(descending=False), flagged=True
    )
    codes = {item.key: {flag["code"] for flag in item.flags} for item in page.items}
    assert {key for key, found in codes.items() if "misfit" in found} == {"q5"}
    assert version.lint["findings"]["misfit"] == 1
    validation = await services.versions.validate("arc", str(version.number))
    assert "misfit" in {finding.code for finding in validation.findings}


async def test_nothing_is_published_to_a_bank_without_the_items(services: Services) -> None:
    record = await completed(services)
    with pytest.raises(InvalidInputError, match="none names one"):
        await services.calibrations.publish(record.id, Publication(bank="demo"))
    assert (await services.calibrations.get(record.id)).bank_version_id is None
    assert (await services.versions.get("demo")).number == 1


async def test_an_unconverged_calibration_is_published_only_on_request(services: Services) -> None:
    record = await completed(services, CalibrationPlan(max_cycles=2))
    assert (record.result or {})["converged"] is False
    with pytest.raises(InvalidStateError, match="did not converge within"):
        await services.calibrations.publish(record.id, Publication(bank="arc"))
    with pytest.raises(NotFoundError):
        await services.banks.get_bank("arc")
    version = await services.calibrations.publish(
        record.id, Publication(bank="arc", allow_unconverged=True)
    )
    assert not_none(version.calibration)["converged"] is False


@pytest.mark.parametrize("erases", [False, True])
async def test_a_calibration_stays_while_its_banks_exist(services: Services, erases: bool) -> None:
    record = await completed(services)
    first = await services.calibrations.publish(record.id, Publication(bank="first"))
    await services.calibrations.publish(record.id, Publication(bank="second"))
    second = (await services.banks.get_bank("second")).bank
    await services.banks.delete_bank(second.id, second.revision, erases=erases)
    assert (await services.calibrations.get(record.id)).bank_version_id == first.id
    with pytest.raises(InvalidStateError, match="was made from it"):
        async with services.database.unit_of_work() as uow:
            await uow.calibrations.delete(record.id)
    await services.version_reports.report("first", None)
    bank = (await services.banks.get_bank("first")).bank
    await services.banks.delete_bank(bank.id, bank.revision, erases=erases)
    if erases:
        with pytest.raises(NotFoundError):
            await services.calibrations.get(record.id)
    else:
        async with services.database.unit_of_work() as uow:
            await uow.calibrations.delete(record.id)


async def test_too_few_examinees_for_a_card_still_correct_intervals(services: Services) -> None:
    await imported(services, answers(20))
    result = (await calibrated(services, replace(KEEP_ALL, report_card=True))).result or {}
    assert "at least 40 examinees, got 20" in result["warnings"][-1]
    assert "report_card" not in result
    assert result["knowledge"]["interval_correction"]["n_examinees"] == 20


@pytest.mark.parametrize(("n_examinees", "withheld"), [(12, True), (20, False)])
async def test_with_few_reference_models_the_score_is_given_and_theta_withheld(
    services: Services, n_examinees: int, withheld: bool
) -> None:
    await imported(services, answers(n_examinees))
    record = await calibrated(services, replace(KEEP_ALL, report_card=True))
    await services.calibrations.publish(record.id, Publication(bank="few"))
    session = await by_hand(services, {"stopping": {"max_items": 8}}, bank="few")
    session = await answered(services, session)
    summary = figures_of(session)
    estimate, told = summary["estimate"], "has 12 reference models"
    assert (estimate["theta"] is None) == withheld
    assert (told in (estimate["reason"] or "")) == withheld
    steps = await services.sessions.responses(session.id)
    assert {one.closing and one.closing.theta is None for one in steps} == {withheld}
    assert 0.0 < summary["score"]["interval"]["lo"] < summary["score"]["interval"]["hi"] < 1.0
    both, by_score = [Examinee(name=n) for n in "ab"], RankingRules(metric=Metric.SCORE)
    ranking = await services.rankings.create(
        RankingSpec(endpoints=both, bank="few", rules=by_score)
    )
    while ranking.status == "running":
        item, *_ = await services.manual_sessions.ranking_items(ranking.id, 1)
        given = ManualAnswer(step_token=item.step_token, score=float(item.step % 2))
        await services.manual_sessions.answer(item.record.id, given)
        ranking = await services.rankings.get(ranking.id)
    order = ranking.summary["order"]
    assert {entry["score"] is None for entry in order} == {False}
    assert {entry["theta"] is None for entry in order} == {withheld}
    said = " ".join(version_summary(await services.version_reports.report("few")))
    assert (told in said) == ("to within" not in said) == withheld
    if withheld:
        with pytest.raises(InvalidInputError, match=told):
            await by_hand(services, {"stopping": {"se": 0.5}}, bank="few")


MATRIX = answers(60, 6).matrix
SENT = process.header(MATRIX, CalibrationPlan(), None, ()) + MATRIX.scores.tobytes()


def test_the_process_ends_silently_once_its_output_is_closed() -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-m", process.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        given = not_none(child.stdin)
        not_none(child.stdout).close()
        given.write(SENT)
        given.flush()  # stays open: it learns from its output alone
        told = not_none(child.stderr).read()
    assert child.returncode == 1
    assert told == b""


@pytest.mark.parametrize("sent", [SENT[:10], SENT[:-10]])
def test_the_process_distinguishes_a_lost_parent_from_invalid_answers(sent: bytes) -> None:
    with pytest.raises(EOFError):
        process.read(BytesIO(sent))


IN_PARTS = CalibrationPlan(partition_size=100, seed=3)


async def started(services: Services) -> tuple[CalibrationRecord, list[str]]:
    """Start a calibration in two parts; return all ids."""
    made = await queued(services, answers(120, 210), IN_PARTS)
    async with services.database.unit_of_work() as uow:
        return made, [part.id for part in await uow.calibrations.parts(made.id)]


async def kinds(services: Services, calibration_id: str) -> list[str]:
    events = await events_of(services, "calibration", calibration_id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    return [event.type.removeprefix("calibration.") for event in events]


async def test_the_last_part_joins_the_whole(services: Services) -> None:
    made, parts = await started(services)
    assert (made.n_parts, len(parts)) == (2, 2)
    assert await claimed(services, made.id) is None  # its parts come first
    for part in parts:
        await run(services, part)
    found = await services.calibrations.get(made.id)
    assert (found.status, found.result) == ("running", None)
    assert found.progress == {"phase": "calibrating", "n_parts": 2, "parts_done": 2}
    record = await driven(services, made.id)
    assert record.status == "completed", record.failure
    assert len(await services.calibrations.items(made.id)) > 200
    async with services.database.unit_of_work() as uow:
        assert await uow.calibrations.parts(made.id) == []
    seen = await kinds(services, made.id)
    assert seen[0] == "queued"
    assert seen.count("part_started") == 2
    assert seen[-1] == "completed"


async def test_parts_are_hidden_from_callers(services: Services) -> None:
    made, parts = await started(services)
    with pytest.raises(NotFoundError):
        await services.calibrations.get(parts[0])
    with pytest.raises(NotFoundError):
        await services.calibrations.cancel(parts[0])
    async with services.database.reading() as uow:
        page = await uow.calibrations.list_page(PageRequest())
    assert [record.id for record in page.items] == [made.id]


async def test_a_cancelled_calibration_takes_its_parts_with_it(services: Services) -> None:
    made, parts = await started(services)
    running = not_none(await claimed(services, parts[0]))
    assert (await services.calibrations.get(made.id)).status == "running"
    await services.calibrations.cancel(made.id)
    async with services.database.unit_of_work() as uow:
        with pytest.raises(LeaseLostError):
            await uow.calibrations.report(running, {"phase": "reading"})
        assert {part.status for part in await uow.calibrations.parts(made.id)} == {"cancelled"}
    await runner_of(services).drive(running)
    assert await claimed(services, parts[1]) is None
    assert (await kinds(services, made.id))[-1] == "cancelled"
    async with services.database.unit_of_work() as uow:
        await uow.calibrations.delete(made.id)
    with pytest.raises(NotFoundError):
        await services.calibrations.get(made.id)


async def test_a_part_that_loses_every_worker_ends_the_calibration(services: Services) -> None:
    made, parts = await started(services)
    await lost(services, parts[1])
    found = await services.calibrations.get(made.id)
    assert found.status == "failed"
    assert "its worker was lost" in failure_of(found)["detail"]
    assert await claimed(services, parts[0]) is None
    assert (await kinds(services, made.id))[-1] == "failed"


async def test_answers_that_changed_between_the_parts_are_not_joined(services: Services) -> None:
    made, parts = await started(services)
    for part in parts:
        await run(services, part)
    other = "model,q1,q2\none-more,1,0\n"  # the same items in the same parts
    await imported(services, other)
    record = await driven(services, made.id)
    assert record.status == "failed"
    assert "answers changed while their parts were calibrated" in failure_of(record)["detail"]
    assert record.result is None


async def test_only_runnable_work_without_a_worker_is_stalled(services: Services) -> None:
    made, parts = await started(services)

    async def stalled() -> set[str]:
        async with services.database.unit_of_work() as uow:
            found = uow.calibrations.stalled(grace=timedelta(0), lease=timedelta(minutes=1))
            return set(await found)

    assert await stalled() == set(parts)
    for part in parts:
        await run(services, part)
    assert await stalled() == {made.id}


async def test_a_set_that_fills_one_part_is_calibrated_as_a_whole(services: Services) -> None:
    assert (await queued(services, answers(60, 110), IN_PARTS)).n_parts is None
