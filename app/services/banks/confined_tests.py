"""Run simulated adaptive tests in a child process: numbers travel as bytes, the rest as JSON.

A simulation takes seconds to minutes of small steps in Python. In the server's own process, each
step would delay its requests and sessions.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, BinaryIO

import numpy as np
from pydantic import TypeAdapter

from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.knowledge import curves_of, targets_of, with_abilities
from app.engine.models.base import BoolArray
from app.engine.prediction.correction import correction_in
from app.engine.simulation.forecast import Forecast, forecast
from app.engine.simulation.simulate import Calls, fit_acceptance
from app.errors import FieldProblem, LimitExceededError
from app.sandbox.pool import Limits, Sandbox

_MB = 2**20


@dataclass(frozen=True, kw_only=True, eq=False)
class Materials:
    """Data from which tests on a bank version are built.

    Attributes:
        bank: Item parameters; loadings on several abilities are read from `knowledge`.
        active: Which items may be asked, shape (n_items,).
        costs: Cost of each item, shape (n_items,); None where the design ignores cost.
        acceptance: Fitted probabilities of a design that limits exposure, shape (n_items,).
        knowledge: What the version knows besides item parameters, in its stored form.
    """

    bank: ItemBank
    active: BoolArray
    tags: Sequence[Sequence[str]]
    costs: FloatArray | None = None
    acceptance: FloatArray | None = None
    knowledge: Mapping[str, Any] = field(default_factory=dict)

    def to_child(self, **more: FloatArray | None) -> tuple[dict[str, Any], list[bytes]]:
        """Argument and attachments for the child process; `more` adds further arrays."""
        bank = self.bank
        columns = {
            **bank.columns,
            "active": self.active,
            "costs": self.costs,
            "acceptance": self.acceptance,
            **more,
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
        """Rebuild, in the child process, the materials that `to_child` sent."""
        columns = _columns(argument, attachments)
        bank = ItemBank.from_columns(argument["item_ids"], columns, scale=argument["scale"])
        return cls(
            bank=with_abilities(bank, argument["knowledge"]),
            active=columns["active"].astype(np.bool_),
            tags=argument["tags"],
            costs=columns.get("costs"),
            acceptance=columns.get("acceptance"),
            knowledge=argument["knowledge"],
        )

    def test(self, design: Design) -> AdaptiveTest:
        """The test of a design, as sessions use it.

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


def _columns(argument: Mapping[str, Any], attachments: Sequence[bytes]) -> dict[str, FloatArray]:
    return dict(zip(argument["columns"], map(np.frombuffer, attachments), strict=True))


@cache
def processes() -> Sandbox:
    """Child processes for simulations, apart from those that read files, which must not wait.

    A fit or forecast takes up to a minute, so those of one API key leave a place for another's.
    """
    return Sandbox(preloaded=(__name__,), spare=1)


def close_processes() -> None:
    """End the child processes, if any run; the next work starts new ones."""
    if processes.cache_info().currsize:
        processes().close()


#: A fit for a bank of 50,000 items takes 40 s on a free core.
_FIT_LIMITS = Limits(memory=150 * _MB, seconds=300.0, output=16 * _MB)
#: A fixed random seed: every worker fits the same values, and replays stay exact.
_SEED = 0


async def fitted_acceptance(design: Design, materials: Materials) -> FloatArray:
    """Run `fit_acceptance` in a child process.

    Raises:
        InvalidInputError: The design cannot be built on this bank, or takes too long to fit.
        BusyError: Too many fits are waiting already.
    """
    argument, attachments = materials.to_child()
    async with processes().made(
        fit_in_child,
        {"design": design.to_dict(), "materials": argument},
        attachments,
        limits=_FIT_LIMITS,
        subject="Fitting the exposure limit of this design to this bank",
        advice="set no max_rate, or limit the length of the test by stopping.max_items",
    ) as (_, output):
        acceptance = np.frombuffer(output.read(), dtype=np.float64)
    n_items = materials.bank.n_items
    if acceptance.shape != (n_items,):  # the output of a child process is not trusted
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


#: Seconds of CPU time that one forecast may take.
TIMEOUT_S = 60.0
#: Tests whose time tells how long all of them take.
_TIMED = 5
#: More memory than small work may take, so that forecasts of a key run one after the other.
_FORECAST_LIMITS = Limits(memory=256 * _MB, seconds=TIMEOUT_S, output=_MB)


async def forecast_confined(
    materials: Materials,
    design: Design,
    thetas: Sequence[float] | FloatArray,
    *,
    seed: int,
    calls: Calls,
) -> Forecast:
    """Run `forecast` in a child process, which ends when nobody waits for the result.

    One test is simulated for each theta, in logits.

    Raises:
        InvalidInputError: The design cannot be built on this version.
        LimitExceededError: It takes too long.
        BusyError: Too many simulations are waiting.
    """
    argument, attachments = materials.to_child(tokens=calls.tokens, usd=calls.usd)
    made = await processes().run(
        forecast_in_child,
        {
            "materials": argument,
            "design": design.to_dict(),
            "thetas": np.asarray(thetas, dtype=np.float64).tolist(),
            "seed": seed,
            "pace_s": calls.pace_s,
            "timeout_s": TIMEOUT_S,
        },
        attachments,
        limits=_FORECAST_LIMITS,
        subject="Simulating these tests",
        advice="lower n_examinees or stopping.max_items",
    )
    return TypeAdapter(Forecast).validate_python(made)


def forecast_in_child(argument: Any, attachments: Sequence[bytes], _: BinaryIO) -> dict[str, Any]:
    """The forecast as JSON."""
    materials = Materials.in_child(argument["materials"], attachments)
    columns = _columns(argument["materials"], attachments)
    design = Design.from_dict(argument["design"])
    return forecast(
        materials.test(design),
        argument["thetas"],
        seed=argument["seed"],
        concurrency=design.concurrency,
        se_target=design.stopping.se,
        margin_target=design.stopping.score_margin,
        calls=Calls(
            tokens=columns.get("tokens"), usd=columns.get("usd"), pace_s=argument["pace_s"]
        ),
        watch=_timer(len(argument["thetas"]), argument["timeout_s"]),
    ).to_dict()


def _timer(n_tests: int, timeout_s: float) -> Callable[[int], None]:
    """Refuse tests as soon as the time of the first ones tells that all would take too long."""
    begun = time.process_time()

    def watch(n_done: int) -> None:
        each = (time.process_time() - begun) / n_done
        if n_done < _TIMED or each * n_tests <= timeout_s:
            return
        fits = max(int(timeout_s / each), 1)
        detail = (
            f"Simulating {n_tests} tests takes about {each * n_tests:.0f} s, and may take "
            f"{timeout_s:g} s: set n_examinees to {fits} or fewer, or lower stopping.max_items"
        )
        raise LimitExceededError(f"{detail}.", problems=[FieldProblem("/n_examinees", detail)])

    return watch
