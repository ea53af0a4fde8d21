"""Two running tests of one model: adaptively selected questions beside random ones."""

import asyncio
import contextlib
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from typing_extensions import override

from app.cli.servers.connection import events
from app.cli.terminal.console import JsonObject, err
from app.cli.terminal.progress import Progress, Updated, line_of
from app.engine.prediction.sample_size import sample_interval
from app.printable import percent
from sextant_client import AsyncSextant

#: Columns of a bar for scores from 0 to 100 %.
_BAR = 26
#: Random questions between two lines, where nothing can be redrawn.
_EVERY = 10


class _Score(NamedTuple):
    """A score with its 95 % interval."""

    value: float
    lo: float
    hi: float

    @property
    def width(self) -> float:
        return self.hi - self.lo

    def bar(self) -> str:
        """Draw the interval on a line from 0 to 100 %."""
        return line_of(_BAR, *self)

    @override
    def __str__(self) -> str:
        return f"score {percent(self.value, 1)}, {percent(self.lo, 1)} to {percent(self.hi, 1)}"


class SideBySide:
    """State of both tests, as their events report it, on a bank of `n_items` items."""

    def __init__(self, n_items: int) -> None:
        self._n_items = n_items
        self._progress = Progress()
        self._scores: dict[str, dict[int, _Score]] = {"chosen": {}, "random": {}}

    def take(self, side: str, kind: str, data: JsonObject) -> str | None:
        """Apply one event of a side; returns a line for terminals that cannot redraw."""
        line = self._progress.take(kind, data) if side == "chosen" else None
        if kind == "estimate.updated":
            figures = Updated.model_validate(data)
            n, mean, told = figures.scored, figures.mean, figures.score
            if side == "random" and mean is not None:
                score = _Score(mean, *sample_interval(mean, n, self._n_items))
                line = None if n % _EVERY else f"{n} random questions: {score}"
            elif side == "chosen" and told is not None:
                known = told.interval
                lo, hi = (None, None) if known is None else (known.lo, known.hi)
                score = _Score(
                    told.value, *(told.value if end is None else end for end in (lo, hi))
                )
            else:
                return line
            self._scores[side][n] = score
        return line

    def verdict(self) -> str | None:
        """Say how many random questions were as precise as the chosen; None without a result."""
        chosen, random = self._scores.values()
        if not chosen or not random:
            return None
        asked = max(chosen)
        needed = [n for n, score in random.items() if score.width <= chosen[asked].width]
        if needed:
            took = f"it took {min(needed)} to be as exact as with these {asked}"
        else:
            times = random[max(random)].width / chosen[asked].width
            took = f"after {max(random)} the interval is {times:.1f} times as wide as with {asked}"
        return f"The same model beside it, by the mean of random questions: {took}."

    def __rich__(self) -> RenderableType:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for side, told in self._scores.items():
            if told:
                score = told[max(told)]
                table.add_row(f"{side} questions", str(max(told)), score.bar(), str(score))
        return Group(self._progress, table)


async def watch_both(client: AsyncSextant, chosen: str, random: str, *, n_items: int) -> SideBySide:
    """Show two sessions until both have ended, one with chosen and one with random questions."""
    shown = SideBySide(n_items)
    live = Live(shown, console=err, auto_refresh=False) if err.is_terminal else None

    async def follow(side: str, session_id: str) -> None:
        async for kind, data in events(client, f"/v1/sessions/{session_id}"):
            line = shown.take(side, kind, data)
            if live is not None:
                live.refresh()
            elif line:
                err.say(line)

    with live or contextlib.nullcontext():
        await asyncio.gather(follow("chosen", chosen), follow("random", random))
    return shown
