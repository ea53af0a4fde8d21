"""What `sextant sessions check-marks` finds, in words and as JSON."""

from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from app.cli.client import ApiClient
from app.cli.console import out
from app.cli.tables import show_table

_WHY = {
    "no_answer": "have no stored text",
    "calls_out": "are marked by scorers that call out, which were not asked again (--call asks)",
    "no_content": "are to items whose content is not known",
    "not_marked": "could not be marked, then or now",
    "repeated": "have the mean mark of several answers",
}


async def checked(
    client: ApiClient, sessions: Sequence[str] | None, *, call: bool
) -> list[dict[str, Any]]:
    """Check these sessions, or all of them, the oldest first."""
    if sessions is None:
        sessions = [one["id"] for one in await client.every("/v1/sessions?order=asc")]
    paths = [f"/v1/sessions/{quote(session, safe='')}:check-marks" for session in sessions]
    return [await client.post(path, {"call": call}, patient=True) for path in paths]


def show(found: Sequence[dict[str, Any]]) -> None:
    """Print which sessions differ, and how many answers were not checked."""
    differing = [check for check in found if check["different"]]
    out.print(
        f"{sum(check['checked'] for check in found)} answers of {len(found)} sessions checked: "
        f"{sum(len(check['different']) for check in found)} marks of {len(differing)} sessions are "
        "not what provenance says."
    )
    for reason, n in _left_out(found).items():
        out.print(f"Not checked: {n} answers {_WHY[reason]}.")
    if not differing:
        return
    rows = []
    for check in differing:
        bank = f"{check['bank']} v{check['bank_version']}"
        answers, different = str(check["answers"]), str(len(check["different"]))
        rows.append((check["session_id"], bank, answers, different))
    show_table(("session", "bank", "answers", "differ"), rows)
    out.print("Mark one again with: sextant sessions rescore ID", soft_wrap=True)


def document(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The same, JSON-able, with every answer that differs."""
    told = ("session_id", "bank", "bank_version", "answers", "checked", "different")
    return {
        "sessions": len(found),
        "answers": sum(check["answers"] for check in found),
        "checked": sum(check["checked"] for check in found),
        "not_checked": dict(_left_out(found)),
        "differing": [
            {name: check[name] for name in told} for check in found if check["different"]
        ],
    }


def _left_out(found: Sequence[dict[str, Any]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for check in found:
        total.update(check["not_checked"])
    return total
