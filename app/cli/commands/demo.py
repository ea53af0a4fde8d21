"""`sextant demo`: a whole test against a scripted model, beside one of random questions."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from typing_extensions import override

from app.cli.servers.connection import ended_with_us, path_of, run_to_the_end
from app.cli.terminal.console import JsonObject, err, fail_clearly, out, write_json
from app.cli.terminal.options import QuietOption, output_option
from app.cli.terminal.replies import Session
from app.cli.terminal.watch import (
    Progress,
    Updated,
    follow,
    line_of,
    redrawn,
    report,
    watch,
)
from app.errors import SextantError
from app.printable import percent
from app.sandbox import programs
from sextant_client import AsyncSextant

#: Seconds that the model server may take to start.
_START_S = 30.0
#: Most questions of the adaptive test; the random test beside it always asks this many.
_MOST_ITEMS = 60
#: Seconds that the model waits before an answer while somebody watches.
_THINKS_S = 0.15


@fail_clearly
def command(
    theta: Annotated[float, typer.Option(help="True ability of the scripted model, logits.")] = 0.8,
    seed: Annotated[
        int, typer.Option(help="Random seed of the model's answers and the test's choices.")
    ] = 3,
    quiet: QuietOption = False,
    json: Annotated[
        str | None, output_option("--json", help="Write the session as JSON; - for stdout.")
    ] = None,
) -> None:
    """Run one adaptive test of a scripted model, with real API, worker and Postgres."""
    # Imported late: `--help` need not wait for a server.
    from app.cli.servers.server import in_process
    from app.demo.bank import REFERENCE_SOURCE

    # At a terminal, people should see the intervals narrow; a pipe should finish soon.
    latency_s = _THINKS_S if err.is_terminal and not quiet else 0.0

    async def measure() -> tuple[JsonObject, str | None]:
        if not quiet:
            err.print("Starting Postgres, the API with a worker, and a scripted model ...")
        async with (
            in_process(worker=True) as (client, services),
            scripted_model(theta, seed, latency_s=latency_s) as base_url,
        ):
            await services.banks.ensure_demo_bank()
            endpoint: JsonObject = {
                "kind": "openai_chat",
                "base_url": base_url,
                "model": "scripted",
                "price": {"input_per_1m": 0.15, "output_per_1m": 0.6},
            }
            body: JsonObject = {
                "bank": "demo",
                "endpoint": endpoint,
                "stopping": {"score_margin": 0.08, "max_items": _MOST_ITEMS},
                "concurrency": 1,  # the same seed gives the same result
                "seed": seed,
                "metadata": {"made_by": "sextant demo"},
            }
            if not quiet:
                err.print(f"POST /v1/sessions with endpoint {base_url}")
            created = await client.request("POST", "/v1/sessions", json=body)
            session_id = str(created["id"])
            async with ended_with_us(client, "sessions", session_id):
                if quiet:
                    return await watch(client, created, quiet=True), None
                return await _beside_random(client, session_id, body)

    session, verdict = run_to_the_end(measure)
    write_json(json, session)
    if json == "-":
        return
    report(session)
    if verdict is not None:
        out.say(f"\n{verdict}")
    out.say(
        f"\nThe scripted model's true theta is {theta:+z.2f}; the reference models are "
        f"{REFERENCE_SOURCE}."
    )
    out.print("Now measure your own:")
    out.print(
        f"  {_started_as()} run --endpoint http://localhost:8000/v1 --model NAME --bank demo",
        style="bold",
        soft_wrap=True,
    )


async def _beside_random(
    client: AsyncSextant, chosen: str, body: JsonObject
) -> tuple[JsonObject, str | None]:
    """Follow a session to its end, beside one that asks the same model random questions."""
    stopping = {"se": None, "min_items": _MOST_ITEMS, "max_items": _MOST_ITEMS}
    design: JsonObject = {"preset": "ability", "selection": {"criterion": "random"}}
    made = await client.request(
        "POST", "/v1/sessions", json={**body, **design, "stopping": stopping}
    )
    other = Session.model_validate(made)
    async with ended_with_us(client, "sessions", other.id):
        shown = await watch_both(client, chosen, other.id, n_items=other.bank.n_items)
    session = await client.request("GET", f"/v1/sessions/{chosen}")
    await client.remove(f"/v1/sessions/{other.id}")  # leaderboards show the adaptive test alone
    return session, shown.verdict()


def _started_as() -> str:
    """The command line that starts this program again."""
    place = Path(sys.prefix)
    if place == Path.cwd() / ".venv":
        return "uv run --no-dev --extra embedded sextant"
    if "archive-v0" in place.parts:  # in uv's cache: started by uvx
        return "uvx --from '.[embedded]' sextant"
    return "sextant"


@contextlib.asynccontextmanager
async def scripted_model(theta: float, seed: int, *, latency_s: float = 0.0) -> AsyncIterator[str]:
    """Run a scripted OpenAI-compatible model server as a second process; yields its base URL.

    The process ends when its standard input closes, so it never outlives this one.
    """
    arguments = ("--port", "0", "--theta", str(theta), "--seed", str(seed))
    async with programs.running(
        "app.demo.model_server", *arguments, "--latency", str(latency_s)
    ) as server:
        try:
            base_url = str((await asyncio.wait_for(server.message(), _START_S))["url"])
        except (TimeoutError, EOFError, ValueError) as error:
            raise SextantError("The scripted model server did not start.") from error
        yield base_url


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
                from app.engine.prediction.sample_size import sample_interval  # loads numpy

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
    both = {"chosen": chosen, "random": random}
    with redrawn(shown) as tell:
        await asyncio.gather(
            *(
                follow(client, path_of("sessions", one), partial(shown.take, side), tell)
                for side, one in both.items()
            )
        )
    return shown
