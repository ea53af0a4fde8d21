"""Figures shown to a caller who may not see a withheld bank's texts."""

from datetime import UTC, datetime

from app.records.leased import StoredEvent
from app.services.visibility import UNTOLD, View


def test_only_sentences_made_of_numbers_are_shown() -> None:
    stands = {"standing": "above", "detail": "This examinee is stronger than all."}
    estimate = {"theta": None, "reason": "No answer is marked.", "extrapolation": stands}
    member = {"rank_lo": 1, "reason": "Only 3 answers are marked.", "left_behind": "It said: 42"}
    data = {
        "estimate": estimate,
        "order": [member | {"extrapolation": stands}],
        "detail": "It said: 42",
        "reason": "No number in 'It said: 42'.",
    }
    now = datetime(2026, 1, 1, tzinfo=UTC)
    event = StoredEvent("session.failed", data, seq=1, created_at=now, withheld=True)
    told = View(is_whole=False).event(event).data
    assert told["estimate"] == estimate
    (entry,) = told["order"]
    assert (entry["extrapolation"], entry["reason"]) == (stands, member["reason"])
    assert (entry["left_behind"], told["detail"], told["reason"]) == (UNTOLD, UNTOLD, None)
