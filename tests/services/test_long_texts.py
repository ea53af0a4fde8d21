"""Long answers are stored as beginning and end, and marked as shortened."""

import hashlib

from app.services.scoring import MAX_CHARS, cut, is_cut


def test_both_ends_and_the_hash_of_the_whole_stay() -> None:
    whole = "head" + "é" * 4_000_000 + "tail"
    kept = cut(whole)
    assert kept is not None
    assert len(kept) < MAX_CHARS + 200
    assert kept.startswith("headé")
    assert kept.endswith("étail")
    assert hashlib.sha256(whole.encode()).hexdigest() in kept
    assert is_cut(kept)


def test_a_short_answer_stays_whole() -> None:
    for text in (None, "", "x" * MAX_CHARS):
        assert cut(text) == text
        assert not is_cut(text)
    assert not is_cut("y" * (MAX_CHARS + 50))
