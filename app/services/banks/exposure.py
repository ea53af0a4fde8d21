"""Exposure control fitted where it holds nobody up: by simulation, in a process of its own."""

from collections.abc import Sequence
from functools import cache
from typing import Any, BinaryIO

import numpy as np

from app.confined import Confinement, Limits
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.index import BoolArray
from app.engine.models.continuous import CONTINUOUS
from app.engine.multidimensional.knowledge import ABILITIES, abilities_to_dict, with_abilities
from app.engine.simulation.simulate import fit_acceptance

_MB = 2**20
#: A bank of 50,000 items takes 40 s of a free core.
_LIMITS = Limits(memory=150 * _MB, seconds=300.0, output=16 * _MB)
#: So that every worker fits the same and replays stay exact.
_SEED = 0


async def fitted_acceptance(
    design: Design,
    bank: ItemBank,
    *,
    active: BoolArray,
    tags: Sequence[Sequence[str]],
    costs: FloatArray | None,
) -> FloatArray:
    """What `fit_acceptance` gives, from a child process.

    Raises:
        InvalidInputError: The design cannot be built on this bank, or takes too long to fit.
        BusyError: Too many fits are waiting already.
    """
    columns = [bank.a, bank.intercept, bank.c, bank.d, active.astype(np.float64)]
    columns += [bank.k] if bank.model is CONTINUOUS else []
    columns += [] if costs is None else [costs]
    argument = {
        "design": design.to_dict(),
        "item_ids": list(bank.item_ids),
        "scale": bank.scale,
        "abilities": bank.abilities and abilities_to_dict(bank.abilities, bank.item_ids),
        "is_continuous": bank.model is CONTINUOUS,
        "has_costs": costs is not None,
        "tags": [list(of_item) for of_item in tags],
    }
    async with _processes().made(
        fit_in_child,
        argument,
        [np.ascontiguousarray(column, dtype=np.float64).tobytes() for column in columns],
        limits=_LIMITS,
        subject="Fitting the exposure limit of this design to this bank",
        advice="set no max_rate, or limit the length of the test by stopping.max_items",
    ) as (_, output):
        acceptance = np.frombuffer(output.read(), dtype=np.float64)
    if acceptance.shape != (bank.n_items,):  # what a child gives back is not trusted
        raise ValueError(f"Expected {bank.n_items} probabilities, got {acceptance.shape}.")
    return acceptance


def fit_in_child(argument: Any, attachments: Sequence[bytes], output: BinaryIO) -> None:
    """Write the acceptance probabilities as 64-bit floats."""
    a, intercept, c, d, active, *more = (np.frombuffer(part) for part in attachments)
    k = more.pop(0) if argument["is_continuous"] else None
    bank = ItemBank.from_intercepts(
        a=a,
        intercept=intercept,
        c=c,
        d=d,
        k=k,
        item_ids=argument["item_ids"],
        scale=argument["scale"],
    )
    if argument["abilities"] is not None:
        bank = with_abilities(bank, {ABILITIES: argument["abilities"]})
    acceptance = fit_acceptance(
        Design.from_dict(argument["design"]),
        bank,
        seed=_SEED,
        active=active.astype(np.bool_),
        tags=argument["tags"],
        costs=more.pop(0) if argument["has_costs"] else None,
    )
    output.write(acceptance.tobytes())


@cache
def _processes() -> Confinement:
    """Apart from those that read files, which nobody wants to wait behind a fit."""
    return Confinement(preloaded=(__name__,))


def close_processes() -> None:
    """End the helper process, if it runs; the next fit starts another."""
    if _processes.cache_info().currsize:
        _processes().close()
