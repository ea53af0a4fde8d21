"""`sextant banks drift`, `recalibrate` and `sextant calibrations` as the shell calls them."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from typer.testing import Result

from app.settings import Settings
from app.storage.database import Database
from tests.cli.shell import sextant
from tests.services.sessions import opened
from tests.services.test_recalibration import MOVED, world

pytestmark = pytest.mark.usefixtures("fits_here")

Run = Callable[..., Result]


@pytest.fixture
def run(database_url: str, tmp_path: Path, own_database: None) -> Run:
    async def fill() -> None:
        database = Database(database_url)
        settings = Settings(database_url=database_url, data_dir=tmp_path / "data")
        async with opened(settings, database) as services:
            await world(services, n=800)
        await database.dispose()

    asyncio.run(fill())
    return partial(sextant, "banks")


def test_drift_is_shown_and_versions_are_made(run: Run, tmp_path: Path) -> None:
    report = tmp_path / "drift.json"
    shown = run("drift", "living", "--responses", "live", "--json", report)
    assert shown.exit_code == 0, shown.output
    assert "became easier" in shown.stdout
    assert "easier: leaked?" in shown.stdout
    document = json.loads(report.read_text(encoding="utf-8"))
    leaked = [item["key"] for item in document["data"] if item["possibly_leaked"]]
    assert leaked
    assert set(leaked) <= set(MOVED)
    assert document["figures"]["drifted"] == len(leaked)

    made = run("recalibrate", "living", "--responses", "live", "--keep", leaked[0])
    assert made.exit_code == 0, made.output
    assert "version 2 on scale old" in made.stdout
    assert f"{len(leaked) - 1} set aside, 1 in pretest" in made.stdout
    listed = run("lint", "living").stdout
    assert all(f"Item '{key}' has become easier" in listed for key in leaked)

    wrong = run("drift", "living", "--responses", "nothing")
    assert wrong.exit_code == 2
    assert "nothing" in wrong.stderr

    # What is stored is also calibrated by itself.
    made = sextant(
        "calibrations", "start", "live", "--model", "1pl", "--no-report-card", "--bank", "anew"
    )
    assert made.exit_code == 0, made.output
    assert "completed" in made.stdout
    found = json.loads(sextant("calibrations", "list", "--json", "-").stdout)["data"][0]
    assert found["bank_version_id"] in made.stdout
    assert found["settings"]["filters"]["greatest_mean"] == 0.95

    again = sextant("calibrations", "publish", found["id"], "--bank", "anew", "--json", "-")
    assert json.loads(again.stdout)["number"] == 1, again.output
    unsure = sextant("calibrations", "start", "live", "--model", "3pl", "--no-report-card")
    assert "of 50 items have fewer than 1000 answers" in unsure.stderr
    linked = sextant("calibrations", "start", "live", "--link-to", "nothing")
    assert "There is no bank 'nothing'" in linked.stderr
    assert (
        "--model: expected '1pl'"
        in sextant("calibrations", "start", "live", "--model", "9pl").stderr
    )
    assert (
        "--no-wait needs a server" in sextant("calibrations", "start", "live", "--no-wait").stderr
    )
