"""Inspect tasks whose samples Sextant selects: real runs in separate processes."""

import asyncio
import json
import os
import re
import signal
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sextant_client import Answer, AsyncSextant, Item
from tests.clients.conftest import Running
from tests.waiting import waiting

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("inspect_ai") is None, reason="Inspect is not installed: uv sync --group inspect"
    ),
]
TASKS = Path(__file__).with_name("inspect_tasks.py")
PROGRAM = Path(sys.executable).with_name("inspect")


@pytest.fixture
async def sextant(server: Running) -> Any:
    """Return a client of a server with the bank of the tasks."""
    async with AsyncSextant(server.url, server.key) as client:
        await client.request("POST", "/v1/banks", json={"name": "arith"})
        rows = "".join(f"m{number:03d},1.2,{number / 100 - 1.5}\n" for number in range(1, 301))
        parameters = {"parameters": {"content": f"item,a,b\n{rows}"}}
        await client.request("POST", "/v1/banks/arith/imports", json=parameters)
        yield client


class Inspect:
    """Runs programs of Inspect against a server, in a directory."""

    def __init__(self, server: Running, folder: Path) -> None:
        self._folder = folder
        self.environment = {
            **os.environ,
            "SEXTANT_SERVER": server.url,
            "SEXTANT_API_KEY": server.key,
            "XDG_DATA_HOME": str(folder / "data"),
            "INSPECT_LOG_DIR": str(folder / "logs"),
            "EXAMINEE_ASKED": str(folder / "asked"),
        }

    async def begin(self, *words: str | Path, **variables: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *words,
            cwd=self._folder,
            env={**self.environment, **variables},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def runs(self, *runs: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the contents of the logs of runs, in order."""
        process = await self.begin(sys.executable, TASKS)
        said, _ = await process.communicate(json.dumps(runs).encode())
        logs = [json.loads(line) for line in said.splitlines() if line.startswith(b'{"status"')]
        assert len(logs) == len(runs), said.decode()
        return logs


@pytest.fixture
def inspect(server: Running, tmp_path: Path) -> Inspect:
    return Inspect(server, tmp_path)


def failed(log: dict[str, Any]) -> str:
    assert log["status"] == "error", log
    return str(log["error"])


async def test_figures_of_the_log_are_those_of_rest(
    inspect: Inspect, sextant: AsyncSextant
) -> None:
    logs = await inspect.runs(
        {"task": {"concurrency": 1}},
        {"task": {"concurrency": 1, "early_stopping": True}, "eval": {"max_samples": 300}},
    )
    assert len(await sextant.list_sessions()) == 2
    for log in logs:
        assert (log["status"], log["error"]) == ("success", None)
        session = await sextant.get_session(log["metadata"]["sextant_session"])
        steps = await sextant.list_responses(session.id)
        scores = {step.item_id: step.score for step in steps}

        async def solve(item: Item, scores: dict[str, float | None] = scores) -> Answer:
            return Answer(score=scores[item.item.id])

        stopping = {"se": 0.3, "min_items": 10, "max_items": 40}
        other = await sextant.create_session("arith", mode="manual", seed=3, stopping=stopping)
        rest = await sextant.answer_all(other.id, solve)
        path = [step.item_id for step in await sextant.list_responses(other.id)]
        assert path == list(scores)
        assert rest.score is not None
        assert rest.score.interval is not None
        expected = {
            "score": rest.score.value,
            "score_lo": rest.score.interval.lo,
            "score_hi": rest.score.interval.hi,
            "equivalent_random_items": rest.score.equivalent_random_items,
            "theta": rest.estimate.theta,
            "theta_se": rest.estimate.se,
        }
        told = {name: log["figures"][name] for name in expected}
        assert told == pytest.approx(expected, abs=1e-12)
        assert list(log["figures"])[-1] == "stderr"  # from the scorer itself
        assert log["samples"] == dict.fromkeys(scores, False)
        assert log["tokens"] == session.usage.tokens == 84 * len(path)
        assert session.usage.usd == 0.5 * len(path)
        assert session.examinee is not None
        assert session.examinee.model == session.examinee.name == "mockllm/model"
    assert logs[1]["stopped"] is not None
    assert logs[1]["stopped"]["session"] == logs[1]["metadata"]["sextant_session"]


@pytest.mark.parametrize("early_stopping", ["false", "true"], ids=["source", "stopping"])
async def test_a_killed_run_is_continued(
    early_stopping: str, inspect: Inspect, sextant: AsyncSextant, tmp_path: Path
) -> None:
    run = await inspect.begin(
        PROGRAM,
        "eval",
        f"{TASKS}@arith",
        *("-T", f"early_stopping={early_stopping}", "-T", "concurrency=8"),
        *("--max-samples", "300", "--display", "none"),
        EXAMINEE_UNTIL="12",
    )
    async with waiting() as pause:
        while True:
            sessions = await sextant.list_sessions()
            if sessions and sessions[0].progress.scored == 12:
                break
            assert run.returncode is None, (await run.communicate())[0].decode()
            await pause()
    run.send_signal(signal.SIGKILL)
    await run.communicate()
    (killed,) = (tmp_path / "logs").glob("*.eval")
    (log,) = await inspect.runs({"retry": str(killed)})
    (session,) = await sextant.list_sessions()
    assert (session.status, session.outcomes["error"]) == ("completed", 0)
    assert (log["status"], log["metadata"]["sextant_session"]) == ("success", session.id)
    assert log["figures"]["theta"] == session.estimate.theta
    steps = await sextant.list_responses(session.id)
    assert log["samples"] == {step.item_id: False for step in steps}
    assert log["tokens"] == session.usage.tokens
    # Samples on which the first run hung were not recorded: none was asked twice.
    asked = Counter((tmp_path / "asked").read_text().split())
    assert set(asked.values()) == {1}


async def test_failures_are_not_wrong_answers_and_errors_end_the_task(
    inspect: Inspect, sextant: AsyncSextant
) -> None:
    early = {"early_stopping": True}
    all_wait = {"max_samples": 300}
    some, some_early, none, none_early, *rest = await inspect.runs(
        {"task": {"every": 4}},
        {"task": {"every": 4, **early}, "eval": all_wait},
        {"task": {"every": 1}},
        {"task": {"every": 1, **early}, "eval": all_wait},
        {"task": {"value": "N"}},
        {"task": {"value": {"a": 0.5, "b": 7.0}, "scorer": "points.a"}},
        {"task": {"value": [7.0, 0.5], "scorer": "points.1"}},
        {"task": {"agent": True}, "eval": {"message_limit": 2}},
        {"task": {}, "eval": {"message_limit": 2}},
        {"task": {"value": {"a": 0.5, "b": 7.0}, "scorer": "points.c"}},
        {"task": {"value": 7.0}},
        {"task": {"value": "x", **early}, "eval": all_wait},
        {"task": {"samples": 20}},
        {"task": {"numbered": True}},
        {"task": early},
        {"task": {}, "eval": {"limit": 5}},
        {"task": {"bank": "nowhere"}},
    )
    for log in (some, some_early):
        assert log["status"] == "success"
        session = await sextant.get_session(log["metadata"]["sextant_session"])
        errors = sum(log["samples"].values())
        assert session.outcomes["error"] == errors > 0
        assert session.outcomes["scored"] == len(log["samples"]) - errors
    for log in (none, none_early):
        assert f"Session {log['metadata']['sextant_session']} of Sextant is failed" in failed(log)
    means = [("unparsed", None), ("scored", 0.5), ("scored", 0.5), ("scored", 0.0)]
    for outcome, mean in means:  # the score of an agent at its limit counts
        log = rest.pop(0)
        session = await sextant.get_session(log["metadata"]["sextant_session"])
        assert session.outcomes[outcome] == len(log["samples"]) > 0
        steps = await sextant.list_responses(session.id)
        assert mean is None or {step.score for step in steps} == {mean}
    for log, words in zip(
        rest,
        [
            "does not fit the model. Ended by",
            "The scorer 'points' gave no score 'c', only ['a', 'b'].",
            "expected C, P, I, N or a number from 0 to 1, got 7.0",
            "expected C, P, I, N or a number from 0 to 1, got 'x'",
            "each of the 300 items of bank 'arith', by id: 20 of the task's 20",
            "0 of the task's 300 samples",
            "Expected --max-samples of at least 300",
            "leave out --limit",
            "no bank",
        ],
        strict=True,
    ):
        assert words in failed(log)


async def test_samples_without_an_id_are_matched_by_their_prompt(
    inspect: Inspect, sextant: AsyncSextant
) -> None:
    # Numbered from 0, as another tool does: sample 1 is item 0.
    items: list[dict[str, Any]] = [
        {
            "key": str(number - 1),
            "prompt": f"What is {number} * {number + 7}? Use the calculator.",
            "target": [str(number * (number + 7))],
        }
        for number in range(1, 31)
    ]
    parameters = [{"key": item["key"], "b": place / 10 - 1.5} for place, item in enumerate(items)]
    await sextant.request("POST", "/v1/banks", json={"name": "asked"})
    for item in items:
        await sextant.request("POST", "/v1/banks/asked/items", json=item)
    await sextant.request("POST", "/v1/banks/asked/versions", json={"parameters": parameters})
    settings = {"bank": "asked", "samples": 30, "numbered": True, "stopping": {"max_items": 10}}
    (log,) = await inspect.runs({"task": settings})
    assert log["status"] == "success", log
    session = await sextant.get_session(log["metadata"]["sextant_session"])
    steps = await sextant.list_responses(session.id)
    assert {str(int(step.item_id) + 1) for step in steps} == set(log["samples"])

    # An id that a bank has for another question must not be used, or answers would count for it.
    await sextant.request("POST", "/v1/banks", json={"name": "other"})
    named: list[dict[str, Any]] = [{"key": f"m{number:03d}", "b": 0.0} for number in range(1, 11)]
    for one in named:
        item = {"key": one["key"], "prompt": "What is 1 + 1?", "target": ["2"]}
        await sextant.request("POST", "/v1/banks/other/items", json=item)
    await sextant.request("POST", "/v1/banks/other/versions", json={"parameters": named})
    (log,) = await inspect.runs({"task": {"bank": "other", "samples": 10}})
    assert "items of bank 'other', by content: 0 of the task's 10 samples" in failed(log)


async def test_the_code_of_the_readme_works_in_inspect(
    inspect: Inspect, server: Running, sextant: AsyncSextant, tmp_path: Path
) -> None:
    text = (Path(__file__).parents[2] / "clients/inspect/README.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "demo.py").write_text(block)
    demo, agent = await inspect.runs(
        {"eval": {"tasks": "demo.py@demo", "max_samples": 8}}, {"eval": {"tasks": "demo.py@agent"}}
    )
    assert (demo["status"], agent["status"]) == ("success", "success")
    by_name = await sextant.list_sessions(examinee="nightly")
    assert [session.id for session in by_name] == [agent["metadata"]["sextant_session"]]
    assert by_name[0].examinee is not None
    assert by_name[0].examinee.model == "mockllm/model"
