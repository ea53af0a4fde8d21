"""A session on the terminal: live progress, then a short report."""

from collections import deque
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from app.cli.client import ApiClient
from app.cli.console import err, out
from app.reports.figures import counted_wrong, interval_note, unmarked

#: Answers kept in sight while the test runs.
_ROWS = 10
_MARKS = {"refused": "refused", "error": "no answer", "unparsed": "unreadable", "truncated": "cut"}


class Progress:
    """What the events have told so far, drawn anew at each of them."""

    def __init__(self) -> None:
        self._rows: deque[tuple[str, ...]] = deque(maxlen=_ROWS)
        self._answer: dict[str, Any] = {}
        self._status = "queued"

    def take(self, kind: str, data: dict[str, Any]) -> str | None:
        """Take in one event; returns a line for terminals that cannot be redrawn."""
        if kind == "response.received":
            self._answer = data
            self._status = "running"
        elif kind == "estimate.updated":
            row = _row(self._answer, data)
            self._rows.append(row)
            return "  ".join(part for part in row if part)
        elif kind == "session.waiting":
            self._status = f"waiting until {data['until']}: {data['reason']}"
            return self._status
        elif kind.startswith("session.") and kind != "session.item_selected":
            self._status = kind.removeprefix("session.")
        return None

    def __rich__(self) -> RenderableType:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for name in ("#", "item", "answer", "score", "theta", "SE", "cost", "expected"):
            table.add_column(name, justify="left" if name in {"item", "answer"} else "right")
        for row in self._rows:
            table.add_row(*row)
        return Group(table, Text(self._status, style="dim"))


def _row(answer: dict[str, Any], figures: dict[str, Any]) -> tuple[str, ...]:
    estimate, progress, usage = figures["estimate"], figures["progress"], figures["usage"]
    score = answer.get("score")
    expected = progress["expected_items"]
    return (
        str(progress["items"]),
        f"{answer.get('item_id', '')}{' (pretest)' if answer.get('pretest') else ''}",
        _short(answer.get("extracted") or ""),
        _MARKS.get(answer.get("outcome", ""), "") if score is None else f"{score:g}",
        _number(estimate["theta"], "+.2f"),
        _number(estimate["se"], ".2f"),
        _cost(usage),
        "" if expected is None else f"of about {expected}",
    )


async def watch(client: ApiClient, session_id: str) -> dict[str, Any]:
    """Show a session until it ends; returns it as the API gives it.

    Progress goes to stderr, so that stdout is free for results.
    """
    progress = Progress()
    events = client.events(f"/v1/sessions/{session_id}/events")
    if err.is_terminal:
        with Live(progress, console=err, auto_refresh=False) as live:
            async for kind, data in events:
                progress.take(kind, data)
                live.refresh()
    else:
        async for kind, data in events:
            line = progress.take(kind, data)
            if line:
                err.print(line, markup=False, soft_wrap=True)
    return await client.get(f"/v1/sessions/{session_id}")


def announce(session: dict[str, Any]) -> None:
    """What will end a test that begins, and what unreadable answers will count as."""
    err.print(session["stops_when"], markup=False, soft_wrap=True)
    if session["asked"]["caution"]:
        err.print(session["asked"]["caution"], markup=False, soft_wrap=True)
    unparsed = session["unparsed"]
    if unparsed["policy"] == "wrong" or unparsed["caution"]:
        alike = ", as when the bank was calibrated" if unparsed["when_calibrated"] else ""
        err.print(
            unparsed["caution"] or f"Answers that nobody can read count as wrong{alike}.",
            markup=False,
            soft_wrap=True,
        )


def report(session: dict[str, Any]) -> None:
    """The result in a few lines."""
    estimate, accuracy = session["estimate"], session["accuracy"]
    usage, progress = session["usage"], session["progress"]
    lo, hi = estimate["ci"]
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column()
    if session["status"] in ("failed", "cancelled"):
        ended = {"failed": "failed", "cancelled": "was cancelled"}[session["status"]]
        table.add_row(
            "caution", f"The test {ended}: what follows rests on the answers that came until then."
        )
    if estimate["reason"] is None:
        table.add_row(
            "ability",
            f"theta = {_number(estimate['theta'], '+.2f')} ± {_number(estimate['se'], '.2f')} "
            f"(95 % interval {_number(lo, '+.2f')} to {_number(hi, '+.2f')})"
            + (f"; {note}" if (note := interval_note(estimate)) else ""),
        )
    else:
        table.add_row("ability", f"none. {estimate['reason']}")
    if accuracy is not None:
        table.add_row(
            "predicted score",
            f"{accuracy['value']:.1%} of {_target(accuracy.get('target'))} "
            f"(95 % interval {accuracy['lo']:.1%} to {accuracy['hi']:.1%}"
            + (
                f"; its lower end has room for the {accuracy['nonresponse']:.0%} without a mark)"
                if accuracy["nonresponse"]
                else ")"
            ),
        )
    if (stands := estimate.get("extrapolation")) is not None:
        table.add_row("caution" if stands["caution"] else "standing", stands["detail"])
    if accuracy is not None and (never := session["bank"]["n_never_asked"]):
        table.add_row(
            "", f"{never} quarantined items are never asked; the whole bank's score counts them"
        )
    for name, text in _profile(session["profile"]):
        table.add_row(name, text)
    table.add_row("items", f"{progress['items']} of {session['bank']['n_items']}")
    if left_out := unmarked(session):
        shown = ", ".join(f"{n} {name}" for name, n in left_out.items())
        table.add_row("not scored", f"{shown} (kept out of the estimate)")
    if wrong := counted_wrong(session):
        table.add_row("unreadable", f"{wrong} unparsed, counted as wrong")
    if session["asked"]["caution"]:
        table.add_row("caution", session["asked"]["caution"])
    if session["unparsed"]["caution"]:
        table.add_row("caution", session["unparsed"]["caution"])
    pretest = session["pretest"] or {}
    if pretest.get("planned"):
        table.add_row("pretest", f"{pretest['items']} items asked beside the test, not counted")
    table.add_row(
        "calls",
        f"{usage['calls']}, {usage['tokens_in']} tokens in, {usage['tokens_out']} out, "
        f"{_cost(usage)}, {usage['seconds']:.1f} s",
    )
    fit = session["person_fit"] or {}
    if fit.get("flagged") and (turned := fit.get("inversions")):
        table.add_row(
            "answers",
            f"do not fit this ability: {turned['observed']:.0f} pairs with a hard item right and "
            f"an easy one wrong, {turned['expected']:.0f} expected",
        )
    table.add_row("stopped by", f"{session['stop_reason']}: {session['stop_detail']}")
    if uncertainty := session["bank"].get("uncertainty"):
        table.add_row("note", uncertainty)
    elif session["bank"]["provisional"]:
        table.add_row("note", "provisional parameters: theta is for trying things out")
    out.print(table)


def _profile(profile: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Tasks and abilities, in words for someone who knows no item response theory."""
    if profile is None:
        return []
    rows = [
        (
            f"  {_target({task['tag']: 1.0})}",
            f"{task['value']:.1%} expected ({task['lo']:.1%} to {task['hi']:.1%}), "
            + (
                f"{task['n_asked']} of {task['n_items']} items asked"
                if task["n_asked"]
                else "never asked"
            ),
        )
        for task in profile["tasks"]
    ]
    return rows + [
        (
            ability["name"].replace("_", " "),
            f"{ability['value']:+.2f} ± {ability['se']:.2f}: above {ability['above']:.0%} of the "
            "models that the bank was calibrated on",
        )
        for ability in profile["abilities"]
    ]


def _target(shares: dict[str, float] | None) -> str:
    """What a score is of: the whole bank, a tag, or a mix of both."""
    named = {("the whole bank" if tag == "all" else tag): n for tag, n in (shares or {}).items()}
    if len(named) < 2:
        return next(iter(named), "the whole bank")
    total = sum(named.values())
    return " and ".join(f"{name} ({share / total:.0%})" for name, share in named.items())


def _cost(usage: dict[str, Any]) -> str:
    return "price unknown" if usage["usd"] is None else f"${usage['usd']:.4f}"


def _number(value: float | None, pattern: str) -> str:
    return "?" if value is None else format(value, pattern)


def _short(text: str, width: int = 24) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"
