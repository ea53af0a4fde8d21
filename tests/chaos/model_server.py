"""A model over HTTP that logs each call when it arrives and each reply before it is sent.

It knows only its own items and answers from (seed, model, item). At a given rate it shows
every fault that an endpoint may have. Each answer carries the number of its call, so that a stored
answer identifies one line of the log. The log outlives the process.

    python -m tests.chaos.model_server --port 8123 --log LOG --seed 7 --fault-rate 0.15
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

N_ITEMS: Final = 120
#: Finds an item's key in a prompt.
ITEM_IN_PROMPT: Final = r"\bq\d{3}\b"
_NAMES: Final = [f"q{nth:03d}" for nth in range(N_ITEMS)]
KEY_OF: Final = {name: "ABCD"[(7 * nth) % 4] for nth, name in enumerate(_NAMES)}
#: Slope and difficulty.
PARAMETERS: Final = {
    name: (0.8 + 0.1 * (nth % 9), -2.0 + 4.0 * nth / N_ITEMS) for nth, name in enumerate(_NAMES)
}


def p_right(item: str, theta: float) -> float:
    """Return the probability that an examinee of ability `theta` answers an item right."""
    a, b = PARAMETERS[item]
    return 1 / (1 + math.exp(-a * (theta - b)))


def bank_items() -> list[dict[str, Any]]:
    """Return the items as they are imported; the checker knows all right answers."""
    options = ["north", "east", "south", "west"]
    return [
        {"key": name, "prompt": f"Question {name}: whence?", "choices": options, "target": key}
        for name, key in KEY_OF.items()
    ]


def bank_parameters() -> str:
    """Return their parameters as CSV."""
    rows = [f"{name},{a},{b},0,1" for name, (a, b) in PARAMETERS.items()]
    return "\n".join(["item,a,b,c,d", *rows])


GOOD: Final = "good"
#: Written, but too late for a caller with the time limit of `load.py`.
SLOW: Final = "slow"
#: Answers that arrive but have no score.
UNMARKED: Final = ("babble", "refusal")
FAULTS: Final = ("rate_limited", "error_500", "cut", SLOW, "garbage", "empty", *UNMARKED)
_LATE_S = 4.0


@dataclass(slots=True)
class Model:
    """The model's answers and its memory of calls, all of which its log contains."""

    log: int
    seed: int
    fault_rate: float
    latency_s: float
    asked: Counter[tuple[str, str]] = field(default_factory=Counter)
    calls: int = 0

    def note(self, **line: Any) -> None:
        """Write one line of the log, atomically."""
        os.write(self.log, json.dumps(line).encode() + b"\n")

    def drawn(self, *what: object) -> Iterator[float]:
        """Return numbers in [0, 1) that depend on the seed and on `what`."""
        digest = sha256(":".join(map(str, (self.seed, *what))).encode()).digest()
        return (number / 2**64 for number in struct.unpack("4Q", digest))

    async def reply(self, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Return status and JSON of a reply; a string is sent incompletely."""
        model, prompt = str(body["model"]), str(body["messages"])
        found = re.search(ITEM_IN_PROMPT, prompt)
        item = found[0] if found else "?"
        self.calls += 1
        call = f"{os.getpid()}-{self.calls}"
        self.asked[model, item] += 1
        self.note(call=call, model=model, item=item)
        where, which, wait, _ = self.drawn(model, item, self.asked[model, item])
        kind = FAULTS[int(which * len(FAULTS))] if where < self.fault_rate else GOOD
        await asyncio.sleep(_LATE_S if kind == SLOW else (0.5 + wait) * self.latency_s)
        right, wrong, *_ = self.drawn(model, item)
        theta = next(self.drawn(model)) * 4 - 2
        others = "ABCD".replace(KEY_OF[item], "")
        letter = KEY_OF[item] if right < p_right(item, theta) else others[int(wrong * 3)]
        text = f"[{call}] " + ("Who can say?" if kind == "babble" else f"The answer is {letter}.")
        self.note(reply=call, kind=kind, text=text)
        match kind:
            case "rate_limited":
                return 429, {"error": {"message": "Slow down."}}
            case "error_500":
                return 500, {"error": {"message": "The engine fell over."}}
            case "cut" | "garbage":
                return (200, '{"choices": [{"mess') if kind == "cut" else (200, ["?"])
            case "empty":
                return 200, {"choices": []}
            case _:
                pass
        refuses = kind == "refusal"
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": "" if refuses else text},
            "finish_reason": "content_filter" if refuses else "stop",
        }
        usage = {"prompt_tokens": 20, "completion_tokens": 5}
        return 200, {"model": model, "choices": [choice], "usage": usage}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"(?i)content-length: *(\d+)", head)
                body = await reader.readexactly(int(length[1])) if length else b"{}"
                status, said = await self.reply(json.loads(body))
                sent = (said if isinstance(said, str) else json.dumps(said)).encode()
                announced = len(sent) + 1000 * isinstance(said, str)
                writer.write(
                    f"HTTP/1.1 {status} .\r\ncontent-type: application/json\r\n"
                    f"retry-after: 0.1\r\ncontent-length: {announced}\r\n\r\n".encode()
                    + sent
                )
                await writer.drain()
                if announced > len(sent):
                    break
        writer.close()


def past(log: Path) -> Counter[tuple[str, str]]:
    """Return from the log how often each model was asked each item."""
    lines = map(json.loads, log.read_bytes().splitlines() if log.exists() else ())
    return Counter((line["model"], line["item"]) for line in lines if "call" in line)


async def _main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault-rate", type=float, default=0.15)
    parser.add_argument("--latency-s", type=float, default=0.3)
    given = parser.parse_args()
    asked = past(given.log)
    log = os.open(given.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    model = Model(log, given.seed, given.fault_rate, given.latency_s, asked)
    server = await asyncio.start_server(model.serve, "127.0.0.1", given.port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main())
