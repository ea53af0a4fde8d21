"""How long another key's first item waits while one key has many slow sessions.

Run: uv run python benchmarks/fairness.py [SESSIONS]
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

import httpx2

from app.cli.server import serving
from app.observability import configure_logging
from app.services.api_keys import ApiKeyService
from app.settings import Settings

SLOW_MS = 20_000


async def first_item(client: httpx2.AsyncClient, session: str) -> None:
    while True:
        if (await client.get(f"/v1/sessions/{session}/responses")).json()["data"]:
            return
        await asyncio.sleep(0.05)


async def main(n_sessions: int, scratch: Path) -> None:
    settings = Settings(data_dir=scratch / "data", port=0, log_level="error")
    configure_logging(settings)
    async with serving(settings) as server:
        keys = ApiKeyService(server.services.database)
        clients = []
        for name in ("many", "other"):
            _, secret = await keys.create(name=name, scopes=["read", "run"])
            headers = {"Authorization": f"Bearer {secret}"}
            clients.append(httpx2.AsyncClient(base_url=server.base_url, headers=headers))
        many, other = clients

        async def start(client: httpx2.AsyncClient, latency_ms: int) -> str:
            options = {"theta": 1, "latency_ms": latency_ms}
            endpoint = {"kind": "scripted", "model": "m", "options": options}
            body = {"bank": "demo", "endpoint": endpoint, "stopping": {"max_items": 5}}
            made = await client.post("/v1/sessions", json=body, timeout=60)
            return str(made.json()["id"])

        for _ in range(n_sessions):
            await start(many, SLOW_MS)
        await asyncio.sleep(3)
        waits = []
        for _ in range(3):
            began = time.perf_counter()
            session = await start(other, 0)
            await first_item(other, session)
            waits.append(round(time.perf_counter() - began, 2))
        running = (await many.get("/v1/sessions?status=running&limit=100")).json()["data"]
        print(json.dumps({"slow": n_sessions, "running": len(running), "wait_s": waits}))
        for client in clients:
            await client.aclose()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="sextant-") as directory:
        Path(directory).chmod(0o755)
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 150, Path(directory)))
