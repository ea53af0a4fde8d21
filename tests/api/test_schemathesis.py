"""The API keeps to its description: schemathesis against a running server.

This run is short, with a fixed seed. `schemathesis.toml` has the command for a full run.
"""

import asyncio
import json
import os
import socket
import sys
from pathlib import Path

import httpx2
import pytest
import uvicorn

from app.main import ApiServer, create_app
from app.services.api_keys import ApiKeyService
from app.settings import Settings
from app.storage.database import Database
from tests.api.test_projects import one_of_each

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
            headers = {"Authorization": f"Bearer {key}"}
            async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=60) as client:
                # Made at the first request; the reader below waits 10 s for it.
                assert (await client.get("/openapi.json")).is_success
                existing = await one_of_each(client)
            existing |= {"key_id": other.id, "own_key_id": own.id, "name": "numeric"}
            code, output = await _schemathesis(url, key, existing, tmp_path)
        finally:
            server.should_exit = True
            await serving
    assert code == 0, output


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
