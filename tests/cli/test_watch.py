"""Terminal output of sessions and rankings, during their run and at their end."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from app.cli.commands.demo import SideBySide
from app.cli.commands.rank import _Entry, _leading, _table
from app.cli.terminal.console import money
from app.cli.terminal.replies import Session
from app.cli.terminal.watch import _missed, announce, cost, further, report
from app.engine.prediction.sample_size import sample_interval
from app.records.fields import interval
from app.reports.figures import dollars
from tests.cli.shell import done, told

#: A session as the API returns it, with other figures.
SESSION: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "golden/session.json").read_text()
)
SESSION["headline"] |= {
    "examinee": "my-model",
    "score": 0.6,
    "interval": interval(0.5, 0.7),
    "better_than": 0.92,
}
SESSION |= {
    "estimate": SESSION["estimate"] | {"theta": 0.4, "se": 0.2, "interval": interval(0.008, 0.792)},
    "score": SESSION["score"] | {"interval": interval(0.5, 0.7)},
    "progress": SESSION["progress"] | {"items": 20, "scored": 20},
    "outcomes": SESSION["outcomes"] | {"scored": 20},
    "usage": {"calls": 20, "tokens_in": 1, "tokens_out": 1, "usd": 0.0, "seconds": 1.0},
    "bank": SESSION["bank"] | {"provisional": False},
    "person_fit": None,
    "design": {"stopping": {"max_items": 20}},
    "stops_when": "Stops at 20 items asked.",
}


UNPARSED = {
    "outcomes": {"scored": 17, "unparsed": 3},
    "unparsed": {"policy": "wrong", "when_calibrated": "wrong"},
}
NO_RESULT: dict[str, Any] = {
    "score": None,
    "headline": None,
    "estimate": {
        **dict.fromkeys(("theta", "se", "interval")),
        "reason": "Needs at least 5 scored answers, has 0.",
    },
    "progress": {"scored": 0},
    "outcomes": {"scored": 0, "unparsed": 20},
}


def estimated(ends: list[float], raw: list[float] | None = None) -> dict[str, Any]:
    return {"estimate": {"interval": interval(*ends), "interval_raw": raw and interval(*raw)}}


@pytest.mark.parametrize(
    ("changes", "shown", "hidden"),
    [
        ({}, [], ["marking", "the interval is", "quarantined", "rests on", "without parameters"]),
        (UNPARSED, ["unparseable 3, counted as wrong"], ["kept out"]),
        (
            {
                **UNPARSED,
                "progress": {"items": 22},
                "outcomes": {"scored": 17, "unparsed": 3, "refused": 2},
                "score": {"nonresponse": 2 / 22},
            },
            [
                "2 refused (kept out of the estimate)",
                "unparseable 3, counted as wrong",
                "allows for the 9 % without a score",
            ],
            [],
        ),
        (
            NO_RESULT,
            ["score none. Needs at least 5 scored answers, has 0."],
            ["theta", "predicted score"],
        ),
        (estimated([0.008, 0.792], [0.008, 0.792]), [], ["the interval is"]),
        (estimated([0.015, 0.78]), [], ["the interval is"]),
        (estimated([-0.4, 1.2], [0.008, 0.792]), ["wider than 1.96"], []),
        (estimated([0.2, 0.6], [0.008, 0.792]), ["narrower than 1.96"], []),
        (estimated([-0.1, 0.7]), ["not symmetric"], []),
        (
            {
                "profile": {
                    "abilities": [
                        {"name": name, "value": 0.5, "se": 0.2, "above": above}
                        for name, above in (("general", 0.7), ("dimension_1", None))
                    ],
                    "tasks": [],
                }
            },
            [
                "general +0.50, SE 0.20: better than 70 % of the reference models",
                "dimension 1 +0.50, SE 0.20 ",
            ],
            ["dimension 1 +0.50, SE 0.20:"],
        ),
        ({"bank": {"n_never_asked": 3}}, ["3 faulty questions are never asked"], []),
        (
            {"bank": {"n_never_asked": 3, "n_uncalibrated": 40}},
            ["excludes 40 uncalibrated questions"],
            ["whole bank"],
        ),
        ({"status": "failed"}, ["failed partial results"], []),
        # As few answers against the difficulties as of a model with nothing right.
        (
            {"person_fit": {"flagged": True, "inversions": {"observed": 0.0, "expected": 3.0}}},
            [],
            ["do not fit"],
        ),
        (
            {"person_fit": {"flagged": True, "inversions": {"observed": 9.0, "expected": 3.0}}},
            ["do not fit this ability: 9 pairs"],
            [],
        ),
        (
            {"usage": {"judge": {"calls": 20, "tokens_in": 9, "tokens_out": 9, "usd": 0.02}}},
            ["marking 20 calls of a judge, $0.0200"],
            [],
        ),
        ({"stop_reason": None, "stop_detail": None}, [], ["stopped by"]),
        (
            {"headline": None, "score": None, "progress": {"right": None, "mean": 0.625}},
            ["mean score 0.62 over 20 answers"],
            [],
        ),
    ],
)
def test_a_report_shows_what_matters_for_its_session(
    changes: dict[str, Any],
    shown: list[str],
    hidden: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    session = copy.deepcopy(SESSION)
    for part, value in changes.items():
        is_part = isinstance(value, dict) and session[part] is not None
        session[part] = session[part] | value if is_part else value
    report(session)
    text = " ".join(capsys.readouterr().out.split())
    assert [words for words in shown if words not in text] == []
    assert [words for words in hidden if words in text] == []


def test_the_stopping_rule_is_shown_before_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    announce(SESSION)
    assert capsys.readouterr().err.strip() == "Stops at 20 items asked."
    caution = "Answers that nobody can read are left out here."
    announce(SESSION | {"unparsed": {**SESSION["unparsed"], "caution": caution}})
    assert caution in capsys.readouterr().err


def test_a_failure_is_left_to_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    report(copy.deepcopy(SESSION) | {"status": "failed"}, error_follows=True)
    assert "stopped by" not in capsys.readouterr().out


def test_the_evidence_for_trust_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    session = copy.deepcopy(SESSION)
    session["asked"]["caution"] = "Another scorer is used."
    report(session)
    assert capsys.readouterr().out.count("Another scorer is used.") == 1
    session["headline"]["trust"] = {"level": "fair", "reason": "Another scorer is used."}
    report(session)
    assert capsys.readouterr().out.count("Another scorer is used.") == 1


def test_the_headline_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    report(copy.deepcopy(SESSION))
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "my-model on demo: 60.0 %  (95 % interval 50.0 to 70.0)"


def test_without_scored_answers_more_questions_are_not_suggested() -> None:
    outcomes = {"scored": 31, "refused": 0, "unparsed": 19, "error": 0, "truncated": 0}
    told = SESSION | {
        "design": {"stopping": {"score_margin": 0.04}},
        "progress": {"items": 50, "scored": 31},
        "outcomes": outcomes,
    }
    missed = _missed(Session.model_validate(told))
    assert missed is not None
    assert "38 % of the answers have no score" in missed
    assert "extend" not in missed
    headline = SESSION["headline"] | {"interval": {"lo": 0.4, "hi": 0.4802, "level": 0.95}}
    near = _missed(Session.model_validate(told | {"headline": headline}))
    assert str(near).startswith("±4.0 points, just over ±4: ")


def test_no_more_questions_are_suggested_than_may_be_asked() -> None:
    asked = {
        "design": {"stopping": {"score_margin": 0.04}},
        "progress": {"items": 20, "scored": 20},
        "headline": SESSION["headline"] | {"n_askable": 26},
    }
    missed = _missed(Session.model_validate(SESSION | asked))
    assert missed == "±10.0 points, not ±4: the 26 questions that may be asked do not suffice"


def test_half_a_margin_is_advised_with_the_questions_that_it_takes() -> None:
    asked = SESSION["progress"]["items"]
    ended = {"stop_reason": "score_margin", "design": {"stopping": {"score_margin": 0.1}}}
    told = further(Session.model_validate(SESSION | ended))
    n_items = SESSION["headline"]["n_items"]
    # A quarter of the variance: that of n questions of N is proportional to N / n - 1.
    most = math.ceil(n_items / (1 + (n_items / asked - 1) / 4))
    assert told == f"sextant sessions extend {SESSION['id']} --margin 5 --max-items {most}"
    of_tags = {"headline": SESSION["headline"] | {"n_items": asked - 5}}
    told = further(Session.model_validate(SESSION | ended | of_tags))
    assert told == f"sextant sessions extend {SESSION['id']} --margin 5 --max-items {2 * asked}"
    finer = {"headline": SESSION["headline"] | {"interval": interval(0.58, 0.62)}}
    assert " --margin 1 " in str(further(Session.model_validate(SESSION | ended | finer)))
    for over in (
        {"nothing_to_ask": "All were asked."},
        {"stop_reason": "time_limit"},
        # An extension would ask again what failed, and a policy's test without end.
        {"stop_reason": "bank_exhausted"},
        {"stop_reason": "max_items", "progress": {"items": n_items, "scored": n_items - 1}},
    ):
        assert further(Session.model_validate(SESSION | ended | over)) is None


def test_a_session_shows_its_tokens() -> None:
    """A budget of a gate would not notice a server that reports no tokens."""
    with pytest.raises(ValidationError, match="tokens_in"):
        Session.model_validate(SESSION | {"usage": {"usd": 0.0, "calls": 1, "seconds": 1.0}})


def updated(items: int, mean: float, score: tuple[float, float, float] | None) -> dict[str, Any]:
    told = score and {"value": score[0], "interval": interval(*score[1:])}
    return {
        "estimate": {"theta": None, "se": None, "interval": None},
        "score": told,
        "progress": {"items": items, "scored": items, "mean": mean, "expected_items": None},
        "usage": {"usd": 0.0},
    }


def test_the_equivalent_number_of_random_questions_is_shown() -> None:
    shown = SideBySide(n_items=360)
    shown.take("chosen", "estimate.updated", updated(4, 0.5, None))
    assert shown.verdict() is None
    shown.take("chosen", "estimate.updated", updated(20, 0.5, (0.7, 0.58, 0.82)))
    lines = [
        shown.take("random", "estimate.updated", updated(n, 0.7, (0.7, 0.69, 0.71)))
        for n in range(1, 61)
    ]
    lo, hi = sample_interval(0.7, 20, 360)
    assert [line for line in lines if line][1] == (
        f"20 random questions: score 70.0 %, {100 * lo:.1f} % to {100 * hi:.1f} %"
    )
    needed = next(n for n in range(1, 61) if _width(n) <= 0.82 - 0.58)
    assert shown.verdict() == (
        "The same model beside it, by the mean of random questions: it took "
        f"{needed} to be as exact as with these 20."
    )


@pytest.mark.usefixtures("own_database")
def test_the_demo_leaves_one_model_on_the_leaderboard() -> None:
    assert "The same model beside it" in done("demo").stdout
    assert len(told("leaderboard", "demo")["data"]) == 1


def test_random_questions_never_as_exact_are_shown_with_their_error() -> None:
    shown = SideBySide(n_items=360)
    shown.take("chosen", "estimate.updated", updated(20, 0.5, (0.7, 0.65, 0.75)))
    shown.take("random", "estimate.updated", updated(60, 0.7, None))
    times = f"{_width(60) / 0.1:.1f}"
    assert f"after 60 the interval is {times} times as wide as with 20." in str(shown.verdict())


def _width(n: int) -> float:
    lo, hi = sample_interval(0.7, n, 360)
    return hi - lo


def test_a_table_shows_both_intervals_and_reads_older_events() -> None:
    entry: dict[str, Any] = {
        "rank_lo": 1,
        "rank_hi": 1,
        "name": "large",
        "model": "m",
        "theta": 2.5,
        "items": 20,
        "scored": 20,
        "usd": None,
    }
    score = {"value": 0.7, "interval": interval(0.61, 0.78)}
    known = entry | {"interval": interval(1.4, 2.6), "score": score}
    table = _table([_Entry.model_validate(each) for each in (known, entry)])
    assert list(table.columns[3].cells) == ["61.0 % to 78.0 %", "-"]
    assert list(table.columns[5].cells) == ["+1.40 to +2.60", "-"]


def test_a_cost_is_written_alike_everywhere() -> None:
    free = _Entry(rank_lo=1, rank_hi=1, model="m", theta=None, items=0, scored=0, usd=0.0)
    assert {*_table([free]).columns[-1].cells, money(0.0), cost(0.0), dollars(0.0)} == {"$0.00"}


def test_a_member_without_a_result_leads_no_other() -> None:
    nobody: dict[str, Any] = {"rank_lo": 1, "rank_hi": 2, "items": 0, "scored": 0, "usd": None}
    none = _Entry(model="tiny", theta=None, **nobody)
    assert _leading([none, _Entry(model="large", theta=-2.0, **nobody)]) == "large"
    assert _leading([none]) == "no result yet"
    withheld = {"theta": None, "score": {"value": 0.5, "interval": None}}
    assert _leading([_Entry.model_validate({"model": "m", **withheld, **nobody})]) == "m"
