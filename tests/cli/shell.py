"""Commands as the shell calls them."""

import json
from typing import Any

from typer.testing import CliRunner, Result

from app.cli import build


def sextant(*words: object, given: str | None = None) -> Result:
    """What becomes of a command; `given` is typed in."""
    said = [str(word) for word in words]
    return CliRunner().invoke(build(said[0]), said, input=given)


def done(*words: object) -> Result:
    """What becomes of a command that works."""
    result = sextant(*words)
    assert result.exit_code == 0, result.output
    return result


def told(*words: object) -> dict[str, Any]:
    """What a command writes as JSON."""
    document: dict[str, Any] = json.loads(done(*words, "--json", "-").stdout)
    return document


def refused(*words: object, code: int = 2) -> str:
    """Why a command refuses its input, in one line."""
    result = sextant(*words)
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    return " ".join(result.stderr.replace("│", " ").split())
