"""Commands called as from a shell."""

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
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


def write_scores(
    path: Path,
    scores: Iterable[Iterable[float]],
    items: Sequence[str] | None = None,
    names: str | Sequence[str] = "m",
) -> Path:
    """Write a table of scores, a row an examinee; NaN leaves a cell empty, .gz compresses.

    Without `items` they are `i0`, `i1`, ...; `names` may be what the names of examinees begin with.
    """
    rows = [["" if np.isnan(score) else repr(float(score)) for score in row] for row in scores]
    head = ["model", *(items or [f"i{j}" for j in range(len(rows[0]))])]
    called = [f"{names}{i}" for i in range(len(rows))] if isinstance(names, str) else names
    lines = [head, *([name, *row] for name, row in zip(called, rows, strict=True))]
    text = "\n".join(map(",".join, lines)).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path
