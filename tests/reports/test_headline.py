"""The headline of a result: its lines, and the level of trust."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter

from app.api.schemas.sessions import SessionBrief
from app.demo.scripted_model import ScriptedModel
from app.records.fields import ends, interval
from app.records.figures import EstimateFigures
from app.records.sessions import SessionRecord
from app.reports.figures import Headline, dollars, headline_lines, lost_answers, missed_margin
from app.reports.headline import headline_of
from app.reports.namesakes import distinct_names
from app.services.container import Services
from app.services.visibility import View
from tests.services import sessions
from tests.services.sessions import by_hand
from tests.values import not_none

HEADLINE: dict[str, Any] = {
    "examinee": "my-model",
    "bank": "gsm8k",
    "score": 0.735,
    "interval": {"lo": 0.694, "hi": 0.772, "level": 0.95},
    "answers": "15 of 20 right",
    "asked": 20,
    "n_items": 1298,
    "n_askable": 1298,
    "equivalent_random_items": 491,
    "usd": 0.0004,
    "usd_all": 0.026,
    "trust": {"level": "good", "reason": "All is well."},
    "better_than": 0.92,
    "recent": {"since": "2026-03-01", "agents": 30, "better_than": 0.6},
    "theta": 1.02,
    "se": 0.18,
    "theta_reason": None,
}


read = TypeAdapter(Headline).validate_python


@pytest.mark.parametrize(
    ("usd", "said"),
    [(0.0, "$0.00"), (0.0000123, "$0.000012"), (0.0004, "$0.0004"), (1234.5, "$1,234.50")],
)
def test_small_amounts_keep_their_digits(usd: float, said: str) -> None:
    assert dollars(usd) == said


def test_four_lines_summarise_a_result() -> None:
    assert headline_lines(read(HEADLINE)) == [
        "my-model on gsm8k: 73.5 %  (95 % interval 69.4 to 77.2)",
        "from 20 of 1,298 questions (15 of 20 right): as exact as about 490 random questions; "
        "1.5 % of the calls, $0.0004 instead of $0.0260",
        "trust: good. All is well.",
        "better than 92 % of the reference models; better than 60 % of the 30 "
        "agents since 2026-03-01; ability (theta) +1.02, SE 0.18",
    ]


def test_unknown_values_are_left_out() -> None:
    unknown = dict.fromkeys(
        ("equivalent_random_items", "usd", "usd_all", "better_than", "recent", "theta")
    )
    reason = {"theta_reason": "Theta is withheld: few models."}
    assert headline_lines(read({**HEADLINE, **unknown, **reason}))[1:] == [
        "from 20 of 1,298 questions (15 of 20 right): 1.5 % of the calls",
        "trust: good. All is well.",
        "ability (theta): Theta is withheld: few models.",
    ]


def test_a_fully_asked_bank_gives_a_known_score() -> None:
    known = {**HEADLINE, "interval": None, "asked": 12, "n_items": 12, "n_askable": 12}
    first, second, *_ = headline_lines(read({**known, "answers": "7 of 12 right", "score": 7 / 12}))
    assert first == "my-model on gsm8k: 58.3 %"
    assert second == "from 12 of 12 questions (7 of 12 right): all questions were asked"


def test_questions_of_other_tags_are_not_counted_among_those_of_the_score() -> None:
    known = {**HEADLINE, "interval": None, "asked": 30, "n_items": 20, "n_askable": 20}
    assert headline_lines(read({**known, "answers": "24 of 30 right"}))[1] == (
        "from 30 questions for the score of 20 questions (24 of 30 right): all questions were asked"
    )
    # Some of the score's questions are left, but nobody knows how many others it takes.
    short = read({**HEADLINE, "asked": 20, "n_items": 20, "n_askable": 20})
    lost = lost_answers({}, closed=20, scored=20, no_result=False)
    assert missed_margin(0.001, short, lost, "ses_1") == "±3.9 points, not ±0.1"


@pytest.mark.parametrize(("n_items", "shown"), [(300, "99.7"), (3000, "99.9")])
def test_nearly_all_calls_are_not_rounded_to_all(n_items: int, shown: str) -> None:
    numbers = {"asked": n_items - 1, "n_items": n_items, "n_askable": n_items, "usd": None}
    assert headline_lines(read(HEADLINE | numbers))[1].endswith(f"; {shown} % of the calls")


def test_a_test_that_asked_all_that_may_be_asked_saved_no_call() -> None:
    asked = {**HEADLINE, "asked": 26, "n_items": 36, "n_askable": 26, "usd": 2.6, "usd_all": 2.6}
    assert headline_lines(read(asked))[1] == (
        "from 26 of 36 questions (15 of 20 right): as exact as about 490 random questions"
    )


@pytest.mark.parametrize(
    ("usd", "cache", "judge", "all_of_it"),
    [
        (1.6, None, None, 72.0),
        (0.0, {"calls": 8, "usd": 0.8}, None, 36.0),
        (0.0, {"calls": 8, "usd": None}, None, None),
        (0.0, {"calls": 16, "usd": 0.8}, {"calls": 0, "usd": 0.0}, None),
        (None, None, None, None),
    ],
)
def test_asking_all_costs_the_price_of_an_answer_without_the_cache(
    ended: SessionRecord, usd: float | None, cache: Any, judge: Any, all_of_it: float | None
) -> None:
    usage: Any = {**ended.summary["usage"], "usd": usd, "cache": cache, "judge": judge}
    headline = not_none(headline_of(replace(ended, summary={**ended.summary, "usage": usage})))
    assert (headline.n_items, headline.n_askable) == (360, 360)
    assert headline.usd_all == (all_of_it and pytest.approx(all_of_it))


def test_trial_questions_make_the_other_questions_no_dearer(ended: SessionRecord) -> None:
    usage: Any = {**ended.summary["usage"], "usd": 1.6}
    tried: Any = {"items": 2}  # besides the eight of the test
    summary: Any = {**ended.summary, "usage": usage, "pretest": tried}
    headline = not_none(headline_of(replace(ended, summary=summary)))
    assert headline.usd_all == pytest.approx(1.6 / 10 * 360)


@pytest.fixture
async def ended(services: Services) -> SessionRecord:
    return await answered(services)


async def test_a_score_of_a_task_is_about_its_questions(services: Services) -> None:
    version = await services.versions.load((await answered(services)).bank_version_id)
    task = next(tag for tag, n in version.tag_counts.items() if 8 < n < 180)
    record = await answered(services, selection={"target": {task: 1.0}})
    headline = not_none(headline_of(record))
    assert headline.n_items == headline.n_askable == version.tag_counts[task]
    assert headline.bank == f"demo ({task})" == SessionBrief.of(record, View(is_whole=True)).bank
    mixed: Any = {**not_none(record.summary["score"]), "target": {"all": 0.5, task: 0.5}}
    of_both = replace(record, summary={**record.summary, "score": mixed})
    assert not_none(headline_of(of_both)).bank == f"demo (all, {task})"


async def answered(
    services: Services, right: Mapping[str, bool] | None = None, **design: Any
) -> SessionRecord:
    """Return an ended test; by default every other answer is right."""
    begun = await by_hand(services, {"stopping": {"max_items": 8}, **design})
    if right is None:
        return await sessions.answered(services, begun)
    return await sessions.answered(services, begun, lambda at: {"score": float(right[at.item.key])})


PLACED = {"standing": "within", "agrees": True, "percentile": 50.0}
MAXIMUM_INFORMATION = {"criterion": "maximum_information"}


def trust_of(record: SessionRecord, **standing: Any) -> tuple[str, str]:
    """Return the trust in a result with these answers and this place among reference models."""
    placed: Any = {"percentile": 50.0, **standing} if standing else None
    estimate: EstimateFigures = {**record.summary["estimate"], "extrapolation": placed}
    headline = headline_of(replace(record, summary={**record.summary, "estimate": estimate}))
    assert headline is not None
    return headline.trust.level, headline.trust.reason


async def test_a_headline_has_the_figures_of_its_session(ended: SessionRecord) -> None:
    headline, score = not_none(headline_of(ended)), not_none(ended.summary["score"])
    assert (headline.score, headline.interval) == (score["value"], score["interval"])
    assert (headline.asked, headline.answers) == (8, "4 of 8 right")
    assert headline.theta == ended.summary["estimate"]["theta"]
    assert len(headline_lines(headline)) == 4
    assert headline_of(replace(ended, summary={**ended.summary, "score": None})) is None


async def test_trust_depends_on_the_most_important_reason(ended: SessionRecord) -> None:
    figures = ended.summary
    assert figures["score"] is not None

    def with_figures(**changes: Any) -> SessionRecord:
        return replace(ended, summary={**figures, **changes})  # type: ignore[typeddict-item]  # any field

    close = {**figures["score"], "interval": {"lo": 0.42, "hi": 0.6, "level": 0.95}}
    within = {"standing": "within", "agrees": True}
    assert trust_of(with_figures(score=close), **within)[0] == "good"
    for standing in ("above", "below", "unknown"):
        assert trust_of(with_figures(score=close), standing=standing, agrees=True)[0] == "fair"
    assert trust_of(with_figures(score=close), standing="within", agrees=False)[0] == "fair"
    curves = with_figures(score={**figures["score"], "method": "p-irt"})
    assert trust_of(curves, standing="above", agrees=True)[0] == "poor"
    for_theta = replace(ended, design={**ended.design, "selection": MAXIMUM_INFORMATION})
    unlike = {"flagged": True, "lz": None, "p_value": None}
    rough = {**close, "interval": {"lo": 0.3, "hi": 0.6, "level": 0.95}}
    some = with_figures(
        score=close,
        outcomes={**figures["outcomes"], "refused": 1},
        progress={**figures["progress"], "items": 9},
    )
    mute = with_figures(outcomes={**figures["outcomes"], "scored": 5, "unparsed": 3})
    for record, place, level, reason in (
        (ended, within, "poor", "The score is known only to ±27.4 points."),
        (ended, {}, "poor", "The score is known only to ±27.4 points."),
        (with_figures(score=rough), within, "fair", "The score is known only to ±15.0 points."),
        (with_figures(score=rough), {}, "fair",
         "Too few reference models to place the model: mostly sampled questions count."),
        (for_theta, {}, "poor", "Too few reference models to place the model, and a test for "
         "ability samples no question: run one for the score."),
        (with_figures(score=close, person_fit=unlike), within, "fair",
         "The pattern of the answers is unlike that of other models."),
        (replace(ended, status="cancelled"), within, "poor",
         "The test was cancelled: the score rests on the answers until then."),
        (replace(mute, status="failed"), within, "poor",
         "38 % of the answers could not be parsed, and count as wrong: read some of them."),
        (some, within, "fair", "11 % of the answers have no score."),
        (mute, {"standing": "below", "agrees": True}, "poor",
         "38 % of the answers could not be parsed, and count as wrong: read some of them."),
    ):  # fmt: skip
        assert trust_of(record, **place) == (level, reason)


async def test_trust_does_not_tell_of_a_withheld_scorer(ended: SessionRecord) -> None:
    ways: Any = {"asked": {"scorer": "a"}, "asked_when_calibrated": {"scorer": "b"}}
    estimate: Any = {**ended.summary["estimate"], "extrapolation": PLACED}
    score: Any = {**not_none(ended.summary["score"]), "interval": interval(0.42, 0.6)}
    record = replace(
        ended,
        withheld=True,
        provenance={**ended.provenance, **ways},
        summary={**ended.summary, "estimate": estimate, "score": score},
    )
    for is_whole, level in ((True, "fair"), (False, "good")):
        view = View(is_whole=is_whole)
        assert SessionBrief.of(record, view).trust == level
        assert not_none(headline_of(view.session(record))).trust.level == level


async def test_the_demo_ends_with_a_result_that_is_trusted_and_right(services: Services) -> None:
    model, stopping = ScriptedModel(theta=0.8, seed=7), {"score_margin": 0.08, "max_items": 60}
    record = await answered(services, model.right, stopping=stopping, concurrency=1)
    headline = not_none(headline_of(record))
    assert headline.trust.level == "good"
    assert 0.5 < not_none(headline.better_than) < 0.9
    truth = sum(model.right.values()) / len(model.right)
    lo, hi = map(not_none, ends(headline.interval))
    assert lo < truth < hi
    assert not_none(headline.equivalent_random_items) > 1.5 * headline.asked


async def test_a_report_says_what_would_reach_the_margin(services: Services) -> None:
    record = await answered(services, stopping={"score_margin": 0.04, "max_items": 8})
    report = await services.session_reports.report(record.id, reveal=True)
    (told,) = (one.text for one in report.warnings if one.code == "precision_not_reached")
    assert "±27.4 points, not ±4: about" in told
    assert f"questions would do (sextant sessions extend {record.id} --max-items" in told


def test_banks_of_one_name_are_told_apart_by_their_ids() -> None:
    told = distinct_names({"bnk_1": "exam", "bnk_2": "demo", "bnk_3": "exam"})
    assert told == {"bnk_1": "exam (bnk_1)", "bnk_2": "demo", "bnk_3": "exam (bnk_3)"}
