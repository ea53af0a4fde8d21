"""`sextant sessions rescore`: stored answers marked again from the shell."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli import build
from app.demo.model_server import create_model_server
from tests.servers import serving


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    with serving(create_model_server(theta=0.0, seed=7)) as url:
        yield f"{url}/v1"


def sextant(*arguments: str) -> Result:
    return CliRunner().invoke(build(arguments[0]), arguments)


def test_what_another_scorer_changes_is_shown(
    database_url: str, model_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("SEXTANT_DATA_DIR", str(tmp_path))
    first = sextant(
        *("run", "--endpoint", model_url, "--model", "m", "--bank", "demo", "--seed", "1"),
        *("--max-items", "12", "--min-items", "12", "--concurrency", "4", "--json", "-"),
    )
    assert first.exit_code == 0, first.stderr
    old = json.loads(first.stdout)

    again = ("sessions", "rescore", old["id"], "--scorer", "pattern", "--params", '{"pattern":"."}')
    shown = sextant(*again)
    assert shown.exit_code == 0, shown.stderr
    told = sextant(*again, "--json", "-")
    found = json.loads(told.stdout)

    assert found["session"]["parent_id"] == old["id"]
    assert found["session"]["rescore"]["answers"] == 12
    changed = [change["item_id"] for change in found["changes"] if change["changed"]]
    assert len(changed) == found["session"]["rescore"]["changed"] > 0
    assert f"{len(changed)} of 12 answers changed" in shown.stdout
    assert all(item in shown.stdout for item in changed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--params", "{}"), "--params belong to a scorer"),
        (("--scorer", "exact", "--params", "{"), "expected a JSON object"),
        (("--scorer", "exact", "--params", "[]"), "expected a JSON object"),
    ],
)
def test_parameters_that_are_none_are_refused(arguments: tuple[str, ...], words: str) -> None:
    failed = sextant("sessions", "rescore", "ses_1", *arguments)
    assert failed.exit_code == 2
    assert words in failed.stderr
