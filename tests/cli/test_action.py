"""The GitHub Action: its steps run in their shells against a stub of GitHub's API."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from typing_extensions import override

from app.demo.model_server import create_model_server
from tests.servers import serving

ROOT = Path(__file__).parents[2]
POLICY = """
endpoint: {url}
model: m
session: {{seed: 1, stopping: {{min_items: 10, max_items: 10}}}}
rules: [{{name: sure enough, bank: demo, threshold: 0.99}}]
"""


class GitHub(ThreadingHTTPServer):
    """A server that keeps the comments of one pull request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.comments: list[dict[str, Any]] = [{"body": "hello", "url": "-"}] * 100
        self.url = f"http://127.0.0.1:{self.server_port}/comments"


class _Handler(BaseHTTPRequestHandler):
    server: GitHub

    def do_GET(self) -> None:
        page = int(self.path.rpartition("=")[2])
        self._say(self.server.comments[100 * (page - 1) : 100 * page])

    def do_POST(self) -> None:
        at = f"{self.server.url}/{len(self.server.comments)}"
        self.server.comments.append({**self._body(), "url": at})
        self._say({})

    def do_PATCH(self) -> None:
        self.server.comments[int(self.path.rpartition("/")[2])].update(self._body())
        self._say({})

    def _body(self) -> dict[str, Any]:
        assert self.headers["Authorization"] == "Bearer ghs_1"
        told: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return told

    def _say(self, body: object) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    @override
    def log_message(self, *_: object) -> None:
        """Suppress the log."""


@pytest.fixture
def github() -> Iterator[GitHub]:
    with GitHub() as server:
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


@pytest.mark.slow
def test_a_run_comments_once_and_the_next_one_updates_it_and_asks_nothing(
    github: GitHub, own_server: None, tmp_path: Path
) -> None:
    steps = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]
    _, decide, comment, outcome = steps
    outputs = tmp_path / "outputs"
    (tmp_path / "sextant").symlink_to(sys.prefix)  # stands for the install of the first step
    environment = {
        **os.environ,
        "RUNNER_TEMP": str(tmp_path),
        "POLICY": "sextant.yaml",
        "COMMIT": "abc",
        "GITHUB_OUTPUT": str(outputs),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "COMMENTS": github.url,
        "GITHUB_TOKEN": "ghs_1",
    }

    def run(step: dict[str, Any], **more: str) -> int:
        shell = ["bash", "-eo", "pipefail"] if step["shell"] == "bash" else [sys.executable]
        script = tmp_path / "script"
        script.write_text(step["run"])
        words = [*shell, str(script)]
        return subprocess.run(
            words, cwd=tmp_path, env={**environment, **more}, check=False
        ).returncode

    with serving(create_model_server(theta=1.5, seed=7)) as url:
        (tmp_path / "sextant.yaml").write_text(POLICY.format(url=f"{url}/v1"))
        said = []
        for _ in range(2):
            outputs.unlink(missing_ok=True)
            assert run(decide) == 0
            assert run(comment) == 0
            code = outputs.read_text().strip().removeprefix("code=")
            assert run(outcome, CODE=code) == 1
            (mine,) = [one for one in github.comments if one["body"] != "hello"]
            said.append(mine["body"])
    assert "no go" in said[0]
    assert said[1].replace(" of an earlier run", "") == said[0]  # the same session decides
    assert said[1] != said[0]
