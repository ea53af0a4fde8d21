"""An MCP server of five tools, over standard input and output, for agents that measure models.

pip install "mcp>=2" ./clients/python
export SEXTANT_SERVER=http://127.0.0.1:8000 SEXTANT_API_KEY=sx_...
python examples/mcp_server.py
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

try:
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    from sextant_client import Sextant, SextantError
    from sextant_client.models import Bank, Comparison, Gate
except ImportError as missing:
    sys.exit(f'{missing}: pip install "mcp>=2" ./clients/python')

server = MCPServer(
    "sextant",
    instructions="Measures how able a language model is, in few questions. Start a session, look "
    "at it until it has ended, then compare it with another or hold it against a threshold.",
)


@contextmanager
def _sextant() -> Iterator[Sextant]:
    """A client whose problems the agent reads: of other exceptions it is told nothing."""
    try:
        with Sextant() as client:
            yield client
    except (SextantError, ValueError) as error:
        raise ToolError(str(error)) from None


@server.tool()
def list_banks() -> list[Bank]:
    """Banks of questions that a model can be measured on."""
    with _sextant() as sextant:
        return sextant.list_banks()


@server.tool()
def start_session(
    bank: str,
    endpoint_id: str | None = None,
    base_url: str | None = None,
    model: str | None = None,
    max_items: int = 60,
    max_tokens: int = 100_000,
) -> dict[str, Any]:
    """Start to measure a model, which costs calls to it: at most so many questions and tokens.

    Name a saved endpoint, which has a key, or give `base_url` and `model` of one without.
    """
    given: dict[str, Any] = {"endpoint_id": endpoint_id}
    if base_url is not None or model is not None:
        given["endpoint"] = {"kind": "openai_chat", "base_url": base_url, "model": model}
    stopping, budget = {"max_items": max_items}, {"tokens": max_tokens}
    with _sextant() as sextant:
        started = sextant.create_session(bank, stopping=stopping, budget=budget, **given)
    return _brief(started.id)


@server.tool()
def get_session(session_id: str, wait_s: int = 0) -> dict[str, Any]:
    """How a session stands; waits up to 30 seconds for its end.

    `score` is predicted for the whole bank, and `interval` is its 95 % interval.
    """
    return _brief(session_id, wait_s)


def _brief(session_id: str, wait_s: int = 0) -> dict[str, Any]:
    seen: dict[str, str | int] = {"view": "brief", "wait": wait_s}
    with _sextant() as sextant:
        brief = sextant.request("GET", f"/v1/sessions/{session_id}", params=seen)
        failure = sextant.get_session(session_id).failure if brief["status"] == "failed" else None
    return brief if failure is None else brief | {"failure": failure.detail}


@server.tool()
def compare_sessions(first: str, second: str, confidence: float = 0.95) -> Comparison:
    """Is one of two measured models better? Differences are first minus second."""
    with _sextant() as sextant:
        return sextant.compare(first, second, confidence=confidence)


@server.tool()
def gate_session(
    session_id: str,
    threshold: float | None = None,
    baseline: str | None = None,
    tolerance: float | None = None,
    confidence: float = 0.95,
) -> Gate:
    """Go, no_go or inconclusive: is the score above a threshold, or not worse than a baseline?

    Give `threshold`, or `baseline` (a stored name or an ended session) with `tolerance`; both are
    shares, so that 0.02 is two points.
    """
    held: dict[str, Any] = {"baseline": baseline, "tolerance": tolerance, "confidence": confidence}
    with _sextant() as sextant:
        return sextant.create_gate(threshold, session_id=session_id, **held)


if __name__ == "__main__":
    server.run()
