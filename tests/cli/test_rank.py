"""What `sextant rank` shows while it watches."""

from typing import Any

from app.cli.commands.rank import _leading, _table


def test_a_table_tells_the_interval_and_reads_events_from_before_it_was_kept() -> None:
    entry: dict[str, Any] = {
        "rank_lo": 1,
        "rank_hi": 1,
        "name": "large",
        "model": "m",
        "theta": 2.5,
        "items": 20,
        "scored": 20,
        "usd": None,
    }
    table = _table({"order": [{**entry, "interval": {"lo": 1.4, "hi": 2.6}}, entry]})
    assert list(table.columns[4].cells) == ["+1.40 to +2.60", "-"]


def test_who_has_no_result_yet_leads_nobody() -> None:
    none, some = {"model": "tiny", "theta": None}, {"model": "large", "theta": -2.0}
    assert _leading({"order": [none, some]}) == "large"
    assert _leading({"order": [none]}) == "no result yet"
