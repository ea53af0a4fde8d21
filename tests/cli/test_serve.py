from pathlib import Path

import pytest

from app.cli.commands import serve
from app.cli.servers.logins import Target, keep_login
from app.settings import Settings
from tests.cli.shell import refused


def test_an_invalid_key_is_refused_in_one_line_before_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEXTANT_SECRET_KEY", "abc")
    assert "SEXTANT_SECRET_KEY is not base64" in refused("serve", "--port", "0")


def test_the_printed_key_command_uses_the_database_of_this_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert serve.key_command(Settings()) == "sextant keys create NAME"
    monkeypatch.setenv("SEXTANT_DATA_DIR", "/data of mine")
    assert serve.key_command(Settings()) == (
        "SEXTANT_DATA_DIR='/data of mine' sextant keys create NAME"
    )
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:secret@db/sextant")
    assert serve.key_command(Settings()) == "DATABASE_URL=... sextant keys create NAME"
    keep_login(Target("https://sextant.example.org", None))
    assert serve.key_command(Settings()).endswith(" --server local")
