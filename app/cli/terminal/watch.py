"""A session on the terminal: live progress, then a short report."""

from typing import Protocol

from rich.console import RenderableType
from rich.live import Live
from rich.table import Table

from app.cli.servers.connection import events, path_of
from app.cli.terminal.console import Json, err, out
from app.cli.terminal.progress import Progress, cost
from app.cli.terminal.tables import interval
from app.printable import percent
from app.reports.figures import (
    answers_right,
    headline_lines,
    interval_note,
    uncounted,
    unscored,
    whole_bank,
)
from app.reports.formats import count
from sextant_client import AsyncSextant

#: Ends behind which nothing more may, or can, be asked.
NO_MORE = frozenset({"budget_exhausted", "time_limit", "bank_exhausted", "too_many_failures"})
#: How many times as long a test becomes that goes on.
LONGER = 2


class Shown(Protocol):
    """What is drawn of something that runs, by its events."""

    def take(self, kind: str, data: Json) -> str | None:
        """Take in one event; returns a line for terminals that cannot be redrawn."""

    def __rich__(self) -> RenderableType: ...


async def follow(
    client: AsyncSextant, path: str, shown: Shown | None, *, live: Live | None = None
) -> Json:
    """Show something until it ends; returns it as the API gives it.

    Progress goes to stderr, so that stdout is free for results.

    Args:
        client: Of the server that runs it.
        path: Of the resource.
        shown: What is drawn; None only waits.
        live: Where it is drawn already.
    """
    if live is None and shown is not None and err.is_terminal:
        with Live(shown, console=err, auto_refresh=False) as own:
            return await follow(client, path, shown, live=own)
    async for kind, data in events(client, path):
        line = shown and shown.take(kind, data)
        if live is not None:
            live.refresh()
        elif line:
            err.say(line)
    return await client.request("GET", path)


async def watch(client: AsyncSextant, session_id: str, *, quiet: bool = False) -> Json:
    """Show a session until it ends; quietly, only wait."""
    return await follow(client, path_of("sessions", session_id), None if quiet else Progress())


def announce(session: Json) -> None:
    """What will end a test that begins, and what unreadable answers will count as."""
    err.say(session["stops_when"])
    if session["asked"]["caution"]:
        err.say(session["asked"]["caution"])
    unparsed = session["unparsed"]
    if unparsed["policy"] == "wrong" or unparsed["caution"]:
        alike = ", as when the bank was calibrated" if unparsed["when_calibrated"] else ""
        err.say(unparsed["caution"] or f"Unparseable answers count as wrong{alike}.")
    if (short := (session["pretest"] or {}).get("caution")) is not None:
        err.say(short)


def report(session: Json, *, error_follows: bool = False) -> None:
    """The result in a few lines.

    Args:
        session: As the API gives it.
        error_follows: The command tells itself why a session did not complete.
    """
    estimate, score = session["estimate"], session["score"]
    usage, progress = session["usage"], session["progress"]
    bank = session["bank"]
    whole = whole_bank(bank["n_items"] + bank["n_never_asked"], bank["n_uncalibrated"])
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column()
    lines: list[str] = []
    if session["headline"] is not None:
        if session["status"] in ("failed", "cancelled"):
            table.add_row(session["status"], "partial results")
        lines = headline_lines(session["headline"])
        for line in lines:
            out.say(line)
    elif (right := answers_right(progress)) is not None:
        table.add_row("answers", right)
    if score is not None and score["nonresponse"]:
        share = percent(score["nonresponse"])
        table.add_row("score", f"its lower end has room for the {share} without a score")
    if estimate["reason"] is None:
        table.add_row(
            "ability",
            f"95 % interval {interval(estimate['interval'])}"
            + (f"; {note}" if (note := interval_note(estimate)) else ""),
        )
    elif session["headline"] is None:
        table.add_row("score", f"none. {estimate['reason']}")
        table.add_row("questions", f"{progress['items']} of {session['bank']['n_items']}")
    if (stands := estimate.get("extrapolation")) is not None:
        table.add_row("caution" if stands["caution"] else "place", stands["detail"])
    if score is not None and (never := bank["n_never_asked"]):
        table.add_row("", f"{never} faulty questions are never asked; their score is estimated")
    if score is not None and (not_counted := uncounted(bank["n_uncalibrated"])):
        table.add_row("", not_counted)
    for name, text in _profile(session["profile"], whole):
        table.add_row(name, text)
    lost = unscored(session)
    if lost.left_out:
        shown = ", ".join(f"{n} {name}" for name, n in lost.left_out.items())
        table.add_row("not scored", f"{shown} (kept out of the estimate)")
    if lost.wrong:
        table.add_row("unparseable", f"{lost.wrong}, counted as wrong")
    for caution in (session["asked"]["caution"], session["unparsed"]["caution"]):
        if caution and not any(caution in line for line in lines):  # trust may rest on it
            table.add_row("caution", caution)
    pretest = session["pretest"] or {}
    if pretest.get("planned"):
        table.add_row("pretest", f"{pretest['items']} trial questions, not counted")
    table.add_row(
        "calls",
        f"{usage['calls']}, {usage['tokens_in']} tokens in, {usage['tokens_out']} out, "
        f"{cost(usage)}, {usage['seconds']:.1f} s",
    )
    fit = session["person_fit"] or {}
    if fit.get("flagged") and (turned := fit.get("inversions")):
        table.add_row(
            "answers",
            f"do not fit this ability: {count(round(turned['observed']), 'pair')} with a hard item "
            f"right and an easy one wrong, {turned['expected']:.0f} expected",
        )
    is_told = error_follows and session["status"] != "completed"
    if session["stop_reason"] is not None and not is_told:
        table.add_row("stopped by", f"{session['stop_reason']}: {session['stop_detail']}")
    if (missed := _missed(session)) is not None:
        table.add_row("precision", missed)
    if uncertainty := session["bank"].get("uncertainty"):
        table.add_row("note", uncertainty)
    elif session["bank"]["provisional"]:
        table.add_row("note", "provisional parameters: theta is for trying things out")
    out.print(table)


def further(session: Json) -> str | None:
    """The command that goes on with an ended session; None where nothing more can be asked."""
    asked, n_items = session["progress"]["items"], session["bank"]["n_items"]
    if session["stop_reason"] in NO_MORE or asked >= n_items:
        return None
    margin = session["design"]["stopping"].get("score_margin")
    goal = f" --margin {50 * margin:g}" if session["stop_reason"] == "score_margin" else ""
    most = min(LONGER * asked, n_items)
    return f"sextant sessions extend {session['id']}{goal} --max-items {most}"


def _missed(session: Json) -> str | None:
    """By how much a test missed the margin that was asked for, and what would reach it."""
    wanted = session["design"]["stopping"].get("score_margin")
    score, asked = session["score"], session["progress"]["items"]
    if wanted is None or score is None or score["interval"] is None or session["precision_reached"]:
        return None
    n_items, known = session["headline"]["n_items"], score["interval"]
    reached = (known["hi"] - known["lo"]) / 2
    if reached <= wanted or not asked:
        return None
    from app.engine.prediction.sample_size import items_for  # loads numpy, which few commands need

    missing = unscored(session)
    if share := missing.share_left_out + missing.share_wrong:
        return (
            f"±{100 * reached:.1f} points, not ±{100 * wanted:g}: {percent(share)} of the answers "
            f"have no score or could not be parsed. More questions do not mend that: read them "
            f"with sextant sessions answers {session['id']}"
        )
    needed = items_for(wanted, reached=reached, n_asked=asked, n_items=n_items)
    return (
        f"±{100 * reached:.1f} points, not ±{100 * wanted:g}: about {needed} questions would do "
        f"(sextant sessions extend {session['id']} --max-items {needed})"
    )


def _profile(profile: Json | None, whole: str) -> list[tuple[str, str]]:
    """Tasks and abilities, in words for someone who knows no item response theory."""
    if profile is None:
        return []
    rows = [
        (
            f"  {_target({task['tag']: 1.0}, whole)}",
            f"{percent(task['value'], 1)} expected ({interval(task['interval'], '.1%')}), "
            + (
                f"{task['n_asked']} of {task['n_items']} questions asked"
                if task["n_asked"]
                else "never asked"
            ),
        )
        for task in profile["tasks"]
    ]
    return rows + [
        (
            ability["name"].replace("_", " "),
            f"{ability['value']:+.2f} ± {ability['se']:.2f}: better than "
            f"{percent(ability['above'])} of the reference models",
        )
        for ability in profile["abilities"]
    ]


def _target(shares: dict[str, float] | None, whole: str) -> str:
    """What a score is of: the whole bank, in whose words, a tag, or a mix of both."""
    named = {(whole if tag == "all" else tag): n for tag, n in (shares or {}).items()}
    if len(named) < 2:
        return next(iter(named), whole)
    total = sum(named.values())
    return " and ".join(f"{name} ({percent(share / total)})" for name, share in named.items())
