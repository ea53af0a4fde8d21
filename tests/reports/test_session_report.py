"""The report of a session: its figures, and its page."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.engine import ItemBank
from app.engine.design.selection import CriterionName
from app.engine.stopping import StopReason
from app.records.fields import Interval, ends
from app.records.leased import Failure
from app.reports.formats import item_name
from app.reports.reference_strip import Reference
from app.reports.rendering import STYLE
from app.reports.session.build import Asked
from app.reports.session.facts import Ended, SessionReport, Share
from app.reports.session.page import render
from app.reports.session.words import STOP_WORDS, summary
from tests.reports.pages import Page
from tests.reports.sessions import NASTY, known, report, several, taken
from tests.values import not_none

QUANTILES = tuple(np.linspace(-2.0, 2.0, 101).tolist())


def plain_bank(n_items: int = 60) -> ItemBank:
    rng = np.random.default_rng(0)
    return ItemBank.from_difficulties(
        a=rng.uniform(0.8, 1.8, n_items),
        b=rng.normal(size=n_items),
        item_ids=[NASTY, *(f"q{i}" for i in range(1, n_items))],
    )


def binary(n: int = 20, theta: float = 0.5, *, failures: int = 0, **fields: Any) -> SessionReport:
    """Return the report of a test on a bank of one ability."""
    plan, quantiles = fields.pop("plan", None), fields.pop("quantiles", ())
    reference = Reference(thetas=quantiles, n=fields.get("n_calibrated_on"))
    bank = known(plain_bank(), plan, reference=reference)
    asked = taken(bank, bank.bank.expected_score(theta), n)
    asked = [replace(item, outcome="refused", score=None) for item in asked[:failures]] + asked[
        failures:
    ]
    return report(bank, fields.pop("asked", asked), **fields)


def continuous() -> SessionReport:
    rng = np.random.default_rng(0)
    bank = known(
        ItemBank.from_difficulties(a=np.ones(40), b=rng.normal(size=40), k=np.full(40, 0.1))
    )
    asked = taken(bank, bank.bank.expected_score(0.5), 12)
    return report(bank, asked, response_model="continuous")


def uneven(n: int = 30, **fields: Any) -> SessionReport:
    """Return a test on a bank of several abilities: right in one task, wrong in the other."""
    bank = several()
    chances = np.array([{0: 0.95, 1: 0.05}.get(i % 3, 0.5) for i in range(45)])
    return report(bank, taken(bank, chances, n), response_model="nested", **fields)


def failing() -> SessionReport:
    bank = known(plain_bank())
    asked = [
        Asked(
            step=step,
            position=step,
            item_id=NASTY,
            tags=(NASTY,),
            pretest=False,
            arrival=step,
            outcome=("error", "refused", "unparsed", "truncated")[step % 4],
            question=NASTY,
            answer=NASTY,
            reason=NASTY,
        )
        for step in range(1, 6)
    ]
    ended = Ended(
        stop_reason="too_many_failures",
        stop_detail=NASTY,
        precision_reached=False,
        failure={"code": "endpoint_unavailable", "detail": NASTY},
    )
    return report(bank, asked, ended=ended, status="failed")


def pending() -> SessionReport:
    """Return a session that waits for an answer, with a pretest item."""
    bank = known(plain_bank())
    asked = taken(bank, bank.bank.expected_score(0.5), 3)
    waiting = replace(asked[-1], step=4, position=40, outcome=None, score=None, arrival=None)
    tried = replace(asked[-1], step=5, position=60, item_id="new", pretest=True, tags=())
    pretest = {"planned": 2, "items": 1, "in_flight": 0, "outcomes": {}}
    return report(
        bank,
        [*asked, waiting, tried],
        ended=Ended(),
        status="running",
        changes={"pretest": pretest},
    )


KINDS: dict[str, Callable[[], SessionReport]] = {
    "binary": lambda: binary(quantiles=QUANTILES, n_calibrated_on=1200),
    "several abilities": uneven,
    "continuous": continuous,
    "nothing asked": lambda: binary(0, ended=Ended(), status="queued"),
    "one answer": lambda: binary(1),
    "failed": failing,
    "running": pending,
    "cancelled": lambda: binary(4, ended=Ended(stop_reason="cancelled"), status="cancelled"),
    "by hand": lambda: binary(mode="manual", provisional=True, examinee=NASTY),
    "rescored": lambda: binary(
        relation="rescore",
        parent_id="ses_0",
        ranking_id="rnk_0",
        metadata={NASTY: NASTY},
        changes={
            "rescore": {"answers": 20, "changed": 3},
            "person_fit": {"flagged": True, "inversions": {"observed": 9, "expected": 3.2}},
        },
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_is_whole_safe_and_accessible(kind: str) -> None:
    text = render(KINDS[kind]())
    page = Page(text)
    tags = [tag for tag, _ in page.elements]
    assert not re.search(r"https?:|url\(|@import", text)
    assert "<script" not in text
    page.require_safe_and_accessible()
    assert ("html", {"lang": "en"}) in page.elements
    assert tags.count("h1") == 1
    assert tags.count("table") > 2
    assert "<caption>Show" not in text  # nothing to click
    for word in ("nan", "none", "null", "inf"):
        assert not re.search(rf"\b{word}\b", page.text.lower()), word


def test_an_item_called_by_a_digest_is_shortened() -> None:
    key, name = "task/" + 5 * "0123456789abcdef", "repo__issue-12345678901234567890"
    assert item_name(key) == f'<span title="{key}">task/0123456789ab…</span>'
    assert item_name(name) == name


def test_untrusted_text_is_shown_as_it_is() -> None:
    page = Page(render(failing()))
    # As name of an item and a task, as question, answer and reason, and as cause of failure.
    assert page.text.count('<script>alert("x")</script>') >= 5 * 5 + 2


@pytest.mark.parametrize("relation", ["replay", "rescore"])
def test_answers_of_another_test_cost_this_one_nothing(relation: str) -> None:
    said = " ".join(summary(binary(relation=relation, parent_id="ses_1")))
    told = "Its answers took 20 calls, 980 tokens for $0.0024, in the test that asked for them."
    assert told in said
    assert "It took" not in said


def test_the_summary_speaks_plainly() -> None:
    said = " ".join(summary(binary(quantiles=QUANTILES, n_calibrated_on=1200)))
    assert "my-model answered 20 of the 60 questions of the bank arc (version 2)." in said
    expected = r"On the whole bank it is expected to score \d\d\.\d\u00a0% \(95\u00a0% int"
    assert re.search(expected, said)
    place = r"By ability it is better than about \d\d\u00a0% of the 1,200 reference models"
    assert re.search(place, said)
    assert "All of its answers could be scored." in said
    assert "It took 20 calls, 980 tokens for $0.0024 and 4.2 seconds." in said
    assert "stopped because the ability was known as exactly as was asked for." in said
    assert "theta" not in said
    assert "faulty" not in said
    wider = " ".join(summary(binary(n_never_asked=2)))
    assert "my-model answered 20 of the 62 questions of the bank" in wider
    assert "20 of 62 questions were asked." in Page(render(binary(n_never_asked=2))).text
    assert "2 faulty questions are never asked" in wider
    assert "without parameters" not in wider
    narrower = " ".join(summary(binary(n_uncalibrated=1)))
    assert "On the bank's 60 calibrated questions it is expected to score" in narrower
    assert "The score excludes 1 uncalibrated question" in narrower
    assert "whole bank" not in narrower
    assert "20 of the 60 calibrated questions of the bank" in narrower
    assert "share of all calibrated questions" in Page(render(binary(n_uncalibrated=1))).text


def test_a_place_is_by_score_where_the_position_of_the_score_is_known() -> None:
    stands = {"standing": "within", "position": 1.0, "sd": 0.2}
    theta = binary(quantiles=QUANTILES)
    placed = replace(
        theta,
        reference=Reference(population=QUANTILES),
        estimate={**theta.estimate, "extrapolation": stands},
    )
    of_a_task = replace(placed, score=replace(not_none(theta.score), of={"t": 1.0}))
    said = [" ".join(summary(one)) for one in (theta, placed, of_a_task)]
    assert ["By ability it is better" in text for text in said] == [True, False, True]
    assert ["That is better" in text for text in said] == [False, True, False]


def test_the_share_of_models_below_has_an_interval_unless_the_score_is_known() -> None:
    theta = binary(quantiles=QUANTILES)
    score = not_none(theta.score)
    for lo, hi, ending in [
        (0.5, 0.9, " (95\u00a0% interval: 50.0\u00a0% to 90.0\u00a0%)."),
        (0.76, 0.76, "."),
    ]:
        below = Share(value=0.76, interval={"lo": lo, "hi": hi, "level": 0.95})
        said = " ".join(summary(replace(theta, score=replace(score, below=below))))
        assert f"better than about 76\u00a0% of the reference models{ending}" in said


def _width(known: Interval | None) -> float:
    lo, hi = map(not_none, ends(known))
    return hi - lo


def test_models_below_are_counted_among_the_reference_models() -> None:
    theta = binary().estimate["theta"]
    # Abilities of the reference models, evenly spread between -2 and 2.
    score = not_none(binary(quantiles=QUANTILES).score)
    below = not_none(score.below)
    assert below.value == pytest.approx((theta + 2) / 4, abs=1e-6)
    lo, hi = map(not_none, ends(below.interval))
    assert lo < below.value < hi
    guessed = binary(quantiles=QUANTILES, provisional=True)
    assert not_none(guessed.score).below is None
    assert guessed.warnings[0].code == "provisional"
    few = binary(uncertainty="The bank was calibrated on 5 examinees.").warnings[0]
    assert (few.code, few.text) == ("calibrated_on_few", "The bank was calibrated on 5 examinees.")


def test_a_result_is_not_compared_with_reference_models_that_are_not_known() -> None:
    score = binary().score
    assert score is not None
    assert score.below is None


def test_an_unplaced_result_is_not_compared_with_reference_models() -> None:
    stands = {"standing": "unknown", "position": -4.0, "sd": 1.9, "caution": "Nobody can tell."}
    estimate = {**binary().estimate, "extrapolation": stands}
    score = not_none(binary(quantiles=QUANTILES, changes={"estimate": estimate}).score)
    assert score.below is None


def test_a_profile_is_shown_by_task() -> None:
    found = uneven()
    standing = {task.tag: task.standing for task in found.tasks}
    assert standing["task-0"] == "stronger"
    assert standing["task-1"] == "weaker"
    text = " ".join(summary(found))
    assert "it is stronger than expected at task-0 (" in text
    assert " and weaker than expected at task-1 (" in text
    page = Page(render(found))
    assert "The abilities behind it" in page.text
    assert "more of it helps at task-1" in page.text
    assert {ability.above for ability in found.abilities} == {None}  # no thetas are known
    assert "“-” is unknown: a calibration with a report card compares" in page.text
    assert sum(task.n_asked for task in found.tasks) == 30
    assert {task.method for task in found.tasks} == {"combined"}


def test_a_task_that_was_never_asked_is_marked_so() -> None:
    bank = several()
    of_others = np.array([i % 3 != 2 for i in range(45)])
    bank = replace(bank, test=replace(bank.test, pool=replace(bank.test.pool, active=of_others)))
    found = report(bank, taken(bank, np.full(45, 0.5), 12), response_model="nested")
    never = next(task for task in found.tasks if task.tag == "task-2")
    assert (never.n_asked, never.observed) == (0, None)
    others = [task for task in found.tasks if task.tag != "task-2"]
    assert _width(never.interval) > max(_width(task.interval) for task in others)
    text = render(found)
    assert "never asked" in text
    assert "dot never" in text


def test_a_bank_of_one_ability_shows_results_by_task() -> None:
    bank = known(plain_bank())
    right_at_one = np.array([0.97 if i % 3 == 0 else 0.25 for i in range(60)])
    found = report(bank, taken(bank, right_at_one, 40))
    standing = {task.tag: task.standing for task in found.tasks}
    assert standing["task-0"] == "stronger"
    assert all(task.value is None for task in found.tasks)
    assert "no score is predicted for single tasks" in Page(render(found)).text


def test_tasks_that_share_questions_are_said_to_overlap() -> None:
    apart = known(plain_bank())
    within = tuple((*tags, f"fifth-{i % 5}") for i, tags in enumerate(apart.tags))
    for bank, said in ((apart, False), (replace(apart, tags=within), True)):
        found = report(bank, taken(bank, bank.bank.expected_score(0.5), 20))
        assert ("Tasks overlap" in Page(render(found)).text) == said


def test_uniform_answers_flag_no_task() -> None:
    flagged, bank = 0, known(plain_bank())
    for seed in range(40):
        found = report(bank, taken(bank, bank.bank.expected_score(0.3), 30, seed=seed))
        flagged += any(task.standing for task in found.tasks)
    assert flagged <= 5  # 2 expected; more than 5 of 40 have a probability of 1 %


def test_the_trace_ends_at_the_result() -> None:
    found = uneven()
    assert [point.answers for point in found.trace[:2]] == [0, 1]
    last = found.trace[-1]
    assert last.answers == 30
    assert found.score is not None
    assert (last.theta, last.score) == (found.estimate["theta"], found.score.value)
    assert last.score_interval == found.score.interval


def test_the_trace_ends_at_the_stored_result_that_older_rules_gave() -> None:
    bank = known(plain_bank())
    within = {"lo": -0.2, "hi": 1.0, "level": 0.95}
    estimate = {"theta": 0.4, "se": 0.3, "interval": within, "method": "eap", "at_bound": False}
    score = {"value": 0.6, "interval": {"lo": 0.1, "hi": 0.7, "level": 0.95}, "method": "combined"}
    asked = taken(bank, bank.bank.expected_score(0.0), 20)
    last = report(bank, asked, changes={"estimate": estimate, "score": score}).trace[-1]
    assert (last.theta, last.interval) == (0.4, within)
    assert (last.score, last.score_interval) == (0.6, score["interval"])


def test_the_page_shows_long_tests_in_part_and_says_so() -> None:
    bank = known(plain_bank(400), {"preset": "ability", "stopping": {"se": None, "max_items": 400}})
    asked = taken(bank, bank.bank.expected_score(0.0), 320)
    found = report(bank, asked)
    assert len(found.items) == 320
    assert len(found.trace) <= 60
    assert "The first 300 of 320 questions." in Page(render(found)).text


def test_a_test_that_failed_early_says_why_and_what_was_right() -> None:
    bank = known(plain_bank())
    detail = "5 calls in a row failed. Repair the endpoint, then continue the session."
    failure: Failure = {"code": "endpoint_unavailable", "detail": "HTTP 500."}
    ended = Ended(
        stop_reason="too_many_failures",
        stop_detail=detail,
        precision_reached=False,
        failure=failure,
    )
    asked = taken(bank, bank.bank.expected_score(0.5), 3)
    right = sum(one.score or 0 for one in asked)
    found = report(bank, asked, ended=ended, status="failed")
    progress = {**found.figures["progress"], "right": int(right), "mean": right / 3}
    early = replace(found, score=None, figures={**found.figures, "progress": progress})
    text = " ".join(summary(early))
    assert f"failed after 3 answers: {detail}" in text
    assert f"Of the questions asked: {right:.0f} of 3 right." in text


def test_failures_are_shown_beside_the_score() -> None:
    found = failing()
    assert found.score is None
    assert {caution.code for caution in found.warnings} == {"failed"}
    text = Page(render(found)).text
    assert "5 of 5 answers could not be scored (1 failed, 2 refused" in text
    assert "neither a wrong answer nor a right one" in text


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"status": "running", "ended": Ended()}, "unfinished"),
        ({"status": "cancelled", "ended": Ended(stop_reason="cancelled")}, "cancelled"),
        ({"n": 4}, "few_answers"),
        ({"changes": {"person_fit": {"flagged": True}}}, "person_fit"),
        ({"ended": Ended(stop_reason="budget_exhausted", precision_reached=False)},
         "precision_not_reached"),
        ({"plan": {"prediction": {"method": "p-irt"}}}, "unchecked_interval"),
        ({"failures": 5}, "unmarked_answers"),
    ],
)  # fmt: skip
def test_doubts_are_stated(fields: dict[str, Any], code: str) -> None:
    assert code in {caution.code for caution in binary(**fields).warnings}


def test_a_score_without_curves_needs_no_check_of_curves() -> None:
    assert not {caution.code for caution in binary().warnings}


def test_a_session_without_a_result_mentions_no_intervals() -> None:
    cut = Ended(stop_reason="max_items", precision_reached=False)
    untold = {**binary().estimate, "reason": "Only 3 answers are marked."}
    changes = {"estimate": untold, "score": None}
    codes = {caution.code for caution in binary(ended=cut, changes=changes).warnings}
    assert "no_result" in codes
    assert "precision_not_reached" not in codes
    codes = {caution.code for caution in binary(ended=cut, changes={"estimate": untold}).warnings}
    assert "theta_withheld" in codes
    assert "no_result" not in codes


def test_every_reason_to_stop_has_its_words() -> None:
    assert set(STOP_WORDS) == set(StopReason)


def test_the_score_of_a_target_is_not_called_that_of_the_bank() -> None:
    design = {"selection": {"criterion": CriterionName.V_OPTIMAL.value, "target": {"task-1": 1.0}}}
    assert "On the task task-1 it is" in " ".join(summary(uneven(design=design)))
    mixed = {"selection": {"target": {"task-1": 1.0, "task-2": 3.0}}}
    text = " ".join(summary(uneven(design=mixed)))
    assert "On task-1 (25\u00a0%) and task-2 (75\u00a0%) it is" in text


def test_the_sample_in_the_docs_is_current() -> None:
    """The report in docs/agents.md is the session of an agent that follows the page."""
    sample = (Path(__file__).parents[2] / "docs/sample-report.html").read_text()
    assert "release-12 on repo-issues" in Page(sample).text
    assert STYLE.strip() in sample
