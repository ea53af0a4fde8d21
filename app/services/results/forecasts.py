"""Forecasts made where they hold nobody up: in a process of their own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from app.engine.bank import FloatArray
from app.engine.design.design import Design
from app.engine.simulation.forecast import Forecast, forecast
from app.engine.simulation.simulate import Calls
from app.sandbox.pool import Limits
from app.services.banks.confined_tests import Materials, processes

_MB = 2**20
#: Seconds that one forecast may take.
TIMEOUT_S = 60.0
#: Above what small work takes, so that one runs after the other, beside the sessions.
_LIMITS = Limits(memory=256 * _MB, seconds=TIMEOUT_S, output=_MB)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastWork:
    """Tests that are to be simulated: one for each theta, in logits."""

    design: Design
    thetas: Sequence[float] | FloatArray
    seed: int
    calls: Calls


async def forecast_confined(materials: Materials, work: ForecastWork) -> Forecast:
    """What `forecast` gives, from a child process; it ends when nobody waits for it.

    Raises:
        InvalidInputError: The design cannot be built on this version.
        LimitExceededError: It takes too long.
        BusyError: Too many simulations are waiting.
    """
    argument, attachments = materials.to_child()
    calls = work.calls
    extra = [column for column in (calls.tokens, calls.usd) if column is not None]
    made = await processes().run(
        forecast_in_child,
        {
            "materials": argument,
            "design": work.design.to_dict(),
            "thetas": np.asarray(work.thetas, dtype=np.float64).tolist(),
            "seed": work.seed,
            "has_tokens": calls.tokens is not None,
            "has_usd": calls.usd is not None,
            "pace_s": calls.pace_s,
        },
        attachments + [np.asarray(column, dtype=np.float64).tobytes() for column in extra],
        limits=_LIMITS,
        subject="Simulating these tests",
        advice="simulate fewer examinees, or set stopping.max_items",
    )
    return Forecast.from_dict(made)


def forecast_in_child(argument: Any, attachments: Sequence[bytes], _: BinaryIO) -> dict[str, Any]:
    """The forecast as JSON."""
    materials = Materials.in_child(argument["materials"], attachments)
    extra = list(map(np.frombuffer, attachments[len(argument["materials"]["columns"]) :]))
    design = Design.from_dict(argument["design"])
    return forecast(
        materials.test(design),
        argument["thetas"],
        seed=argument["seed"],
        concurrency=design.concurrency,
        se_target=design.stopping.se,
        margin_target=design.stopping.score_margin,
        calls=Calls(
            tokens=extra.pop(0) if argument["has_tokens"] else None,
            usd=extra.pop(0) if argument["has_usd"] else None,
            pace_s=argument["pace_s"],
        ),
    ).to_dict()
