"""`sextant sessions`: stored answers scored again, results as pages, signals during work."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette import types

from app.cli.commands import compare, sessions
from app.cli.servers.connection import INTERRUPTED
from app.cli.servers.server import serving as serving_sextant
from app.demo.model_server import create_model_server
from app.records.api_keys import Scope
from app.records.sessions import Plan
from app.services.sessions.drafts import SessionSpec
from app.settings import Settings
from tests.cli.shell import done, refused, sextant, told
from tests.servers import serving
from tests.values import not_none


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    with serving(create_model_server(theta=0.0, seed=7)) as url:
        yield f"{url}/v1"


@pytest.mark.usefixtures("own_server")
def test_changes_by_another_scorer_are_shown(model_url: str, tmp_path: Path) -> None:
    old = told(
        *("run", "--endpoint", model_url, "--model", "m", "--bank", "demo", "--seed", "1"),
        *("--max-items", "12", "--min-items", "12", "--concurrency", "4"),
    )
    missed = " ".join(done("sessions", "show", old["id"]).stdout.split())
    assert " points, not ±4: about " in missed

    page, numbers = tmp_path / "page.html", tmp_path / "page.json"
    written = done("sessions", "report", old["id"], "--out", page, "--json", numbers)
    assert "Wrote " in written.stdout
    assert "from 12 of 360 questions" in page.read_text("utf-8")
    assert json.loads(numbers.read_text())["estimate"] == old["estimate"]

    answers = ("sessions", "answers", old["id"])
    asked = told(*answers)["data"]
    assert [one["step"] for one in asked] == list(range(1, 13))
    wrong = [one for one in asked if one["score"] == 0.0]
    only = done(*answers, "--wrong")
    assert f"{len(wrong)} of 12 questions" in only.stderr
    assert only.stdout.count("  wrong, expected ") == len(wrong)
    assert "question" in only.stdout
    assert only.stdout.count("  target  ") == len(wrong)
    assert any(re.match(r"[A-Z]\. ", one["target"]) for one in asked)
    unlikely = [one for one in asked if abs(one["score"] - one["expected"]) >= 0.8]
    assert told(*answers, "--surprising")["data"] == unlikely
    first = asked[0]["item_id"]
    assert first in [one["item_id"] for one in told(*answers, "--search", first)["data"]]
    unread = done(*answers, "--unparsed", "--search", "no such words")
    assert "No answer of this session matches --unparsed --search: 0 of 12" in unread.stderr

    extend = ("sessions", "extend", old["id"])
    for most in ("10", "12"):
        assert "--max-items: expected more than the 12" in refused(*extend, "--max-items", most)
    assert "'--margin': expected points, got 0.03" in refused(*extend, "--margin", "0.03")
    longer = (*extend, "--max-items", "16")
    gone_on = told(*longer)
    assert " of about " in done(*longer).stderr
    assert done(*longer, "--quiet").stderr == ""
    assert (gone_on["parent_id"], gone_on["progress"]["items"]) == (old["id"], 16)
    # The missed goal still ends the session.
    assert gone_on["design"]["stopping"]["score_margin"] == 0.04
    at_once = refused(*extend, "--max-items", "300", "--margin", "20")
    assert "would ask nothing. The score is known to ±" in at_once
    reached = told(*extend, "--max-items", "300", "--margin", "14")
    assert reached["stop_reason"] == "score_margin"
    beyond = told("sessions", "extend", reached["id"], "--max-items", "40")
    assert beyond["progress"]["items"] == 40
    assert "when the session stops" in refused(*extend)

    again = ("sessions", "rescore", old["id"], "--scorer", "pattern", "--params", '{"pattern":"."}')
    shown, found = done(*again), told(*again)
    assert found["session"]["parent_id"] == old["id"]
    assert found["session"]["rescore"]["answers"] == 12
    changed = [change["item_id"] for change in found["changes"] if change["changed"]]
    assert len(changed) == found["session"]["rescore"]["changed"] > 0
    assert f"{len(changed)} of 12 answers changed" in shown.stdout
    assert all(item in shown.stdout for item in changed)

    # By the pattern every answer is right.
    compared = done("compare", old["id"], found["session"]["id"])
    assert " points in score (95 % interval " in compared.stdout.partition("answers in ")[0]
    trust = old["headline"]["trust"]
    assert f"Trust, first: {trust['level']}. {trust['reason']}" in compared.stdout
    name = old["endpoint"]["name"] or old["endpoint"]["model"]
    for side, one in (("first", old), ("second", found["session"])):
        assert f"{side:8}{name} ({one['id']})\n" in compared.stdout
    named = ", ".join(one["item_id"] for one in wrong)
    assert f"the second is better on {len(wrong)}: {named}" in compared.stdout


@pytest.mark.parametrize(
    ("left", "whom"),
    [((9, 3), "each"), ((0, 3), "for new"), ((9, 2), "each, or as many as are left,")],
)
def test_more_questions_are_for_models_that_have_any_left(
    left: tuple[int, int], whom: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = [
        {"label": label, "unasked": n, "usd_per_item": None}
        for label, n in zip(("old", "new"), left, strict=True)
    ]
    undecided = {"delta": 0.1, "se": None, "interval": None, "p_value": 0.4, "verdict": "undecided"}
    told = {"first": sides[0], "second": sides[1], "confidence": 0.95, "n_common": 7, "scale": None}
    differences = {"score": {**undecided, "items_to_decide": 3}, "common": None, "theta": None}
    compare._show({**told, **differences}, ("old", "new"))
    assert f": undecided; 3 more questions {whom} would tell them apart" in capsys.readouterr().out
    differences["score"] = {**undecided, "delta": 0.0, "items_to_decide": None}
    compare._show({**told, **differences}, ("old", "new"))
    assert ": no difference so far, undecided\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--params", "{}"), "--params needs --scorer"),
        (("--scorer", "exact", "--params", "{"), "'--params': expected a JSON object"),
        (("--scorer", "exact", "--params", "[]"), "'--params': expected a JSON object"),
    ],
)
def test_invalid_parameters_are_refused(arguments: tuple[str, ...], words: str) -> None:
    assert words in refused("sessions", "rescore", "ses_1", *arguments)


def test_an_unparseable_answer_is_marked_beside_its_score() -> None:
    answer = {"step": 3, "item_id": "itm_1", "pretest": False, "expected": 0.7}
    missing, wrong, told_wrong = (
        next(sessions._lines(answer | {"outcome": outcome, "score": score}))
        for outcome, score in (("unparsed", None), ("unparsed", 0.0), ("scored", 0.0))
    )
    assert missing == "   3. itm_1  unparsed, expected 70 %"
    assert wrong == "   3. itm_1  unparsed, counted as wrong, expected 70 %"
    assert told_wrong == "   3. itm_1  wrong, expected 70 %"


async def test_a_server_gives_the_same_page(settings: Settings, tmp_path: Path) -> None:
    own = settings.model_copy(update={"host": "127.0.0.1", "port": 0, "data_dir": tmp_path})
    async with serving_sextant(own, worker=False) as local:
        _, secret = await local.services.api_keys.create(name="test", scopes=[Scope.READ])
        plan: Plan = {"stopping": {"max_items": 3, "min_items": 1}}
        made = await local.services.sessions.create(
            SessionSpec(mode="manual", bank="demo", plan=plan)
        )
        key = ("--server", local.base_url, "--server-key", secret)
        report = ("sessions", "report", made.id)
        given = await asyncio.to_thread(done, *report, "--out", "-", *key)
        assert "has not answered any of the 360 questions of the bank demo" in given.stdout
        await asyncio.to_thread(refused, "sessions", "report", "a/b?c", *key)
        await asyncio.to_thread(refused, *report, *key[:2], "--server-key", "wrong")


async def test_an_extension_by_hand_is_named_and_not_waited_for(
    settings: Settings, tmp_path: Path
) -> None:
    own = settings.model_copy(update={"host": "127.0.0.1", "port": 0, "data_dir": tmp_path})
    async with serving_sextant(own, worker=False) as local:
        _, secret = await local.services.api_keys.create(
            name="test", scopes=[Scope.READ, Scope.RUN]
        )
        made = await local.services.sessions.create(SessionSpec(mode="manual", bank="demo"))
        await local.services.sessions.cancel(made.id)
        key = ("--server", local.base_url, "--server-key", secret)
        extend = ("sessions", "extend", made.id, "--max-items", "30", *key)
        # A command whose work may be interrupted runs in a main thread alone.
        ran = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("sextant"), *extend, stdout=asyncio.subprocess.PIPE
        )
        said = (await ran.communicate())[0].decode()
        found = re.search("New session: (ses_[0-9a-z]+), which waits for answers by hand", said)
        longer = await local.services.sessions.get(not_none(found)[1])
        assert longer.status == "awaiting_response"


@pytest.mark.usefixtures("own_database")
def test_an_unknown_session_gives_one_clear_message(tmp_path: Path) -> None:
    assert "There is no session 'ses_none'" in refused("compare", "ses_none", "ses_other")
    missing = refused("sessions", "report", "ses_none", "--out", tmp_path / "page.html")
    assert "There is no session 'ses_none'" in missing
    assert not (tmp_path / "page.html").exists()


async def _interrupting(scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
    """Act as a model during whose first call the user presses Ctrl-C; it never answers."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    os.kill(os.getpid(), signal.SIGINT)
    while (await receive())["type"] != "http.disconnect":
        pass


def test_a_limit_of_cost_needs_prices() -> None:
    run = ("run", "--endpoint", "http://127.0.0.1:9/v1", "--model", "m", "--bank", "demo")
    told = refused(*run, "--budget-usd", "1")
    assert "--budget-usd needs the price of a call: give --price-input and --price-output" in told


@pytest.mark.parametrize(
    ("command", "what"),
    [
        (("run", "--endpoint", "{url}", "--model", "m"), "ses_"),
        (("rank", "--endpoint", "{url} m", "--endpoint", "{url} n"), "rnk_"),
    ],
)
@pytest.mark.usefixtures("own_database")
def test_ctrl_c_cancels_what_the_command_began(command: tuple[str, ...], what: str) -> None:
    with serving(_interrupting) as url:
        words = [word.replace("{url}", f"{url}/v1") for word in command]
        left = sextant(*words, "--bank", "demo")
    assert left.exit_code == INTERRUPTED
    assert f"Cancelled {what}" in left.stderr
    listed = sextant("sessions", "list").stdout
    assert "cancelled" in listed
    assert "running" not in listed
    assert "queued" not in listed
