"""A running test on the terminal, drawn again at each event, or as lines in a pipe."""

import time
from collections import deque
from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.cli.terminal.console import JsonObject
from app.cli.terminal.replies import Estimate, Score, at
from app.cli.terminal.tables import interval, number
from app.printable import percent
from sextant_client.models import Model

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


class Progress:
    """State of a test, as its events report it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._rows: deque[tuple[str, ...]] = deque(maxlen=_ROWS)
        self._answer = Received()
        self._figures: Updated | None = None
        self._status = "queued"
        self._waits_for = ""
        self._clock = clock
        self._began = clock()

    def take(self, kind: str, data: JsonObject) -> str | None:
        """Apply one event; returns a line for terminals that cannot redraw."""
        if kind == "response.received":
            self._answer = Received.model_validate(data)
            self._status = "running"
            if self._answer.outcome != "error":
                self._waits_for = ""
        elif kind == "estimate.updated":
            self._figures = Updated.model_validate(data)
            self._rows.append(_row(self._answer, self._figures))
            return _line(self._answer, self._figures)
        elif kind == "session.waiting":
            return self._wait(str(data["reason"]), str(data["until"]))
        elif kind.startswith("session.") and kind != "session.item_selected":
            self._status = kind.removeprefix("session.")
        return None

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
        f"theta {number(estimate.theta)} ± {number(estimate.se, '.2f')} "
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
    return "price unknown" if usd is None else f"${usd:.4f}"


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


def _row(answer: Received, figures: Updated) -> tuple[str, ...]:
    return (
        str(figures.items),
        _item(answer),
        _short(answer.extracted or ""),
        _mark(answer),
        number(figures.estimate.theta),
        number(figures.estimate.se, ".2f"),
        cost(figures.usd),
    )


def _line(answer: Received, figures: Updated) -> str:
    """Describe one step on one line, each figure with its name, where nothing can be redrawn."""
    estimate, expected = figures.estimate, figures.expected_items
    parts = [
        f"{figures.items}" + ("" if expected is None else f" of about {expected}"),
        _item(answer),
        _short(answer.extracted or ""),
        _mark(answer) if answer.score is None else f"score {_mark(answer)}",
        ""
        if estimate.theta is None
        else f"theta {number(estimate.theta)} SE {number(estimate.se, '.2f')}",
        cost(figures.usd),
    ]
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
