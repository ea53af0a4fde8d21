"""Comparisons, gates and leaderboards over HTTP, on finished sessions."""

from typing import Any

import pytest

from app.engine.inference.comparison import MeasuredScore, of_scores
from app.records.fields import ends, interval
from app.services.container import Services
from app.services.results.comparisons import _within
from app.services.results.measured import degrees_of
from tests.api import calls
from tests.api.calls import edited, got, listing, posted, problem_of
from tests.api.conftest import Client
from tests.services.sessions import until

PLAN = {"stopping": {"se": 0.4, "min_items": 4, "max_items": 40}}


async def measured(
    client: Client, services: Services, name: str, theta: float, **changes: Any
) -> dict[str, Any]:
    """Return a finished session of a simulated model."""
    session = {"bank": "demo", **PLAN, **changes}
    return await calls.measured(client, services, name, {"theta": theta}, **session)


async def test_two_sessions_compare_by_score_and_theta(client: Client, working: Services) -> None:
    strong = await measured(client, working, "strong", 2.0)
    weak = await measured(client, working, "weak", -2.0)
    other = await measured(client, working, "weak", -2.0, prompt={"system": "Be brief."})
    unlike = {"session_ids": [strong["id"], other["id"]]}
    caution = (await posted(client, "/v1/comparisons", unlike))["caution"]
    assert "were not asked alike: they differ in words around the questions" in caution
    assert "not asked alike" in (await got(client, "/v1/banks/demo/leaderboard"))["caution"]

    itself = {"session_ids": [strong["id"], strong["id"]]}
    await problem_of(client, "/v1/comparisons", itself, says="with itself", at="/session_ids/1")
    both = {"session_ids": [strong["id"], weak["id"]]}
    found = await posted(client, "/v1/comparisons", both, 200)
    assert (found["first"]["label"], found["second"]["label"]) == ("strong", "weak")
    assert (found["metric"], found["score"]["verdict"]) == ("score", "above")
    assert found["score"]["delta"] == pytest.approx(
        strong["score"]["value"] - weak["score"]["value"]
    )
    assert found["caution"].startswith("This bank was not cross-validated")
    answered = await listing(client, f"/v1/sessions/{strong['id']}/responses")
    times = sorted(one["latency_ms"] for one in answered)
    half = times[-(-len(times) // 2) - 1]
    assert found["first"]["latency_ms"]["p50"] == half <= found["first"]["latency_ms"]["p95"]
    (first, *_) = await listing(client, "/v1/banks/demo/leaderboard")
    assert first["latency_ms"] == strong["usage"]["latency_ms"] == found["first"]["latency_ms"]
    assert first["trust"] == strong["headline"]["trust"]
    cost = strong["usage"]["usd"]
    assert first["usd_per_item"] == (cost if cost is None else cost / strong["progress"]["items"])
    theta = found["theta"]
    assert theta["delta"] == pytest.approx(strong["estimate"]["theta"] - weak["estimate"]["theta"])
    assert theta["verdict"] == "above"
    assert theta["p_value"] < 0.01
    assert theta["items_to_decide"] == 0
    assert theta["interval"]["lo"] > 0
    answers = []
    for session in (strong, weak):
        rows = await listing(client, f"/v1/sessions/{session['id']}/responses")
        answers.append({row["item_id"]: row["score"] for row in rows})
    common = answers[0].keys() & answers[1].keys()
    # A grid that holds no posterior is not used for a new estimate.
    for copy in ("replay", "extend"):
        coarse = {"estimator": {"nodes": 3, "range": [-4, 4]}}
        path = f"/v1/sessions/{strong['id']}:{copy}"
        await problem_of(client, path, coarse, at="/estimator/range")
    assert found["n_common"] == len(common)
    if found["common"] is not None:
        differences = [answers[0][item] - answers[1][item] for item in common]
        assert found["common"]["delta"] == pytest.approx(sum(differences) / len(common))


def test_scores_by_sampled_questions_have_an_error_with_heavy_tails() -> None:
    found = {
        method: degrees_of({"value": 0.5, "interval": interval(0.4, 0.6), "method": method})
        for method in ("combined", "design", "score-model", "p-irt")
    }
    assert found == {"combined": 5.0, "design": 5.0, "score-model": None, "p-irt": None}


def test_items_to_decide_never_exceed_the_bank() -> None:
    one, other = (
        MeasuredScore(n_items=40, value=at, lo=at - 0.1, hi=at + 0.1) for at in (0.6, 0.601)
    )
    found = of_scores(one, other)
    assert found.items_to_decide is not None
    assert found.items_to_decide > 10_000
    assert _within(found, 10**9) == found
    told = [_within(found, left, instead) for left, instead in ((160, 160), (160, None), (0, 0))]
    assert [one and one.items_to_decide for one in told] == [160, None, None]


async def test_examinees_of_a_response_set_compare_without_theta(client: Client) -> None:
    await client.post("/v1/response-sets", json={"name": "recorded"})
    rows = "model," + ",".join(f"q{n}" for n in range(40)) + "\n"
    rows += "good," + ",".join("1" if n % 10 else "0" for n in range(40)) + "\n"
    rows += "bad," + ",".join("1" if n % 2 else "0" for n in range(40)) + "\n"
    files = {"files": [{"name": "s.csv", "content": rows}]}
    await posted(client, "/v1/response-sets/recorded/imports", files)
    body = {"response_set": "recorded", "examinees": ["good", "bad"]}

    found = await posted(client, "/v1/comparisons", body, 200)
    assert found["theta"] is None
    assert found["n_common"] == 40
    score = found["score"]
    assert (score["delta"], score["test"], score["verdict"]) == (0.4, "mcnemar_exact", "above")
    body["examinees"] = ["good", "nobody"]
    await problem_of(client, "/v1/comparisons", body, 404, "not_found")
    body["examinees"] = ["good", "good"]
    await problem_of(client, "/v1/comparisons", body, says="with itself", at="/examinees/1")


async def test_thetas_on_other_scales_stay_apart(client: Client, working: Services) -> None:
    old = await measured(client, working, "strong", 2.0)
    rows = await listing(client, "/v1/banks/demo/versions/latest/items?limit=100")

    async def version(slope: float) -> None:
        parameters = "item,a,b,c,d\n" + "".join(
            f"{row['key']},{slope},{n / 50 - 1},0,1\n" for n, row in enumerate(rows)
        )
        await posted(client, "/v1/banks/demo/imports", {"parameters": {"content": parameters}})

    await version(1.0)
    new = await measured(client, working, "weak", -1.0)

    both = {"session_ids": [old["id"], new["id"]]}
    path, code = "/v1/comparisons", "scale_mismatch"
    refused = await problem_of(client, path, both, 422, code, at="/session_ids")
    assert refused["detail"].startswith("The scores are of different questions. The abilities ")
    assert "version 1 of 'demo' and version 2 of 'demo': link" in refused["detail"]
    board = await got(client, "/v1/banks/demo/leaderboard")
    assert [entry["session_id"] for entry in board["data"]] == [new["id"]]
    (other,) = board["other_scales"]
    assert [entry["session_id"] for entry in other["data"]] == [old["id"]]
    assert other["scale"] != board["scale"]

    await version(1.2)  # the same questions, on a third scale
    newest = await measured(client, working, "strong", 2.0)
    both = {"session_ids": [newest["id"], new["id"]]}
    found = await posted(client, "/v1/comparisons", both, 200)
    delta = newest["score"]["value"] - new["score"]["value"]
    assert found["score"]["delta"] == pytest.approx(delta)
    assert found["theta"] is found["scale"] is None
    assert "The abilities are on different scales, of version 3 of 'demo'" in found["caution"]


DECIDED: list[tuple[float, str, str]] = [
    (0.0, "above", "go"),
    (0.0, "below", "no_go"),
    (4.0, "above", "no_go"),
]


async def test_a_gate_of_an_ended_session_is_decided(client: Client, working: Services) -> None:
    session = await measured(client, working, "strong", 2.0)
    for threshold, direction, outcome in DECIDED:
        body = {"session_id": session["id"], "threshold": threshold, "direction": direction}
        made = await client.post("/v1/gates", json={**body, "metric": "theta"})
        gate = made.json()
        assert (gate["status"], gate["outcome"]) == ("decided", outcome)
        assert (gate["margin"] > 0) == (outcome == "go")
        assert gate["interval"]["lo"] < session["estimate"]["theta"] < gate["interval"]["hi"]
        assert await got(client, made.headers["Location"]) == gate


async def test_a_gate_near_the_value_is_inconclusive_and_a_longer_session_may_tell(
    client: Client, working: Services
) -> None:
    session = await measured(client, working, "strong", 2.0)
    near = session["estimate"]["theta"] - 0.01
    body = {"session_id": session["id"], "metric": "theta", "threshold": near}
    gate = await posted(client, "/v1/gates", body)
    assert gate["outcome"] == "inconclusive"
    assert 0.5 <= gate["p_beyond"] < 0.6
    longer = await posted(
        client, f"/v1/sessions/{session['id']}:extend", {"stopping": {"se": 0.35}}
    )
    await until(working, longer["id"])
    both = {"session_ids": [session["id"], longer["id"]]}
    compared = await posted(client, "/v1/comparisons", both)
    assert "share answers" in compared["caution"]
    assert (compared["score"]["verdict"], compared["score"]["items_to_decide"]) == (
        "undecided",
        None,
    )
    again = {**body, "session_id": longer["id"]}
    looked = await posted(client, "/v1/gates", again)
    assert "95 % interval, adjusted for 2 looks" in looked["detail"]
    extended = await got(client, f"/v1/sessions/{longer['id']}")
    lo, hi = ends(extended["estimate"]["interval"])
    assert lo is not None
    assert hi is not None
    assert looked["interval"]["lo"] < lo < hi < looked["interval"]["hi"]
    score = session["score"]["value"]
    body = {"session_id": session["id"], "metric": "score", "threshold": round(score - 0.001, 6)}
    assert (await posted(client, "/v1/gates", body))["outcome"] == "inconclusive"


async def test_a_gate_starts_a_session_until_decided(client: Client, working: Services) -> None:
    endpoint = {"kind": "scripted", "model": "m", "options": {"theta": 2.0, "seed": 3}}
    session = {"bank": "demo", "endpoint": endpoint, "seed": 5, "stopping": {"max_items": 100}}

    asked = {"session": session, "metric": "theta", "threshold": -1.0}
    gate = await posted(client, "/v1/gates", asked)
    assert gate["status"] in ("pending", "decided")
    await until(working, gate["session_id"])

    decided = await got(client, f"/v1/gates/{gate['id']}")
    ended = await got(client, f"/v1/sessions/{gate['session_id']}")
    assert decided["outcome"] == "go"
    assert ended["stop_reason"] in ("decision_reached", "se_target")
    assert ended["design"]["stopping"]["cut_score"]["theta"] == -1.0


async def test_what_cannot_be_gated_or_compared_is_a_clear_problem(client: Client) -> None:
    nobody = "ses_00000000000000000000000000"
    await problem_of(client, "/v1/gates", {"threshold": 0.0})
    await problem_of(client, "/v1/gates", {"session_id": nobody, "threshold": 0.0}, 404)
    for mark, words in (("score", "a share from 0 to 1, got 60"), ("theta", "50 logits, got 60")):
        far = {"session_id": nobody, "threshold": 60, "metric": mark}
        await problem_of(client, "/v1/gates", far, says=words)
    for ids in ({}, {"session_ids": [nobody]}, {"session_ids": [nobody] * 2}):
        await problem_of(client, "/v1/comparisons", ids)
    await problem_of(client, "/v1/comparisons", {"response_set": "x"})
    assert (await client.get("/v1/banks/nothing/leaderboard")).status_code == 404


async def test_a_running_session_cannot_be_compared(client: Client, working: Services) -> None:
    made = await posted(client, "/v1/sessions", {"mode": "manual", "bank": "demo"})
    ended = await measured(client, working, "strong", 2.0)
    body = {"session_ids": [made["id"], ended["id"]]}
    says = "wait for its end, or cancel it"
    await problem_of(client, "/v1/comparisons", body, 409, "invalid_state", says=says)
    gate = await posted(client, "/v1/gates", {"session_id": made["id"], "threshold": 0.0})
    assert gate["status"] == "pending"


async def test_the_leaderboard_has_latest_results_in_groups(
    client: Client, working: Services
) -> None:
    assert await listing(client, "/v1/banks/demo/leaderboard") == []
    first = await measured(client, working, "strong", 2.0)
    again = await measured(client, working, "strong", 2.0, seed=6)
    await measured(client, working, "twin", 2.0)
    await measured(client, working, "weak", -2.0)
    await posted(client, f"/v1/sessions/{first['id']}:replay", {}, 201)

    board = await got(client, "/v1/banks/demo/leaderboard")

    entries = {entry["endpoint"]["name"]: entry for entry in board["data"]}
    assert set(entries) == {"strong", "twin", "weak"}
    assert entries["strong"]["session_id"] == again["id"]
    assert entries["strong"]["group"] == entries["twin"]["group"] == 1
    assert (entries["strong"]["rank_lo"], entries["strong"]["rank_hi"]) == (1, 2)
    weak = board["data"][-1]
    assert weak == entries["weak"]
    assert (weak["group"], weak["rank_lo"], weak["rank_hi"]) == (2, 3, 3)
    assert weak["finished_at"]
    assert weak["interval"]["lo"] < weak["theta"] < weak["interval"]["hi"]


async def test_only_new_settings_replace_a_longer_test(client: Client, working: Services) -> None:
    async def shown() -> list[str]:
        board = await got(client, "/v1/banks/demo/leaderboard")
        assert board["unranked"] == []
        return [entry["session_id"] for entry in board["data"]]

    def asking(n: int) -> dict[str, Any]:
        return {"stopping": {"min_items": n, "max_items": n}}

    await measured(client, working, "one", 0.5, **asking(30))
    longest = await measured(client, working, "one", 0.5, **asking(30), seed=5)
    quick = await measured(client, working, "one", 0.5, **asking(10), seed=6)
    whole, part = (one["score"]["interval"] for one in (longest, quick))
    assert whole["hi"] - whole["lo"] < (part["hi"] - part["lo"]) / 1.25
    assert await shown() == [longest["id"]]
    (endpoint,) = await listing(client, "/v1/endpoints", params={"name": "one"})
    weaker = {"theta": -0.5, "seed": 3}
    await edited(client, f"/v1/endpoints/{endpoint['id']}", options=weaker)
    changed_since = await measured(client, working, "one", -0.5, **asking(10), seed=7)
    assert await shown() == [changed_since["id"]]
