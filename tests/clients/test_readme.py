"""The client's README, whose code is run unchanged."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import Running

README = Path(__file__).parents[2] / "clients/python/README.md"


async def test_the_code_of_the_readme_works(
    server: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEXTANT_SERVER", server.url)
    monkeypatch.setenv("SEXTANT_API_KEY", server.key)
    fences = re.findall(r"^```(\w+)\n(.*?)^```$", README.read_text("utf-8"), re.M | re.S)
    assert {language for language, _ in fences} == {"python"}
    names: dict[str, Any] = {}
    for _, code in fences:
        await asyncio.to_thread(exec, compile(code, README, "exec"), names)
    said = capsys.readouterr().out
    assert "session.completed" in said
    assert "invalid_input [('/path/session_id'," in said
