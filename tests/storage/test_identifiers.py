import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.storage import identifiers
from app.storage.identifiers import may_name, new_id


def test_an_id_has_a_prefix_and_26_unambiguous_characters() -> None:
    prefix, body = new_id("ses").split("_")
    assert prefix == "ses"
    assert len(body) == 26
    assert set(body) <= set("0123456789abcdefghjkmnpqrstvwxyz")


def test_ids_sort_by_time_of_creation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identifiers, "_latest", 0)
    # Far apart and adjacent times: the first character and the last one of the time must count.
    moments = [0, 1, 31, 32, 1_700_000_000_000, 1_700_000_000_001, 2**47]
    ids = []
    for moment in moments:
        monkeypatch.setattr(time, "time_ns", lambda now=moment: now * 1_000_000)
        ids.append(new_id("itm"))
    assert ids == sorted(ids)


def test_ids_of_one_moment_sort_in_the_order_of_creation() -> None:
    ids = [new_id("itm") for _ in range(10_000)]
    assert ids == sorted(set(ids))


def test_ids_keep_their_order_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = new_id("itm")
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert new_id("itm") > before


def test_threads_never_get_the_same_id() -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: new_id("itm"), range(5_000)))
    assert len(set(ids)) == 5_000


def test_valid_names() -> None:
    made = new_id("end")
    assert may_name(new_id("end"), like=made)
    for other in (
        new_id("ses"),
        "end_" + "0" * 26,  # in 1970
        "end_" + "7" + "z" * 25,  # in 10,000 years
        made[:-1],
        made + "0",
        made[:-1] + "u",
        made.upper(),
        "end_é" + made[5:],
        "",
    ):
        assert not may_name(other, like=made), other
