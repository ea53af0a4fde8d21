"""Adaptive tests on their way to a child process: numbers as bytes, all else as JSON.

Simulated tests are seconds to minutes of small steps in Python, each of which would keep requests
and sessions of the same process waiting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.index import BoolArray
from app.engine.models.base import ItemParameters
from app.engine.multidimensional.curve_knowledge import curves_of
from app.engine.multidimensional.knowledge import targets_of, with_abilities
from app.engine.prediction.correction import correction_in
from app.sandbox.pool import Sandbox

#: What children run; loaded by the helper that they are forked from.
_PRELOADED = ("app.services.banks.exposure", "app.services.results.forecasts")


@dataclass(frozen=True, kw_only=True, eq=False)
class Materials:
    """What tests on a bank version are built from.

    Attributes:
        bank: Parameters; abilities are taken from `knowledge`.
        active: Which items may be asked, shape (n_items,).
        tags: Of each item.
        costs: Of each item, shape (n_items,); None where the design counts none.
        acceptance: Fitted probabilities of a design that limits exposure, shape (n_items,).
        knowledge: What the version knows beside parameters, as it is stored.
    """

    bank: ItemBank
    active: BoolArray
    tags: Sequence[Sequence[str]]
    costs: FloatArray | None = None
    acceptance: FloatArray | None = None
    knowledge: Mapping[str, Any] = field(default_factory=dict)

    def to_child(self) -> tuple[dict[str, Any], list[bytes]]:
        """As an argument and attachments of confined work."""
        bank = self.bank
        columns = {
            **bank.columns,
            "active": self.active,
            "costs": self.costs,
            "acceptance": self.acceptance,
        }
        sent = {name: column for name, column in columns.items() if column is not None}
        argument = {
            "columns": list(sent),
            "item_ids": list(bank.item_ids),
            "scale": bank.scale,
            "tags": [list(of_item) for of_item in self.tags],
            "knowledge": dict(self.knowledge),
        }
        return argument, [
            np.ascontiguousarray(column, dtype=np.float64).tobytes() for column in sent.values()
        ]

    @classmethod
    def in_child(cls, argument: Mapping[str, Any], attachments: Sequence[bytes]) -> "Materials":
        """What `to_child` was called on, in the child."""
        sent = map(np.frombuffer, attachments)
        columns: dict[str, FloatArray] = dict(zip(argument["columns"], sent, strict=False))
        bank = ItemBank.from_intercepts(
            **{name: columns[name] for name in ItemParameters._fields if name in columns},
            item_ids=argument["item_ids"],
            scale=argument["scale"],
        )
        return cls(
            bank=with_abilities(bank, argument["knowledge"]),
            active=columns["active"].astype(np.bool_),
            tags=argument["tags"],
            costs=columns.get("costs"),
            acceptance=columns.get("acceptance"),
            knowledge=argument["knowledge"],
        )

    def test(self, design: Design) -> AdaptiveTest:
        """The test of a design, as sessions take it.

        Raises:
            InvalidInputError: The design cannot be built on this version.
        """
        return design.build(
            self.bank,
            active=self.active,
            tags=self.tags,
            costs=self.costs,
            exposure=self.acceptance,
            correction=correction_in(self.knowledge),
            targets=targets_of(self.bank, self.knowledge, self.tags),
            curves=curves_of(self.bank, self.knowledge),
        )


@cache
def processes() -> Sandbox:
    """Apart from those that read files, which nobody wants to wait behind a simulation.

    A fit takes up to a minute: one key's fits leave a place for the next one's.
    """
    return Sandbox(preloaded=_PRELOADED, spare=1)


def close_processes() -> None:
    """End the helper process, if it runs; the next work starts another."""
    if processes.cache_info().currsize:
        processes().close()
