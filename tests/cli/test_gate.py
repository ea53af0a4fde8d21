"""`sextant gate`: exit codes for pipelines."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from app.cli.gating.judging import reports_of
from app.cli.servers.connection import version_of
from app.cli.terminal.replies import Baseline
from app.demo.model_server import create_model_server
from app.errors import InvalidInputError
from app.records.gates import BASELINE_LIMITS
from tests.cli.shell import done, refused, sextant
from tests.databases import rows
from tests.servers import serving


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    with serving(create_model_server(theta=1.5, seed=7)) as url:
        yield f"{url}/v1"


def gate(*arguments: object, code: int = 0) -> Any:
    """Run a gate that ends with this code, and return its JSON output."""
    result = sextant("gate", *arguments, "--json", "-")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


no_gate = partial(refused, "gate", code=64)


@pytest.mark.usefixtures("own_server")
def test_the_exit_code_says_go_no_go_or_inconclusive(model_url: str, tmp_path: Path) -> None:
    ask = ("--endpoint", model_url, "--model", "m", "--bank", "demo", "--seed", "1")
    path = tmp_path / "gate.json"
    go = done(
        *("gate", *ask, "--metric", "theta", "--threshold", "-1"),
        *("--concurrency", "4", "--json", path),
    )
    found = json.loads(path.read_text())
    assert found["outcome"] == "go"
    assert "gate" in go.stdout
    # The session is stored, so other thresholds need no new calls.
    kept = ("--session", found["session_id"])
    assert gate(*kept, "--metric", "theta", "--threshold", "4", code=1)["outcome"] == "no_go"
    unsure = gate(*kept, "--metric", "theta", "--threshold", found["value"], code=2)
    assert unsure["outcome"] == "inconclusive"
    open_yet = sextant("gate", *kept, "--metric", "theta", "--threshold", found["value"]).stdout
    assert f"sextant sessions extend {found['session_id']} --max-items " in open_yet
    # By default a gate is about the score, which that session also has.
    of_score = gate(*kept, "--threshold", "0.1")
    assert (of_score["metric"], of_score["outcome"]) == ("score", "go")
    assert "by ability (theta)" in found["detail"]
    assert "ability" not in of_score["detail"]
    # A result with a name is the reference for later ones.
    named = done("baselines", "set", "main", found["session_id"])
    done("baselines", "set", "also", found["session_id"])
    with patch("app.cli.commands.gates.version_of", wraps=version_of) as read:
        assert done("baselines", "list").stdout.count(" demo v1 ") == 2
    assert read.call_count == 1
    done("baselines", "delete", "also", "--yes")
    assert re.match(r"main is m now, known to ±\d+\.\d points by \d+ questions: ", named.stdout)
    after = gate(*ask, "--baseline", "main", "--tolerance", "40", "--quiet")
    assert (after["outcome"], after["threshold"]) == ("go", -0.4)
    number = r"[+-]\d+\.\d"
    points = rf"score {number} points from that of main, {number} to {number} \(95 % interval\)"
    assert re.match(points, after["detail"])
    assert after["session_id"] != found["session_id"]
    rough = ("--baseline", "main", "--tolerance", "2", "--extend-to", "60", "--quiet")
    undecided = sextant("gate", *ask, *rough)
    warning = " ".join(undecided.stderr.split())
    assert warning.startswith("Warning: gate: the baseline main is known to ±")
    longer = f"sextant sessions extend {found['session_id']} --max-items "
    assert f"one of 2 points, less often. Extend its session first ({longer}" in warning
    assert BASELINE_LIMITS in undecided.stdout
    assert " next " not in undecided.stdout
    assert re.search(rf"baseline +{longer}\d+, then set main to the new session", undecided.stdout)
    uses = "The bank has 4 sessions and 1 baseline, whose results stay. Delete the bank 'demo'?"
    assert f"{uses} There is no terminal" in refused("banks", "delete", "demo")
    # People read percentages and points.
    listed = done("gates", "list").stdout
    assert "score above main -40.0 points at 95 %" in listed
    assert "score above 10 % at 95 %" in listed
    shown = done("gate", *kept, "--threshold", "0.1").stdout
    assert re.search(r"score \d+\.\d %, .* % \(95 % interval\), lies above .* 10 %\.", shown)
    for threshold in ("40", "60"):
        share = f"a share from 0 to 1, got {threshold}; for {threshold} % say 0.{threshold[0]}."
        assert f"--threshold: expected {share}" in no_gate(*kept, "--threshold", threshold)
    doubted = no_gate(*kept, "--threshold", "0.4", "--confidence", "95")
    assert "--confidence: expected a number < 1, got 95.0; for 95 % say 0.95" in doubted


@pytest.mark.usefixtures("own_server")
def test_a_test_that_failed_is_not_inconclusive(tmp_path: Path) -> None:
    policy, xml, comment = (tmp_path / name for name in ("policy.yaml", "junit.xml", "comment.md"))
    with serving(PlainTextResponse("no such model", 404)) as url:
        policy.write_text(POLICY.format(url=f"{url}/v1"))
        failed = sextant(
            *("gate", "--policy", policy, "--quiet"),
            *("--junit", xml, "--markdown", comment, "--json", "-"),
        )
    assert failed.exit_code == 1
    assert failed.stderr.startswith("Error: No decision was reached. The session failed: ")
    told = json.loads(failed.stdout)
    assert {told["outcome"], *(one["outcome"] for one in told["rules"])} == {"error"}
    assert [one.get("type") for one in ET.parse(xml).getroot().iter("error")] == ["error"]
    assert "### ⚠️ error" in comment.read_text()
    # The same with --session.
    session = told["rules"][0]["session_id"]
    assert gate("--session", session, "--threshold", "0.5", code=1)["outcome"] == "error"
    listed = done("gates", "list").stdout
    assert "inconclusive" not in listed
    shown = done("gates", "show", re.findall(r"\bgat\w*_\w+", listed)[0]).stdout
    assert re.search(r"gate +error", shown)
    policy.write_text(POLICY.format(url="http://127.0.0.1:9/v1").replace("tokens", "usd"))
    priceless = no_gate("--policy", policy, "--quiet")
    assert f"budget.usd in {policy}: set price on the endpoint" in priceless


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Give --threshold, or --baseline with --tolerance: got neither."),
        (("--baseline", "main", "--threshold", "1"), "with --tolerance: got both."),
        (("--baseline", "main"), "--baseline needs --tolerance: how much worse may pass."),
        (("--threshold", "1", "--tolerance", "2"), "--tolerance belongs to --baseline."),
        (
            (
                *("--threshold", "1", "--endpoint", "http://m/v1", "--model", "m"),
                *("--bank", "demo", "--margin", "0.03"),
            ),
            "'--margin': expected points, got 0.03; for 3 points say 3.",
        ),
        (("--threshold", "x"), "'--threshold': expected a number, got 'x'"),
        (("--threshold", "65%"), "expected a number, got '65%'; for 65 % say 0.65"),
        (("--margin", "99"), "'--margin': expected points as a plain number <= 50, got '99'"),
        (("--margin", "-5"), "'--margin': expected points from 0 to 100, got -5."),
        (("--margin", "5%"), "'--margin': expected points as a plain number, got '5%' ╰"),
        (("--tolerance", "2%"), "expected points as a plain number, got '2%' ╰"),
        (("--metric", "iq"), "Invalid value for '--metric': 'iq' is not one of"),
        (("--baseline", "main", "--tolerance", "0.05"), "points, got 0.05; for 5 points say 5."),
        (("--baseline", "main", "--tolerance", "-5"), "--tolerance: expected points from 0"),
        (("--threshold", "1"), "--endpoint, --model and --bank"),
        (("--threshold", "1", "--session", "ses_1", "--bank", "demo"), "Give --session, or"),
        (("--threshold", "1", "--session", "ses_1", "--server", "http://127.0.0.1:9"), "reached"),
        (
            (
                *("--threshold", "nan", "--endpoint", "http://m/v1", "--model", "m"),
                *("--bank", "demo", "--server", "http://127.0.0.1:9"),
            ),
            "Error: --threshold: expected a finite number, got nan",
        ),
        (
            ("--threshold", "1", "--endpoint", "end_1", "--model", "m", "--bank", "demo"),
            "leave --model out",
        ),
    ],
)
def test_an_impossible_gate_exits_with_64(arguments: tuple[str, ...], words: str) -> None:
    assert words in no_gate(*arguments)


def test_an_internal_error_exits_with_70(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("app.cli.commands.gate.connected", broken)
    fault = refused("gate", "--threshold", "1", "--session", "ses_1", code=70)
    assert "RuntimeError: a bug" in fault
    done("gate", "--help")  # there is none


@pytest.mark.usefixtures("own_server")
def test_a_saved_endpoint_is_named_by_its_id(model_url: str) -> None:
    unknown = "end_" + "0" * 26
    failed = no_gate("--threshold", "0", "--endpoint", unknown, "--bank", "demo")
    assert failed.count(f"There is no endpoint '{unknown}'") == 1
    blank = no_gate("--threshold", "0", "--endpoint", " ", "--bank", "demo")
    assert "There is no saved endpoint ' '." in blank
    for name in (" ", "a/b"):
        assert f"blanks at either end, got '{name}'" in refused("baselines", "set", name, "ses_1")


def test_a_server_that_is_not_sextant_is_named(model_url: str) -> None:
    server = model_url.removesuffix("/v1")
    failed = no_gate("--threshold", "0", "--session", "ses_1", "--server", server)
    assert "not like a Sextant server" in failed


POLICY = """
endpoint: {url}
model: m
session: {{seed: 1, concurrency: 4, stopping: {{min_items: 10, max_items: 10}}}}
budget: {{tokens: 1000000}}
extend_to: 40
rules:
  - {{name: sure enough, bank: demo, threshold: 0.2}}
  - {{name: able, bank: demo, metric: theta, threshold: -1, tier: should}}
  - {{name: better than all | of it, bank: demo, threshold: 0.99, tier: should}}
"""


@pytest.mark.usefixtures("own_server")
def test_a_policy_needs_one_session_per_commit(
    model_url: str, tmp_path: Path, database_url: str
) -> None:
    path, xml, comment = (tmp_path / name for name in ("policy.yaml", "junit.xml", "comment.md"))
    path.write_text(POLICY.format(url=model_url))
    of_commit = ("--policy", path, "--commit", "abc", "--markdown", comment)
    told = gate(*of_commit, "--junit", xml)
    assert [one["outcome"] for one in told["rules"]] == ["go", "go", "no_go"]
    assert len({one["session_id"] for one in told["rules"]}) == 1
    cases = ET.parse(xml).getroot().findall("./testsuite/testcase")
    assert [next(iter(case)).tag for case in cases] == ["system-out", "system-out", "skipped"]
    words = comment.read_text()
    assert words.startswith("<!-- sextant gate -->\n### ✅ go")
    assert "better than all \\| of it" in words

    again = done("gate", *of_commit)
    assert f"{told['rules'][0]['session_id']}, of an earlier run for this commit" in again.stdout
    assert "of an earlier run" in comment.read_text()

    # Another threshold asks nothing again; a rule that other questions would be asked for does.
    session_id = told["rules"][0]["session_id"]
    path.write_text(path.read_text().replace("threshold: 0.2", "threshold: 0.3"))
    assert {one["session_id"] for one in gate(*of_commit)["rules"]} == {session_id}
    path.write_text(path.read_text().replace("seed: 1", "seed: 2"))
    assert session_id not in {one["session_id"] for one in gate(*of_commit)["rules"]}
    # A test of another key proves nothing, whatever its metadata say.
    others = rows(database_url, "UPDATE sessions SET created_by = 'another' RETURNING id")
    assert {(one["session_id"],) for one in gate(*of_commit)["rules"]}.isdisjoint(others)

    path.write_text(path.read_text().replace("threshold: 0.3", "threshold: 0.7"))
    path.write_text(path.read_text().replace("extend_to: 40", "extend_to: 10"))
    undecided = sextant("gate", "--policy", path, "--quiet")
    assert (undecided.exit_code, undecided.stdout.count("next")) == (2, 1)
    assert f"set extend_to: 20 in {path}" in "".join(undecided.stdout.split("\n"))

    gate("--session", session_id, "--threshold", "0.2", "--junit", xml)
    (case,) = ET.parse(xml).getroot().iter("testcase")
    assert case.get("classname") == "sextant.demo"


@pytest.mark.usefixtures("own_server")
def test_an_undecided_gate_extends_until_its_limit(model_url: str) -> None:
    ask = ("--endpoint", model_url, "--model", "m", "--bank", "demo", "--seed", "1", "--quiet")
    short = (*ask, "--max-items", "10", "--threshold", "0.7")
    gate(*short, code=2)
    longer = sextant("gate", *short, "--extend-to", "30", "--json", "-")
    assert "adjusted for 3 looks" in json.loads(longer.stdout)["detail"]


def test_a_policy_excludes_flags_that_override_a_part(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.format(url="http://m/v1"))
    for option in (("--max-items", "5"), ("--metric", "theta"), ("--seed", "0")):
        assert "leave the options of a single gate out" in no_gate("--policy", path, *option)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rules:\n  - [1\nb: 2", "policy.yaml, line 3, column 2: this is no YAML: expected ',' or"),
        ("rules: [{name: a, bank: b, name: c}]", "this is no YAML: the name 'name' stands twice."),
        ("", "is no policy in YAML: expected an object with endpoint and rules."),
        ("endpoint: http://m/v1\nrules: []", "rules: expected at least 1 entry, got 0."),
        ("endpoint: m\nrules: [{name: a, bank: b}]", "rules.0: give threshold, or baseline"),
        (
            "endpoint: m\nrules: [{name: a, bank: b, threshold: .nan}]",
            "rules.0.threshold: expected a finite number, got nan",
        ),
        (
            "endpoint: m\nrules: [{name: a, bank: b, threshold: 60}]",
            "rules.0: threshold: expected a share from 0 to 1, got 60;",
        ),
        (
            "endpoint: m\nrules: [{name: a, bank: b, baseline: c, tolerance: 0.05}]",
            "rules.0: tolerance: expected points, got 0.05; for 5 points say 5.",
        ),
        (
            "endpoint: m\nsession: {bank: c}\nrules: [{name: a, bank: b, threshold: 1}]",
            "session: bank is said elsewhere",
        ),
        (
            "endpont: m\nrules: [{bank: b, treshold: 1, name: a}]",
            "policy.yaml: 3 faults: rules.0.treshold: no such field; did you mean 'threshold'? "
            "endpont: no such field; did you mean 'endpoint'? endpoint: Field required",
        ),
        (
            "endpoint: http://m/v1\nrules: [{name: a, bank: b, threshold: 1}]",
            "policy.yaml, model: expected the name of a model at the endpoint, got none.",
        ),
    ],
)
def test_faults_of_a_policy_are_reported_with_their_place(
    text: str, words: str, tmp_path: Path
) -> None:
    path, xml, comment = (tmp_path / name for name in ("policy.yaml", "junit.xml", "comment.md"))
    path.write_text(text)
    assert words in no_gate("--policy", path, "--junit", xml, "--markdown", comment)
    (case,) = ET.parse(xml).getroot().findall("./testsuite/testcase")
    (error,) = case
    assert error.tag == "error"
    assert words in " ".join((error.get("message") or "").split())
    assert comment.read_text().startswith("<!-- sextant gate -->\n### ⚠️ error\n")


def test_the_reports_of_an_error_say_a_fault_once() -> None:
    xml, comment = reports_of(InvalidInputError.at("--threshold", "--threshold: got nan."))
    assert (xml.count(b"got nan"), comment.count("got nan")) == (1, 1)


def test_a_baseline_passes_the_tolerance_that_it_tells() -> None:
    kept = {"lo": 0.758, "hi": 0.842, "level": 0.95}
    told = {"session_id": "ses_1", "examinee": "m", "score": 0.8, "n_items": 50}
    told |= {"bank": "b", "bank_version_id": "bkv_1", "set_at": "2026-01-01T00:00:00Z"}
    baseline = Baseline.model_validate({"name": "main", "score_interval": kept, **told})
    assert baseline.passes == 8.4
    assert "passes a tolerance of 8.4 points" in (baseline.certainty or "")


def test_a_gate_on_a_session_that_goes_on_does_not_cancel_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    called: list[str] = []

    async def reply(request: Request) -> JSONResponse:
        called.append(f"{request.method} {request.url.path}")
        # The events cannot be read, which ends the command while it waits.
        return JSONResponse({"id": "ses_1", "status": "awaiting_response"})

    app = Starlette(routes=[Route("/{path:path}", reply, methods=["GET", "POST"])])
    with serving(app) as url:
        waiting = no_gate("--session", "ses_1", "--threshold", "0.5", "--server", url)
    assert waiting.startswith("A manual session: it continues when somebody answers.")
    assert called == ["GET /v1/sessions/ses_1", "GET /v1/sessions/ses_1/events"]
