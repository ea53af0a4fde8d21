"""Commands called as from a shell."""

import json
from typing import Any

from typer.testing import CliRunner, Result

from app.cli import build


def sextant(*words: object, given: str | None = None) -> Result:
    """Run a command with `given` as its standard input, and return its result."""
    said = [str(word) for word in words]
    return CliRunner().invoke(build(said[0]), said, input=given)


def done(*words: object) -> Result:
    """Run a command that must succeed, and return its result."""
    result = sextant(*words)
    assert result.exit_code == 0, result.output
    return result


def told(*words: object) -> dict[str, Any]:
    """Run a command and return its JSON output."""
    document: dict[str, Any] = json.loads(done(*words, "--json", "-").stdout)
    return document


def refused(*words: object, code: int = 2) -> str:
    """Run a command that must refuse its input, and return the one line of its error."""
    result = sextant(*words)
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    return " ".join(result.stderr.replace("│", " ").split())
