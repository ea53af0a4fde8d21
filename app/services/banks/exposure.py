"""Exposure control fitted where it holds nobody up: by simulation, in a process of its own."""

from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from app.engine.bank import FloatArray
from app.engine.design.design import Design
from app.engine.simulation.simulate import fit_acceptance
from app.sandbox.pool import Limits
from app.services.banks.confined_tests import Materials, processes

_MB = 2**20
#: A bank of 50,000 items takes 40 s of a free core.
_LIMITS = Limits(memory=150 * _MB, seconds=300.0, output=16 * _MB)
#: So that every worker fits the same and replays stay exact.
_SEED = 0


async def fitted_acceptance(design: Design, materials: Materials) -> FloatArray:
    """What `fit_acceptance` gives, from a child process.

    Raises:
        InvalidInputError: The design cannot be built on this bank, or takes too long to fit.
        BusyError: Too many fits are waiting already.
    """
    argument, attachments = materials.to_child()
    async with processes().made(
        fit_in_child,
        {"design": design.to_dict(), "materials": argument},
        attachments,
        limits=_LIMITS,
        subject="Fitting the exposure limit of this design to this bank",
        advice="set no max_rate, or limit the length of the test by stopping.max_items",
    ) as (_, output):
        acceptance = np.frombuffer(output.read(), dtype=np.float64)
    n_items = materials.bank.n_items
    if acceptance.shape != (n_items,):  # what a child gives back is not trusted
        raise ValueError(f"Expected {n_items} probabilities, got {acceptance.shape}.")
    return acceptance


def fit_in_child(argument: Any, attachments: Sequence[bytes], output: BinaryIO) -> None:
    """Write the acceptance probabilities as 64-bit floats."""
    materials = Materials.in_child(argument["materials"], attachments)
    acceptance = fit_acceptance(
        Design.from_dict(argument["design"]),
        materials.bank,
        seed=_SEED,
        active=materials.active,
        tags=materials.tags,
        costs=materials.costs,
    )
    output.write(acceptance.tobytes())
