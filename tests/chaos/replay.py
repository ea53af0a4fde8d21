"""Replays sessions from their stored answers through the public interface of the engine.

python -m tests.chaos.replay < FACTS        thetas and standard errors of each session, as JSON
"""

import json
import sys
from typing import Any

from app.engine import Design, ItemBank, ItemIndex, Response


def replay(facts: dict[str, Any]) -> list[list[tuple[float, float]]]:
    """Return theta and SE after each answer of each session, and the final reported ones."""
    bank = ItemBank(**facts["bank"])
    told = []
    for session in facts["sessions"]:
        design = dict(session["design"])
        for name in ("failures", "pretest", "repeats", "cache"):
            design.pop(name, None)
        test = Design.from_dict(design).build(bank)
        state = test.start()
        for position, probability in session["asked"]:
            state = state.with_pending(ItemIndex(position), probability or 1.0)
        after = []
        for position, score in session["closed"]:
            item = ItemIndex(position)
            answered = score is not None
            state = (
                test.tell(state, Response(item, score)) if answered else state.with_unscored(item)
            )
            after.append((state.belief.theta, state.belief.se))
        estimate = test.estimate(state)
        told.append([*after, (estimate.theta, estimate.se)])
    return told


if __name__ == "__main__":
    json.dump(replay(json.load(sys.stdin)), sys.stdout)
