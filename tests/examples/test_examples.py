"""The examples, run as programs beside the real libraries."""

import asyncio
import json
import os
import re
import runpy
import socket
import sys
from collections.abc import AsyncIterator
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.cli.servers.server import serving as sextant_serving
from app.demo.model_server import create_model_server
from app.records.api_keys import Scope
from app.settings import Settings
from sextant_client import Answer, AsyncSextant, Item, Session
from tests.servers import serving
from tests.waiting import waiting

EXAMPLES = Path(__file__).parents[2] / "examples"
STOPPING = {"max_items": 8}


def needs(package: str, *modules: str) -> pytest.MarkDecorator:
    lacking = [module for module in modules if find_spec(module) is None]
    reason = f"{lacking} not installed: uv pip install '{package}'"
    return pytest.mark.skipif(bool(lacking), reason=reason)


@pytest.fixture
async def sextant(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AsyncSextant]:
    """Return a client of a server with a worker; the examples use the same server."""
    with structlog.testing.capture_logs():
        async with sextant_serving(settings.model_copy(update={"port": 0})) as local:
            _, key = await local.services.api_keys.create(name="test", scopes=[Scope.ADMIN])
            monkeypatch.setenv("SEXTANT_SERVER", local.base_url)
            monkeypatch.setenv("SEXTANT_API_KEY", key)
            async with AsyncSextant() as client:
                yield client


async def run(example: str, *words: str, **variables: str) -> tuple[int | None, str, str]:
    """Return exit code, stdout and stderr of an example."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / example), *words),
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complained = await process.communicate()
    return process.returncode, said.decode().strip(), complained.decode().strip()


async def by_hand(sextant: AsyncSextant) -> Session:
    async def solve(item: Item) -> Answer:
        return Answer(score=float(item.step % 2))

    begun = await sextant.create_session("demo", mode="manual", stopping=STOPPING, seed=1)
    return await sextant.answer_all(begun.id, solve)


@pytest.mark.parametrize(
    ("example", "library", "command"),
    [
        ("mlflow_run.py", "mlflow", "pip install mlflow-skinny"),
        ("evalhub_provider.py", "evalhub.adapter", 'pip install "eval-hub-sdk[adapter]"'),
        ("mcp_server.py", "mcp.server", 'pip install "mcp>=2"'),
    ],
)
def test_a_missing_library_gives_one_sentence(
    example: str, library: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        SystemExit, match=f"^[^\n]*{library}[^\n]*: {re.escape(command)} ./clients/python$"
    ):
        runpy.run_path(str(EXAMPLES / example))


@pytest.fixture
async def mlflow_url(tmp_path: Path) -> AsyncIterator[str]:
    """Run MLflow's own server."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db"),
        *("--artifacts-destination", str(tmp_path / "artifacts")),
        cwd=tmp_path,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    async with httpx2.AsyncClient() as http, waiting() as pause:
        while True:
            try:
                (await http.get(f"{url}/health")).raise_for_status()
                break
            except httpx2.HTTPError:
                assert server.returncode is None
                await pause()
    yield url
    os.killpg(server.pid, 15)
    await server.wait()


@pytest.mark.slow
@needs("mlflow", "mlflow", "flask")
async def test_a_session_becomes_a_run_of_mlflow(sextant: AsyncSextant, mlflow_url: str) -> None:
    session = await by_hand(sextant)
    points = (await sextant.request("GET", f"/v1/sessions/{session.id}/trajectory"))["data"]
    going = await sextant.create_session("demo", mode="manual", stopping=STOPPING)
    where = {"MLFLOW_TRACKING_URI": mlflow_url}

    code, run_id, complained = await run("mlflow_run.py", session.id, **where)
    assert code == 0, complained
    run_id = run_id.splitlines()[-1]  # below the links that MLflow prints
    code, _, complained = await run("mlflow_run.py", going.id, **where)
    assert (code, complained) == (
        1,
        f"Expected an ended session, got {going.id}, which is awaiting_response.",
    )

    async with httpx2.AsyncClient(base_url=f"{mlflow_url}/api/2.0/mlflow") as mlflow:

        async def get(path: str, **params: str) -> Any:
            answer = await mlflow.get(path, params={"run_id": run_id, **params})
            return answer.raise_for_status().json()

        logged = (await get("/runs/get"))["run"]
        assert logged["info"]["status"] == "FINISHED"
        assert session.finished_at is not None
        assert logged["info"]["end_time"] == int(session.finished_at.timestamp() * 1000)
        steps = (await get("/metrics/get-history", metric_key="se"))["metrics"]
        assert [(one["step"], one["value"], one["timestamp"]) for one in steps] == [
            (n, point["se"], int(datetime.fromisoformat(point["answered_at"]).timestamp() * 1000))
            for n, point in enumerate(points, 1)
            if point["se"] is not None
        ]
        metrics = {one["key"]: one["value"] for one in logged["data"]["metrics"]}
        assert session.score is not None
        assert metrics["predicted_score"] == session.score.value
        assert (metrics["items"], metrics["theta"]) == (8, points[-1]["theta"])
        assert {"key": "bank", "value": "demo"} in logged["data"]["params"]
        files = (await get("/artifacts/list"))["files"]
        assert [one["path"] for one in files] == ["report.html"]


class EvalHub:
    """Receives what EvalHub's service is sent about jobs."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        route = "/api/v1/evaluations/jobs/{job}/events"
        self.app = Starlette(routes=[Route(route, self._hear, methods=["POST"])])

    async def _hear(self, request: Request) -> Response:
        self.heard.append((await request.json())["benchmark_status_event"])
        return Response(status_code=204)


@needs("eval-hub-sdk[adapter]", "evalhub")
async def test_a_job_of_evalhub_is_a_session(sextant: AsyncSextant, tmp_path: Path) -> None:
    hub = EvalHub()
    model = create_model_server(theta=0.5, seed=1, latency_s=0.02)
    with serving(hub.app) as hub_url, serving(model) as model_url:
        job = {
            "id": "job-1",
            "provider_id": "sextant",
            "benchmark_id": "demo",
            "benchmark_index": 0,
            "model": {"url": f"{model_url}/v1", "name": "sextant-demo"},
            "num_examples": 8,
            "parameters": {"seed": 3, "stopping": {"min_items": 8}},
            "callback_url": hub_url,
        }

        async def begin(**changes: Any) -> tuple[int | None, str, str]:
            file = tmp_path / "job.json"
            await asyncio.to_thread(file.write_text, json.dumps({**job, **changes}))
            where = {"EVALHUB_MODE": "local", "EVALHUB_JOB_SPEC_PATH": str(file)}
            return await run("evalhub_provider.py", **where)

        code, _, complained = await begin()
        assert code == 0, complained
        again, _, complained = await begin()
        assert again == 0, complained
        refused = await begin(id="job-2", benchmark_id="nowhere")
        saved = {"name": "saved", "kind": "scripted", "model": "m-1"}
        endpoint = await sextant.request("POST", "/v1/endpoints", json=saved)
        other = await begin(id="job-3", parameters={"endpoint_id": endpoint["id"]})
    (session,) = await sextant.list_sessions()
    assert (session.seed, session.progress.items, session.status) == (3, 8, "completed")
    assert session.score is not None
    assert session.score.interval is not None
    ends = [event for event in hub.heard if event["status"] == "completed"]
    assert len(ends) == 2
    for end in ends:
        assert (end["id"], end["provider_id"]) == ("demo", "sextant")
        assert end["overall_score"] == end["metrics"]["predicted_score"] == session.score.value
        assert end["metrics"]["predicted_score_lo"] == session.score.interval.lo
        assert end["metrics"]["theta"] == session.estimate.theta
        assert end["additional_info"]["id"] == session.id
    failures = [event for event in hub.heard if event["status"] == "failed"]
    for (code, _, complained), failure, words in zip(
        (refused, other), failures, ("nowhere", "got end_"), strict=True
    ):
        assert (code, failure["error_message"]["message"]) == (1, complained.splitlines()[-1])
        assert words in complained


@needs("mcp>=2", "mcp")
async def test_agents_measure_compare_and_gate(sextant: AsyncSextant) -> None:
    from mcp.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    program = StdioServerParameters(
        command=sys.executable,
        args=[str(EXAMPLES / "mcp_server.py")],
        env={name: os.environ[name] for name in ("SEXTANT_SERVER", "SEXTANT_API_KEY")},
    )
    first = await by_hand(sextant)
    with serving(create_model_server(theta=2.0, seed=1)) as model_url:
        async with Client(stdio_client(program)) as agent:

            async def call(tool: str, **given: Any) -> Any:
                answer = await agent.call_tool(tool, given)
                assert not answer.is_error, answer.content
                return answer.structured_content

            tools = (await agent.list_tools()).tools
            assert {tool.name for tool in tools} == {
                "list_banks",
                "start_session",
                "get_session",
                "compare_sessions",
                "gate_session",
            }
            (bank,) = (await call("list_banks"))["result"]
            model = {"base_url": f"{model_url}/v1", "model": "sextant-demo"}
            begun = await call("start_session", bank=bank["name"], max_items=8, **model)
            ended = await call("get_session", session_id=begun["id"], wait_s=30)
            assert (ended["status"], ended["items"]) == ("completed", 8)
            whole = await sextant.get_session(begun["id"])
            assert whole.score is not None
            assert ended["score"] == whole.score.value
            assert await call("compare_sessions", first=begun["id"], second=first.id) == (
                await sextant.compare(begun["id"], first.id)
            ).model_dump(mode="json")
            gate = await call("gate_session", session_id=begun["id"], threshold=0.01)
            assert (gate["outcome"], gate["value"]) == ("go", ended["score"])
            held = {"baseline": first.id, "tolerance": 0.02}
            gate = await call("gate_session", session_id=begun["id"], **held)
            assert gate["threshold"] == -0.02

            wrong = await agent.call_tool("start_session", {"bank": "nowhere", **model})
            assert wrong.is_error
            assert "nowhere" in wrong.content[0].model_dump()["text"]
