import pytest
import typer
from typer.testing import CliRunner

from app.cli import serve


def test_a_key_that_is_none_is_refused_in_one_line_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SEXTANT_SECRET_KEY", "abc")
    cli = typer.Typer()
    cli.command()(serve.command)
    result = CliRunner().invoke(cli, ["--port", "0"])
    assert result.exit_code == 2
    assert "SEXTANT_SECRET_KEY is not base64" in result.output
    assert "Traceback" not in result.output
