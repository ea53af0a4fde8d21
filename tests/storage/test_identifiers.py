import time

import pytest

from app.storage.identifiers import new_id


def test_an_id_has_its_prefix_and_26_characters_that_cannot_be_misread() -> None:
    prefix, body = new_id("ses").split("_")
    assert prefix == "ses"
    assert len(body) == 26
    assert set(body) <= set("0123456789abcdefghjkmnpqrstvwxyz")


def test_ids_sort_by_time_of_creation(monkeypatch: pytest.MonkeyPatch) -> None:
    # Far apart and adjacent: the first character, and the last one of the time, must count.
    moments = [0, 1, 31, 32, 1_700_000_000_000, 1_700_000_000_001, 2**47]
    ids = []
    for moment in moments:
        monkeypatch.setattr(time, "time_ns", lambda now=moment: now * 1_000_000)
        ids.append(new_id("itm"))
    assert ids == sorted(ids)


def test_ids_of_the_same_moment_differ() -> None:
    assert len({new_id("itm") for _ in range(10_000)}) == 10_000
