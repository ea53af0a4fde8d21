"""`sextant banks drift`, `recalibrate` and `sextant calibrations`, called as from a shell."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from app.settings import Settings
from app.storage.database import Database
from tests.cli.shell import done, refused, told
from tests.services.sessions import opened
from tests.services.test_recalibration import MOVED, world

pytestmark = pytest.mark.usefixtures("fits_here", "own_database")


@pytest.fixture
def living(database_url: str, tmp_path: Path) -> None:
    async def fill() -> None:
        database = Database(database_url)
        settings = Settings(database_url=database_url, data_dir=tmp_path / "data")
        async with opened(settings, database) as services:
            await world(services, n=800)
        await database.dispose()

    asyncio.run(fill())


@pytest.mark.usefixtures("living", "own_server")
def test_drift_is_shown_and_versions_are_made(tmp_path: Path) -> None:
    report = tmp_path / "drift.json"
    shown = done("banks", "drift", "living", "--responses", "live", "--json", report)
    assert "became easier" in shown.stdout
    assert "easier: leaked?" in shown.stdout
    document = json.loads(report.read_text(encoding="utf-8"))
    leaked = [item["key"] for item in document["data"] if item["possibly_leaked"]]
    assert leaked
    assert set(leaked) <= set(MOVED)
    assert document["figures"]["drifted"] == len(leaked)

    made = done("banks", "recalibrate", "living", "--responses", "live", "--keep", leaked[0])
    assert "version 2 on scale old" in made.stdout
    assert f"{len(leaked) - 1} set aside, 1 in pretest" in made.stdout
    listed = done("banks", "lint", "living").stdout
    assert all(f"Item '{key}' has become easier" in listed for key in leaked)
    assert "nothing" in refused("banks", "drift", "living", "--responses", "nothing")

    # Stored answers can also be calibrated without the old version.
    start = ("calibrations", "start", "live", "--no-report-card")
    made = done(*start, "--model", "1pl", "--bank", "anew")
    assert "completed" in made.stdout
    found = told("calibrations", "list")["data"][0]
    assert found["bank_version_id"] in made.stdout
    assert found["settings"]["filters"]["greatest_mean"] == 0.95
    assert told("calibrations", "publish", found["id"], "--bank", "anew")["number"] == 1
    # A bank that lacks some of the items is told which parameters it did not get.
    text = json.dumps({"key": leaked[0], "prompt": "1 + 1 = ?", "target": "2"})
    items = tmp_path / "few.jsonl"
    items.write_text(text, encoding="utf-8")
    done("banks", "import", "few", "--items", items)
    few = done("calibrations", "publish", found["id"], "--bank", "few").stdout
    assert re.search(r"1 active.* \d+ left out, since the bank has no such items \(\w+, \w+", few)
    # Of the items that do not measure ability, and of those set aside, it tells how many.
    listing = done("calibrations", "show", found["id"]).stdout
    why = listing.partition("count in the score, tell nothing about ability: ")[2]
    n_score_only = found["result"]["score_only_items"]["n"]
    assert sum(map(int, re.findall(r"\d+", why.partition("\n")[0]))) == n_score_only > 0
    assert re.search(r"published +\d+ active, \d+ set aside, \d+ in pretest", listing)
    assert "of 50 items have fewer than 1000 answers" in done(*start, "--model", "3pl").stderr
    assert "There is no bank 'nothing'" in refused(*start, "--link-to", "nothing")
    assert "--model: expected '1pl'" in refused(*start, "--model", "9pl")
    assert "--no-wait needs a server" in refused(*start, "--no-wait", "--server", "local")
