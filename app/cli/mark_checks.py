"""What `sextant sessions check-marks` finds, in words and as JSON."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from app.cli.console import out
from app.cli.runtime import runtime
from app.cli.tables import show_table
from app.records.sessions import Closing
from app.services.sessions.mark_checks import Difference, MarkCheck

_WHY = {
    "no_answer": "have no stored text",
    "calls_out": "are marked by scorers that call out, which were not asked again (--call asks)",
    "no_content": "are to items whose content is not known",
    "not_marked": "could not be marked, then or now",
}


async def checked(sessions: Sequence[str] | None, *, call: bool) -> list[MarkCheck]:
    """Check these sessions, or all of them.

    Raises:
        NotFoundError: No such session.
    """
    async with runtime() as services:
        checks = services.mark_checks
        if sessions is None:
            return [found async for found in checks.every(call=call)]
        return [await checks.of(session, call=call) for session in sessions]


def show(found: Sequence[MarkCheck]) -> None:
    """Print which sessions differ, and how many answers were not checked."""
    differing = [check for check in found if check.differences]
    out.print(
        f"{sum(check.checked for check in found)} answers of {len(found)} sessions checked: "
        f"{sum(len(check.differences) for check in found)} marks of {len(differing)} sessions are "
        "not what provenance says."
    )
    for reason, n in _left_out(found).items():
        out.print(f"Not checked: {n} answers {_WHY[reason]}.")
    if not differing:
        return
    rows = []
    for check in differing:
        record = check.session
        bank = f"{record.bank_name} v{record.bank_version}"
        rows.append((record.id, bank, str(check.answers), str(len(check.differences))))
    show_table(("session", "bank", "answers", "differ"), rows)
    out.print("Mark one again with: sextant sessions rescore ID", soft_wrap=True)


def document(found: Sequence[MarkCheck]) -> dict[str, Any]:
    """The same, JSON-able, with every answer that differs."""
    return {
        "sessions": len(found),
        "answers": sum(check.answers for check in found),
        "checked": sum(check.checked for check in found),
        "not_checked": dict(_left_out(found)),
        "differing": [
            {
                "session_id": check.session.id,
                "bank": check.session.bank_name,
                "bank_version": check.session.bank_version,
                "answers": check.answers,
                "checked": check.checked,
                "different": [_difference(difference) for difference in check.differences],
            }
            for check in found
            if check.differences
        ],
    }


def _left_out(found: Sequence[MarkCheck]) -> Counter[str]:
    total: Counter[str] = Counter()
    for check in found:
        total.update(check.left_out)
    return total


def _difference(difference: Difference) -> dict[str, Any]:
    stored, again = difference.stored, difference.again
    return {
        "step": difference.step,
        "item_id": difference.item_key,
        "stored": _mark(stored, stored.scorer_hash),
        "by_provenance": None if again is None else _mark(again, difference.expected_hash),
        "scorer_hash": difference.expected_hash,
    }


def _mark(closing: Closing, scorer_hash: str | None) -> dict[str, Any]:
    return {"outcome": closing.outcome, "score": closing.score, "scorer_hash": scorer_hash}
