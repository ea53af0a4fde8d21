"""A session on the terminal: live progress, then a short report."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from app.cli.servers.connection import FAILED, ended_with_us, events, path_of
from app.cli.terminal.console import JsonObject, err, interval, number, out
from app.cli.terminal.replies import Estimate, Profile, Score, Session, at, failure_of
from app.printable import percent
from app.records.fields import ends
from app.reports.figures import (
    Unscored,
    answers_right,
    dollars,
    headline_lines,
    interval_note,
    lost_answers,
    missed_margin,
    uncounted,
    whole_bank,
)
from app.reports.formats import count
from sextant_client import AsyncSextant
from sextant_client.models import Interval, Model

#: Answers that stay visible while the test runs.
_ROWS = 10
#: Columns of the band, and the thetas at its ends, where it is cut.
_BAND, _FROM, _TO = 48, -4.0, 4.0
_MARKS = {"refused": "refused", "error": "no answer", "unparsed": "unparsed", "truncated": "cut"}


class Received(Model):
    """Event data of an answer that arrived."""

    item_id: str = ""
    pretest: bool = False
    extracted: str | None = None
    score: float | None = None
    outcome: str | None = None


class Updated(Model):
    """Event data of the estimates after an answer."""

    estimate: Estimate
    score: Score | None = None
    items: int = at("progress", "items")
    scored: int = at("progress", "scored", default=0)
    mean: float | None = at("progress", "mean", default=None)
    expected_items: int | None = at("progress", "expected_items", default=None)
    usd: float | None = at("usage", "usd")


class _Step(NamedTuple):
    """An answer, the number of answers until it, and the figures after it, if they are told."""

    n: int
    answer: Received
    figures: Updated | None


class Progress:
    """State of a test, as its events report it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._rows: deque[tuple[str, ...]] = deque(maxlen=_ROWS)
        self._answers: list[Received] = []  # since the last figures
        self._figures: Updated | None = None
        self._status = "queued"
        self._waits_for = ""
        self._clock = clock
        self._began = clock()

    def take(self, kind: str, data: JsonObject) -> str | None:
        """Apply one event; returns a line for each answer for terminals that cannot redraw."""
        if kind == "response.received":
            answer = Received.model_validate(data)
            self._answers.append(answer)
            self._status = "running"
            if answer.outcome != "error":
                self._waits_for = ""
        elif kind == "estimate.updated":
            self._figures = Updated.model_validate(data)
            steps = _steps(self._answers, self._figures)
            self._answers = []
            self._rows.extend(_row(*step) for step in steps)
            return "\n".join(_line(*step, self._figures.expected_items) for step in steps)
        elif kind == "session.waiting":
            return self._wait(str(data["reason"]), str(data["until"]))
        elif kind.startswith("session.") and kind != "session.item_selected":
            self._status = kind.removeprefix("session.")
        return None

    def first_wait(self, kind: str, data: JsonObject) -> str | None:
        """Return a line only for the first event that says why nothing arrives."""
        is_first = kind == "session.waiting" and not self._waits_for
        return self.take(kind, data) if is_first else None

    def _wait(self, reason: str, until: str) -> str | None:
        """Say once why nothing arrives; another retry for the same reason is no news."""
        reason = reason if reason.endswith((".", "!", "?")) else f"{reason}."
        self._status = f"waiting: {reason} Retrying at {until[11:19]} UTC."
        if reason == self._waits_for:
            return None
        self._waits_for = reason
        return f"waiting: {reason} Retrying."

    def __rich__(self) -> RenderableType:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for name in ("#", "item", "answer", "score", "theta", "SE", "cost"):
            table.add_column(name, justify="left" if name in {"item", "answer"} else "right")
        for row in self._rows:
            table.add_row(*row)
        shown: list[RenderableType] = [Text(headline(self._figures), style="bold")]
        if band := _band(self._figures):
            shown.append(Text(band, style="cyan"))
        shown += [table, Text(self._rest(), style="dim"), Text(self._status, style="dim")]
        return Group(*shown)

    def _rest(self) -> str:
        if self._figures is None:
            return ""
        spent = cost(self._figures.usd)
        items, expected = self._figures.items, self._figures.expected_items
        if expected is None or not items:
            return f"{items} items, {spent}"
        left = max(expected - items, 0)
        seconds = (self._clock() - self._began) / items * left
        return f"{items} of about {expected} items, {spent}; about {_duration(seconds)} left"


def headline(figures: Updated | None) -> str:
    """Format ability and predicted score, each with its interval."""
    if figures is None or figures.estimate.theta is None:
        return "No result yet: needs at least 5 scored answers."
    estimate, score = figures.estimate, figures.score
    said = (
        f"theta {number(estimate.theta)}, SE {number(estimate.se, '.2f')} "
        f"(95 %: {interval(estimate.interval)})"
    )
    if score is not None:
        known = (
            ", all questions asked"
            if score.interval is None
            else f" (95 %: {interval(score.interval, '.1%')})"
        )
        said = f"score {percent(score.value, 1)}{known}   {said}"
    return said


def cost(usd: float | None) -> str:
    """Format an amount spent."""
    return "price unknown" if usd is None else dollars(usd)


def _band(figures: Updated | None) -> str:
    """Draw the interval of theta on a line from -4 to 4."""
    if figures is None or (known := figures.estimate.interval) is None:
        return ""
    theta, first, last = figures.estimate.theta, known.lo, known.hi
    if theta is None or first is None or last is None:
        return ""

    shares = ((min(max(at, _FROM), _TO) - _FROM) / (_TO - _FROM) for at in (theta, first, last))
    return f"{_FROM:+.0f} {line_of(_BAND, *shares)} {_TO:+.0f}"


def line_of(width: int, at: float, lo: float, hi: float) -> str:
    """Draw a value and its interval on a line; all three are shares of its width."""
    place, first, last = (round(end * (width - 1)) for end in (at, lo, hi))
    line = ["━" if first <= column <= last else "·" for column in range(width)]
    line[place] = "●"
    return "".join(line)


def _steps(answers: Sequence[Received], figures: Updated) -> list[_Step]:
    """Number the answers that came together; the last one has the figures, which hold for all."""
    n = figures.items - sum(not answer.pretest for answer in answers)
    steps = []
    for left, answer in zip(reversed(range(len(answers))), answers, strict=True):
        n += not answer.pretest
        steps.append(_Step(n, answer, None if left else figures))
    return steps


def _row(n: int, answer: Received, figures: Updated | None) -> tuple[str, ...]:
    told = (str(n), _item(answer), _short(answer.extracted or ""), _mark(answer))
    if figures is None:
        return (*told, "", "", "")
    estimate = figures.estimate
    return (*told, number(estimate.theta), number(estimate.se, ".2f"), cost(figures.usd))


def _line(n: int, answer: Received, figures: Updated | None, expected: int | None) -> str:
    """Describe one step on one line, each figure with its name, where nothing can be redrawn."""
    parts = [
        f"{n}" + ("" if expected is None else f" of about {expected}"),
        _item(answer),
        _short(answer.extracted or ""),
        _mark(answer) if answer.score is None else f"score {_mark(answer)}",
    ]
    if figures is not None:
        if (theta := figures.estimate.theta) is not None:
            parts.append(f"theta {number(theta)} SE {number(figures.estimate.se, '.2f')}")
        parts.append(cost(figures.usd))
    return "  ".join(part for part in parts if part)


def _item(answer: Received) -> str:
    return f"{answer.item_id}{' (pretest)' if answer.pretest else ''}"


def _mark(answer: Received) -> str:
    return _MARKS.get(answer.outcome or "", "") if answer.score is None else f"{answer.score:g}"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def _short(text: str, width: int = 24) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


#: Stop reasons that more items do not lift. Where a bank is exhausted, an extension would ask again
#: what ended in an error, perhaps with the same error time after time.
_SPENT = frozenset({"budget_exhausted", "time_limit", "bank_exhausted"})
#: Factor by which an extension lengthens a test.
LONGER = 2


def say(line: str | None) -> None:
    """Print a line of progress to stderr, so that stdout is free for results."""
    if line:
        err.say(line)


@contextmanager
def redrawn(shown: RenderableType) -> Iterator[Callable[[str | None], None]]:
    """Show progress; yields what is called with the line of each event, as `say`."""
    if not err.is_terminal:
        yield say
        return
    with Live(shown, console=err, auto_refresh=False) as live:
        yield lambda _: live.refresh()


async def follow(
    client: AsyncSextant,
    path: str,
    take: Callable[[str, JsonObject], str | None] = lambda *_: None,
    tell: Callable[[str | None], None] = say,
) -> JsonObject:
    """Wait for the end of work, and return it as the API gives it.

    `take` applies an event, and returns a line for terminals that cannot redraw, which `tell` gets.
    """
    async for kind, data in events(client, path):
        tell(take(kind, data))
    return await client.request("GET", path)


async def watch(client: AsyncSextant, session: JsonObject, *, quiet: bool = False) -> JsonObject:
    """Show a session until it ends; `quiet` only tells the first reason why nothing arrives."""
    path, shown = path_of("sessions", str(session["id"])), Progress()
    if session["status"] == "awaiting_response":
        say("A manual session: it continues when somebody answers.")
    if quiet:
        return await follow(client, path, shown.first_wait)
    with redrawn(shown) as tell:
        return await follow(client, path, shown.take, tell)


async def conduct(client: AsyncSextant, session: JsonObject, *, quiet: bool) -> JsonObject:
    """Announce a session that this command began, and show it; a signal cancels the session."""
    async with ended_with_us(client, "sessions", str(session["id"])):
        if not quiet:
            announce(session)
        return await watch(client, session, quiet=quiet)


def require_completed(ended: JsonObject) -> None:
    """Unless the work is completed, say why it ended, and end the command."""
    if ended["status"] != "completed":
        # With the last failure; work that could not run has only its failure.
        err.say(
            f"Error: {ended['stop_detail'] or failure_of(ended) or ended['status']}", style="red"
        )
        raise typer.Exit(FAILED)


class Phases:
    """Phases of a calibration, each told once."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def take(self, kind: str, data: JsonObject) -> str | None:
        """Return the phase of an event if it is new."""
        line = str(data.get("phase", kind.partition(".")[2])).replace("_", " ")
        if line in self._told:
            return None
        self._told.add(line)
        return line


def announce(document: JsonObject) -> None:
    """Print when a starting test will end, and what unparseable answers will count as."""
    session = Session.model_validate(document)
    err.say(session.stops_when)
    if session.asked_caution:
        err.say(session.asked_caution)
    if session.unparsed_policy == "wrong" or session.unparsed_caution:
        alike = ", as when the bank was calibrated" if session.unparsed_when_calibrated else ""
        err.say(session.unparsed_caution or f"Unparseable answers count as wrong{alike}.")
    if session.pretest_caution is not None:
        err.say(session.pretest_caution)


def report(document: JsonObject, *, error_follows: bool = False) -> None:
    """Print the result of a session, a reply of the API, in a few lines.

    `error_follows` says that the command itself prints why a session did not complete.
    """
    session = Session.model_validate(document)
    estimate, score, bank = session.estimate, session.score, session.bank
    usage, progress = session.usage, session.progress
    whole = whole_bank(bank.n_items + bank.n_never_asked, bank.n_uncalibrated)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column()
    lines: list[str] = []
    if session.headline is not None:
        if session.status in ("failed", "cancelled"):
            table.add_row(session.status, "partial results")
        lines = headline_lines(session.headline)
        for line in lines:
            out.say(line)
    elif (right := answers_right(progress.scored, progress.right, progress.mean)) is not None:
        table.add_row("answers", right)
    if score is not None and score.nonresponse:
        share = percent(score.nonresponse)
        table.add_row("score", f"its lower end allows for the {share} without a score")
    if estimate.reason is None:
        known = estimate.interval or Interval(lo=None, hi=None, level=0.95)
        corrected = estimate.interval_raw is not None
        note = interval_note(estimate.theta, estimate.se, known.lo, known.hi, corrected=corrected)
        table.add_row(
            "ability",
            f"95 % interval {interval(estimate.interval)}" + (f"; {note}" if note else ""),
        )
    elif session.headline is None:
        table.add_row("score", f"none. {estimate.reason}")
        table.add_row("questions", f"{progress.items} of {bank.n_items}")
    if estimate.place is not None:
        table.add_row("caution" if estimate.place_caution else "place", estimate.place)
    if score is not None and (never := bank.n_never_asked):
        table.add_row("", f"{never} faulty questions are never asked; their score is estimated")
    if score is not None and (not_counted := uncounted(bank.n_uncalibrated)):
        table.add_row("", not_counted)
    for name, text in _profile(session.profile, whole):
        table.add_row(name, text)
    lost = _lost(session)
    if lost.left_out:
        shown = ", ".join(f"{n} {name}" for name, n in lost.left_out.items())
        table.add_row("not scored", f"{shown} (kept out of the estimate)")
    if lost.wrong:
        table.add_row("unparseable", f"{lost.wrong}, counted as wrong")
    for caution in (session.asked_caution, session.unparsed_caution):
        if caution and not any(caution in line for line in lines):  # trust may quote it
            table.add_row("caution", caution)
    if session.pretest_planned:
        table.add_row("pretest", f"{session.pretest_items} trial questions, not counted")
    table.add_row(
        "calls",
        f"{usage.calls}, {number(usage.tokens_in, 'd')} tokens in, "
        f"{number(usage.tokens_out, 'd')} out, "
        f"{cost(usage.usd)}, {usage.seconds:.1f} s",
    )
    if usage.judge is not None:
        table.add_row(
            "marking", f"{count(usage.judge.calls, 'call')} of a judge, {cost(usage.judge.usd)}"
        )
    turned = session.inversions
    if session.misfits and turned is not None and turned > (session.inversions_expected or 0.0):
        table.add_row(
            "answers",
            f"do not fit this ability: {count(round(turned), 'pair')} with a hard item right and "
            f"an easy one wrong, {session.inversions_expected:.0f} expected",
        )
    is_told = error_follows and session.status != "completed"
    if session.stop_reason is not None and not is_told:
        table.add_row("stopped by", f"{session.stop_reason}: {session.stop_detail}")
    if (missed := _missed(session)) is not None:
        table.add_row("precision", missed)
    if bank.uncertainty:
        table.add_row("note", bank.uncertainty)
    elif bank.provisional:
        table.add_row("note", "provisional parameters: theta is for trying things out")
    out.print(table)


def asks_more(session: Session) -> bool:
    """Whether an ended session would ask further items if it were extended to more."""
    is_left = session.progress.items < session.bank.n_items
    return is_left and session.nothing_to_ask is None and session.stop_reason not in _SPENT


def further(session: Session) -> str | None:
    """Command that extends an ended session; None where nothing more can be asked."""
    if not asks_more(session):
        return None
    asked, n_items = session.progress.items, session.bank.n_items
    goal, margin, most = "", session.stopping.score_margin, LONGER * asked
    if session.stop_reason == "score_margin" and margin is not None and session.headline:
        aim = margin / 2
        lo, hi = ends(session.headline.interval)
        if lo is not None and hi is not None and hi > lo:
            from app.engine.prediction.sample_size import items_for  # loads numpy

            reached, total = (hi - lo) / 2, session.headline.n_items
            aim = aim if aim < reached else reached / 2
            needed = items_for(aim, reached=reached, n_asked=asked, n_items=total)
            most = needed if needed > asked else most  # fewer: it asks of other tags, too
        goal = f" --margin {100 * aim:.3g}"
    return f"sextant sessions extend {session.id}{goal} --max-items {min(most, n_items)}"


def _lost(session: Session) -> Unscored:
    return lost_answers(
        session.outcomes,
        closed=session.progress.items,
        scored=session.progress.scored,
        no_result=session.estimate.reason is not None and session.score is None,
    )


def _missed(session: Session) -> str | None:
    wanted = None if session.precision_reached else session.stopping.score_margin
    return missed_margin(wanted, session.headline, _lost(session), session.id)


def _profile(profile: Profile | None, whole: str) -> list[tuple[str, str]]:
    """Rows for tasks and abilities, in words that need no item response theory."""
    if profile is None:
        return []
    rows = [
        (
            f"  {whole if task.tag == 'all' else task.tag}",
            f"{percent(task.value, 1)} expected ({interval(task.interval, '.1%')}), "
            + (
                f"{task.n_asked} of {task.n_items} questions asked"
                if task.n_asked
                else "never asked"
            ),
        )
        for task in profile.tasks
    ]
    return rows + [
        (
            ability.name.replace("_", " "),
            f"{ability.value:+z.2f}, SE {ability.se:.2f}"
            + (
                ""
                if ability.above is None
                else f": better than {percent(ability.above)} of the reference models"
            ),
        )
        for ability in profile.abilities
    ]
