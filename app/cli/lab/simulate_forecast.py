"""The part of `sextant simulate` that forecasts what a test will take, without any answers."""

import numpy as np
from rich.table import Table

from app.cli.lab.inputs import KnownBank
from app.cli.terminal import console
from app.cli.terminal.console import write_json
from app.engine.design.design import Design
from app.engine.simulation.forecast import drawn, forecast
from app.engine.simulation.forecast_words import summary
from app.engine.simulation.simulate import Calls, prior_thetas
from app.printable import percent

#: Figures that the screen shows.
_SHOWN = ("items", "margin", "se", "interval", "tokens", "usd", "seconds")


def show_forecast(
    known: KnownBank, design: Design, calls: Calls, n_examinees: int, seed: int, json: str | None
) -> None:
    """Simulate examinees; show and write what their tests took.

    They are drawn from the reference models' abilities where the file tells them, else from the
    design's prior.
    """
    rng = np.random.default_rng(seed)
    if known.reference_abilities and known.bank.abilities is None:
        thetas = drawn(known.reference_abilities, n_examinees, rng)
    else:
        thetas = prior_thetas(known.bank, design.estimator, n_examinees, rng)
    found = forecast(
        known.test(design),
        thetas,
        seed=seed,
        concurrency=design.concurrency,
        se_target=design.stopping.se,
        margin_target=design.stopping.score_margin,
        calls=calls,
    )
    table = Table("", "median", "5 %", "95 %", title=f"{n_examinees} simulated tests")
    for name in _SHOWN:
        if (part := getattr(found, name)) is not None:
            table.add_row(name, *map(_short, (part.median, part.lo, part.hi)))
    screen = console.err if json == "-" else console.out
    screen.print(table)
    for sentence in summary(found):
        screen.print(sentence, soft_wrap=True)
    if found.reached is not None:
        screen.print(f"{percent(found.reached)} are as exact as asked for.")
    write_json(
        json,
        {
            "forecast": found.to_dict(),
            "summary": summary(found),
            "design": design.to_dict(),
            "seed": seed,
        },
    )


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
