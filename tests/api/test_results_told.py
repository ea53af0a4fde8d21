"""Results of sessions: when numbers are given, what they count, and when a test ends."""

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from app.records.figures import ScoreFigures
from app.services.container import Services
from app.services.results.measured import left_unmarked
from tests.api import calls
from tests.api.calls import edited, got, posted
from tests.api.conftest import Client
from tests.services.sessions import until

pytestmark = pytest.mark.usefixtures("services")

#: 40 answers of which 2 have a score.
FEW: dict[int, float | str] = {
    **dict.fromkeys(range(1, 41), "unparsed"),
    3: 1.0,
    20: "error",
    30: 0.0,
}
ALL = {"se": None, "min_items": 1, "max_items": 40}


def test_older_results_are_shown_with_their_missing_fields() -> None:
    old = {"value": 0.5, "interval": None, "method": "p-irt"}
    later = {"equivalent_random_items": None, "interval_raw": None, "target": None}
    told = TypeAdapter(ScoreFigures).validate_python({**old, "recent": None})
    assert told == {**old, **later, "nonresponse": 0.0}


async def answered(
    client: Client, answers: dict[int, float | str], **changes: Any
) -> dict[str, Any]:
    """Answer a manual session by step until it ends or no answers are left."""
    body = {
        "mode": "manual",
        "bank": "demo",
        "seed": 1,
        "stopping": {**ALL, "max_items": len(answers)},
        "failures": {"max_share": 1.0},
        **changes,
    }
    created = await posted(client, "/v1/sessions", body)
    said = [{"outcome" if isinstance(one, str) else "score": one} for one in answers.values()]
    return await calls.answered(client, created["id"], *said)


def nothing_told(session: dict[str, Any]) -> bool:
    numbers = [session["estimate"][name] for name in ("theta", "se", "interval", "interval_raw")]
    return [*numbers, session["score"], session["profile"]] == [None] * 6


async def test_two_scored_answers_of_forty_give_no_result(client: Client) -> None:
    few = await answered(client, FEW)
    full = await answered(client, dict.fromkeys(range(1, 13), 1.0))
    path = f"/v1/sessions/{few['id']}"

    assert (few["status"], few["progress"]["items"]) == ("completed", 40)
    assert few["progress"]["scored"] == 2
    assert nothing_told(few)
    reason = few["estimate"]["reason"]
    assert reason == "Needs at least 5 scored answers, has 2."
    assert full["estimate"]["reason"] is None
    assert full["estimate"]["theta"] is not None

    for metric in ("theta", "score"):
        asked = {"session_id": few["id"], "metric": metric, "threshold": 0.05}
        gate = await posted(client, "/v1/gates", asked)
        assert (gate["outcome"], gate["value"]) == ("inconclusive", None)
        assert reason in gate["detail"]

    pair = {"session_ids": [few["id"], full["id"]]}
    compared = await posted(client, "/v1/comparisons", pair)
    assert compared["theta"] is compared["score"] is compared["first"]["theta"] is None
    assert compared["first"]["common"] is compared["second"]["common"] is None
    # Of the items without a score, an extension asks only those that ended in an error again.
    assert [compared[side]["unasked"] for side in ("first", "second")] == [321, 348]
    assert compared["reason"] == f"Session {few['id']}: {reason}"

    report = await got(client, f"{path}/report")
    assert report["score"] is report["estimate"]["theta"] is None
    assert report["trace"] == []
    assert {item["theta"] for item in report["items"]} == {None}
    assert "no_result" in {caution["code"] for caution in report["warnings"]}
    page = (await client.get(f"{path}/report", params={"format": "html"})).text
    assert f"There is no score. {reason}" in page
    assert "predicted score on" not in page
    assert ", SE " not in page

    given = await client.get(f"{path}/export", params={"format": "eee"})
    assert json.loads(given.content)["evaluation_results"] == []


async def test_a_gate_repeats_the_warnings_of_its_session(client: Client) -> None:
    marked: dict[int, float | str] = dict.fromkeys(range(1, 13), 1.0)
    session = await answered(client, marked | dict.fromkeys(range(13, 19), "unparsed"))
    for metric, room in (
        ("theta", "ability and its interval rest on the others alone"),
        ("score", "the lower end of the score's interval allows for them"),
    ):
        asked = {"session_id": session["id"], "metric": metric, "threshold": 0.05}
        gate = await posted(client, "/v1/gates", asked)

        assert gate["outcome"] == "go"
        # The score rests on sampled questions, whatever the parameters.
        assert ("The bank's parameters are a guess" in gate["detail"]) == (metric == "theta")
        assert f"33 % of the answers have no score: {room}." in gate["detail"]


async def test_an_endpoint_without_a_result_has_no_rank(client: Client, working: Services) -> None:
    for name, most in (("short", 3), ("long", 8)):
        body = {
            "bank": "demo",
            "seed": 1,
            "endpoint": {"name": name, "kind": "scripted", "model": name, "options": {"theta": 1}},
            "stopping": {"se": None, "min_items": 1, "max_items": most},
        }
        await until(working, (await posted(client, "/v1/sessions", body))["id"])

    board = await got(client, "/v1/banks/demo/leaderboard")

    assert [entry["endpoint"]["name"] for entry in board["data"]] == ["long"]
    assert [entry["rank_hi"] for entry in board["data"]] == [1]
    (left_out,) = board["unranked"]
    assert left_out["endpoint"]["name"] == "short"
    assert left_out["reason"].startswith("Needs at least 5 scored answers, has 3")


async def test_unscored_answers_widen_the_score(client: Client, services: Services) -> None:
    scores: dict[int, float | str] = {step: float(step % 2) for step in range(1, 13)}
    full = await answered(client, scores)
    holes = await answered(client, {**scores, 13: "refused", 14: "error", 15: "truncated"})

    told, open_ = full["score"], holes["score"]
    assert told["nonresponse"] == 0
    assert open_["nonresponse"] == pytest.approx(3 / 15)
    assert open_["value"] == pytest.approx(told["value"])
    lo = open_["interval"]["lo"]
    assert lo == pytest.approx(told["interval"]["lo"] * 12 / 15)
    report = await got(client, f"/v1/sessions/{holes['id']}/report")
    assert report["score"]["interval"]["lo"] == pytest.approx(lo)
    assert report["trace"][-1]["score_interval"]["lo"] == pytest.approx(lo)

    ranked = [await services.sessions.get(session["id"]) for session in (full, holes)]
    assert left_unmarked(ranked[:1], is_score=True) is None
    by_score, by_theta = (str(left_unmarked(ranked, is_score=by)) for by in (True, False))
    assert "no score in 1 of 2 sessions, most in that of" in by_score
    assert "(20 %): the lower ends of the scores' intervals" in by_score
    assert by_theta.endswith("(20 %): ability and rank rest on the other answers alone.")


async def test_a_session_without_any_parsed_answer_fails(client: Client) -> None:
    unread: dict[int, float | str] = dict.fromkeys(range(1, 41), "unparsed")
    asked = {"failures": {"max_share": 0.5}, "unparsed_policy": "wrong"}
    session = await answered(client, unread, **asked)
    assert (session["status"], session["progress"]["items"]) == ("failed", 20)
    assert "None of 20 answers could be parsed. Read some" in session["stop_detail"]
    short = await answered(client, dict.fromkeys(range(1, 7), "unparsed"), **asked)
    assert (short["status"], short["progress"]["items"]) == ("failed", 6)
    assert "None of 6 answers could be parsed; the last:" in short["stop_detail"]
    one = await answered(client, {**unread, 19: 1.0}, **asked)
    assert (one["status"], one["progress"]["items"]) == ("completed", 40)


async def version_with(client: Client, policy: str | None) -> str:
    """Create a bank whose parameters were made under this policy for unparseable answers."""
    items = [
        {"key": f"q{n}", "prompt": f"{n} + 1 = ?", "target": str(n + 1), "scorer": "numeric"}
        for n in range(12)
    ]
    name = f"sums-{policy}"
    await client.post("/v1/banks", json={"name": name})
    body = {
        "items": {"content": "\n".join(map(json.dumps, items)), "name": "items.jsonl"},
        "parameters": {
            "content": "item,a,b,c,d\n" + "".join(f"q{n},1,{n / 6 - 1},0,1\n" for n in range(12))
        },
        "unparsed_policy": policy,
    }
    made = await posted(client, f"/v1/banks/{name}/imports", body)
    assert made["version"]["knowledge"].get("unparsed_policy") == policy
    return name


async def test_a_session_counts_unparsed_answers_as_its_version_does(client: Client) -> None:
    bank = await version_with(client, "wrong")
    answers: dict[int, float | str] = {step: float(step % 2) for step in range(1, 11)}
    answers |= dict.fromkeys((2, 4, 6), "unparsed")

    alike = await answered(client, answers, bank=bank)
    other = await answered(client, answers, bank=bank, unparsed_policy="missing")

    assert alike["unparsed"] == {"policy": "wrong", "when_calibrated": "wrong", "caution": None}
    assert (alike["progress"]["scored"], alike["outcomes"]["unparsed"]) == (10, 3)
    assert alike["score"]["nonresponse"] == 0
    assert other["unparsed"]["policy"] == "missing"
    assert "does not compare" in other["unparsed"]["caution"]
    assert (other["progress"]["scored"], other["outcomes"]["unparsed"]) == (7, 3)
    reports = [await got(client, f"/v1/sessions/{one['id']}/report") for one in (alike, other)]
    codes = [{caution["code"] for caution in report["warnings"]} for report in reports]
    assert ["unparsed_differs" in found for found in codes] == [False, True]
    gates = [
        (await posted(client, "/v1/gates", {"session_id": one["id"], "threshold": 0.0}))
        for one in (alike, other)
    ]
    assert ["does not compare" in gate["detail"] for gate in gates] == [False, True]
    assert ["could not be parsed" in gate["detail"] for gate in gates] == [True, False]
    assert ["unmarked_answers" in found for found in codes] == [False, True]
    assert ["unparsed_as_wrong" in found for found in codes] == [True, False]
    said = [" ".join(report["summary"]) for report in reports]
    assert "3 of 10 answers could not be parsed and count as wrong." in said[0]
    assert "neither as right nor as wrong" not in said[0]
    assert "3 of 10 answers could not be scored" in said[1]

    given = await client.get(f"/v1/sessions/{alike['id']}/export", params={"format": "eee"})
    details = [
        result["score_details"]["details"]
        for result in json.loads(given.content)["evaluation_results"]
    ]
    assert details
    assert not [name for found in details for name in found if name.startswith("not_scored")]


async def test_the_next_version_keeps_the_policy(client: Client) -> None:
    bank = await version_with(client, "wrong")
    path = f"/v1/banks/{bank}/versions"
    for said, policy in (({}, "wrong"), ({"unparsed_policy": "missing"}, "missing")):
        version = await posted(client, path, {"from_version": "latest", **said})
        assert version["knowledge"]["unparsed_policy"] == policy


async def test_the_bank_decides_where_a_version_has_no_policy(client: Client) -> None:
    bank = await version_with(client, None)
    await edited(client, f"/v1/banks/{bank}", unparsed_policy="wrong")
    session = await answered(client, {1: "unparsed"}, bank=bank)
    assert session["unparsed"] == {"policy": "wrong", "when_calibrated": None, "caution": None}
    assert session["progress"]["scored"] == 1


async def test_a_response_set_stores_how_unparsed_answers_counted(client: Client) -> None:
    row = {"doc_id": 0, "resps": [["4"]], "doc_hash": "a", "exact_match": 1.0}
    table = {"name": "scores.csv", "content": "model,q1,q2\nm1,1,0\n"}
    samples = {
        "name": "m1/samples_sums_2026-11-20T10-00-00.jsonl",
        "content": json.dumps({**row, "metrics": ["exact_match"]}),
    }
    for name, file, said, policy in (
        ("table", table, None, None),
        ("table, wrong", table, "wrong", "wrong"),
        ("lm-eval", samples, None, "wrong"),
        ("lm-eval, missing", samples, "missing", "missing"),
    ):
        await posted(client, "/v1/response-sets", {"name": name})
        body = {"files": [file], **({} if said is None else {"unparsed_policy": said})}
        await posted(client, f"/v1/response-sets/{name}/imports", body)
        found = await got(client, f"/v1/response-sets/{name}")
        assert found["unparsed_policy"] == policy, name
