"""The API keeps to its description: schemathesis against a running server.

This run is short, with a fixed seed. `schemathesis.toml` has the command for a full run.
"""

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

from app.main import ApiServer, create_app
from app.services.api_keys import ApiKeyService
from app.settings import Settings
from app.storage.database import Database
from tests.api.test_webhooks import HOOK

ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 1200  # beside other work; alone it takes a minute


@pytest.mark.slow
async def test_the_served_api_keeps_to_its_description(
    settings: Settings, database: Database, tmp_path: Path
) -> None:
    keys = ApiKeyService(database)
    own, key = await keys.create(name="schemathesis", scopes=["admin"])
    other, _ = await keys.create(name="other", scopes=["admin"])
    app = create_app(settings, database)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = ApiServer(uvicorn.Config(app, log_config=None, access_log=False), app)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            existing = await _something_of_each(url, key)
            existing |= {"key_id": str(other.id), "own_key_id": str(own.id)}
            code, output = await _schemathesis(url, key, existing, tmp_path)
        finally:
            server.should_exit = True
            await serving
    assert code == 0, output


async def _something_of_each(url: str, key: str) -> dict[str, str]:
    """Create one of each resource for the calls to find, by path parameter."""
    headers = {"Authorization": f"Bearer {key}"}
    items = "".join(
        json.dumps({"key": f"q{n}", "prompt": f"{n} + 1 = ?", "target": str(n + 1)}) + "\n"
        for n in range(5)
    )
    parameters = "item,a,b,c,d\n" + "".join(f"q{n},1.2,{n - 2},0,1\n" for n in range(5))
    async with httpx2.AsyncClient(base_url=f"{url}/v1", headers=headers, timeout=60) as client:

        async def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
            response = await client.post(path, json=body)
            assert response.is_success, response.text
            made: dict[str, Any] = response.json()
            return made

        # Made at the first request; the reader below waits 10 s for it.
        assert (await client.get(f"{url}/openapi.json")).is_success
        await post("/banks", {"name": "demo", "default_scorer": {"name": "numeric"}})
        await post(
            "/banks/demo/imports",
            {
                "items": {"name": "items.jsonl", "content": items},
                "parameters": {"content": parameters},
            },
        )
        await post("/response-sets", {"name": "recorded"})
        scores = {"name": "scores.csv", "content": "model,q1,q2\nm1,1,0\nm2,0,1\nm3,,1\n"}
        await post("/response-sets/recorded/imports", {"files": [scores]})
        calibration = await post(
            "/calibrations", {"response_set": "recorded", "filters": {"least_point_biserial": None}}
        )
        endpoint = await post("/endpoints", {"name": "simulated", "kind": "scripted"})
        session = await post("/sessions", {"mode": "manual", "bank": "demo"})
        gate = await post("/gates", {"session_id": session["id"], "threshold": 0.0})
        other = await post("/endpoints", {"name": "another", "kind": "scripted"})
        ranked = [{"endpoint_id": each["id"]} for each in (endpoint, other)]
        ranking = await post("/rankings", {"bank": "demo", "endpoints": ranked, "min_items": 2})
        webhook = await post("/webhooks", HOOK)
        told = (await client.get(f"/webhooks/{webhook['id']}/deliveries")).json()["data"]
    return {
        "bank": "demo",
        "response_set": "recorded",
        "version": "latest",
        "item": "q1",
        "calibration_id": calibration["id"],
        "endpoint_id": endpoint["id"],
        "session_id": session["id"],
        "gate_id": gate["id"],
        "ranking_id": ranking["id"],
        "webhook_id": webhook["id"],
        "delivery_id": told[0]["id"],
        "name": "numeric",
    }


async def _schemathesis(
    url: str, key: str, existing: dict[str, str], directory: Path
) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("schemathesis")),
        "--no-color",
        "run",
        f"{url}/openapi.json",
        "--checks=all",
        f"--header=Authorization: Bearer {key}",
        "--phases=examples,fuzzing,stateful",
        "--max-examples=3",
        "--seed=1",
        "--generation-deterministic",
        "--no-shrink",
        cwd=ROOT,
        env={**os.environ, "SEXTANT_EXISTING": json.dumps(existing), "TMPDIR": str(directory)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _TIMEOUT_S)
    except TimeoutError:
        process.kill()
        output, _ = await process.communicate()
    return process.returncode, output.decode(errors="replace")
