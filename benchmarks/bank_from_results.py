"""From results to a live session: are the prompts sent equal to the recorded ones?

Result directories of lm-eval, 60 models and 120 questions, written and multiple choice, become
banks by one command; another command tests a model over HTTP, and every prompt received is compared
with the `arguments` of the files, byte for byte. With `--inspect FOLDER` the same is done with real
logs of inspect, whose chats must equal those of the samples.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.exchange.lm_eval_files import folders


class Recorder(BaseHTTPRequestHandler):
    """A model that writes `#### 3`, gives likelihoods by length, and records its requests."""

    bodies: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.bodies.append(body)
        text = "It is 3\n#### 3\nANSWER: A"
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        if "messages" in body:
            choice: dict[str, Any] = {"message": {"role": "assistant", "content": text}}
        elif body.get("echo"):
            prompt = body["prompt"]
            logprobs = [None, *(-1.0 - (ord(c) % 7) for c in prompt[1:]), -1.0]
            choice = {
                "text": prompt + "x",
                "logprobs": {"tokens": [*prompt, "x"], "token_logprobs": logprobs},
            }
            usage["prompt_tokens"] = len(prompt)
        else:
            choice = {"text": text}
        choice |= {"index": 0, "finish_reason": "stop"}
        answer = json.dumps({"model": "m", "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    @override
    def log_message(self, *_: object) -> None:
        """Suppress the log."""


def recorded(rows: Iterable[dict[str, Any]]) -> set[bytes]:
    """Return the prompts in the `arguments` of some rows; for options, with the option appended."""
    found = set()
    for row in rows:
        for request in row["arguments"].values():
            after = request["arg_1"] if isinstance(request["arg_1"], str) else ""
            found.add((request["arg_0"] + after).encode())
    return found


def chats(folder: Path) -> set[bytes]:
    """Return the turns before the answers in inspect's JSON logs."""
    found = set()
    for path in folder.rglob("*.json"):
        for sample in json.loads(path.read_text())["samples"]:
            turns = [t for t in sample["messages"] if t["role"] != "assistant"]
            said = [{"role": t["role"], "content": t["content"]} for t in turns]
            found.add(json.dumps(said).encode())
    return found


def sextant(*arguments: str, home: Path) -> str:
    """Return the output of a command; its failure ends this program."""
    done = subprocess.run(
        [Path(sys.executable).with_name("sextant"), *arguments],
        env={**os.environ, "SEXTANT_DATA_DIR": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(arguments)}\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Create the banks, run sessions on them, and print how many prompts were equal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--questions", type=int, default=120)
    parser.add_argument("--inspect", type=Path, help="Folder of logs, one folder a task.")
    options = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)  # the embedded Postgres may run as another user
        sets: dict[str, tuple[Path, set[bytes], str]] = {}
        for task in ("sums", "colours"):
            files = folders(options.models, options.questions, tasks=[task])
            rows: list[dict[str, Any]] = []
            for name, text in files.items():
                path = folder / task / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                if "samples_" in name and not rows:
                    rows = [json.loads(line) for line in text.splitlines()]
            sets[task] = (folder / task, recorded(rows), "openai_completions")
        for logs in sorted(options.inspect.iterdir()) if options.inspect else ():
            sets[f"inspect-{logs.name}"] = (logs, chats(logs), "openai_chat")
        for name, (path, wanted, kind) in sets.items():
            began = time.perf_counter()
            made = sextant("banks", "from-results", name, str(path), home=folder / "home")
            seconds = time.perf_counter() - began
            Recorder.bodies.clear()
            told = ("--endpoint", url, "--model", "m", "--bank", name, "--kind", kind)
            sextant("run", *told, "--max-items", "40", home=folder / "home")
            sent = [
                body["prompt"].encode()
                if "prompt" in body
                else json.dumps(body["messages"]).encode()
                for body in Recorder.bodies
            ]
            same = sum(prompt in wanted for prompt in sent)
            print(made.splitlines()[0])
            print(f"  {seconds:.0f} s; {same} of {len(sent)} prompts as they were recorded")


if __name__ == "__main__":
    main()
