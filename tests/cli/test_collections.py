"""Full collections of garbage stay short, however much is in memory."""

import gc

import pytest

from app.cli import runtime
from app.cli.runtime import ShortCollections


def test_what_a_long_collection_has_kept_is_not_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collections = ShortCollections()
    kept: list[list[object]] = [[] for _ in range(1000)]
    gc.callbacks.append(collections)
    try:
        before = gc.get_freeze_count()
        monkeypatch.setattr(runtime, "_LONG_COLLECTION_S", 3600.0)
        gc.collect()
        # What earlier tests have left may take some of what is kept with it.
        assert gc.get_freeze_count() <= before
        monkeypatch.setattr(runtime, "_LONG_COLLECTION_S", -1.0)
        before = gc.get_freeze_count()
        gc.collect(1)
        assert gc.get_freeze_count() <= before
        gc.collect()
        assert gc.get_freeze_count() >= before + len(kept)
    finally:
        gc.callbacks.remove(collections)  # what is kept stays so, as in all tests
