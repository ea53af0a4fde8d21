"""Forecasts of what sessions on a bank version will take, from simulated sessions."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from app.engine.bank import FloatArray
from app.engine.design.design import Design
from app.engine.simulation.forecast import Forecast, calls_of, drawn
from app.engine.simulation.simulate import Calls, prior_thetas
from app.errors import FieldProblem, InvalidInputError
from app.printable import percent
from app.records.endpoints import CallLimits, Price
from app.records.sessions import Plan
from app.services.banks.confined_tests import forecast_confined
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService
from app.services.endpoints.service import EndpointService
from app.services.sessions.drafts import reachable_se
from app.services.sessions.plan import SessionPlan

#: Most items that the simulated sessions of one forecast may ask together.
MAX_ITEMS = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSpec:
    """Request for a forecast."""

    bank_version_id: str | None = None
    bank: str | None = None
    plan: Plan = field(default_factory=Plan)
    n_examinees: int = 100
    population: str | None = None
    thetas: Sequence[float] = ()
    endpoint_id: str | None = None
    price: Price | None = None
    latency_ms: float | None = None
    tokens_in: float | None = None
    tokens_out: float | None = None
    seed: int = 0


#: Share of simulated sessions that must reach the asked precision; below it, a caution says so.
_MOST_REACH = 0.5


@dataclass(frozen=True, slots=True)
class Simulation:
    """A forecast, its inputs, and the smallest SE that the whole bank can reach.

    `caution` says how many simulated examinees lie beyond the reference models, whether few
    sessions reach the asked precision, and whether they also ask trial questions; None where there
    is nothing to say.
    """

    version: LoadedVersion
    design: Design
    population: str
    forecast: Forecast
    reachable_se: float
    caution: str | None = None


@dataclass(frozen=True, eq=False)
class SimulationService:
    """Makes forecasts."""

    versions: VersionService
    endpoints: EndpointService

    async def simulate(self, spec: SimulationSpec) -> Simulation:
        """Forecast the items, cost and time of a design.

        Raises:
            NotFoundError: There is no such bank, version or endpoint.
            InvalidStateError: The bank has no version.
            InvalidInputError: The design makes no sense, the population or the cost of the budget
                is unknown, or the simulated sessions are more than one request may ask for or
                take too long.
            BusyError: Too many simulations are waiting.
        """
        version = await self.versions.load(spec.bank_version_id, bank=spec.bank)
        design = SessionPlan.of_new(spec.plan).design
        price, limits = spec.price or Price(), CallLimits()
        if spec.endpoint_id is not None:
            settings = (await self.endpoints.get(spec.endpoint_id)).settings
            price, limits = spec.price or settings.price, settings.limits
        calls = _calls(spec, design, version, price, limits)
        _check_budget(design, calls)
        population, thetas = _examinees(spec, design, version)
        _check_size(design, version, len(thetas))
        materials = await self.versions.materials(version, design, price)
        found = await forecast_confined(materials, design, thetas, seed=spec.seed, calls=calls)
        least, _ = await reachable_se(design, version)
        beyond = _beyond(version.reference_abilities, thetas)
        cautions = (beyond, _short(found.reached), _trials(version))
        caution = " ".join(filter(None, cautions)) or None
        return Simulation(version, design, population, found, least, caution)


def _calls(
    spec: SimulationSpec, design: Design, version: LoadedVersion, price: Price, limits: CallLimits
) -> Calls:
    in_flight = min(design.concurrency, limits.concurrency or design.concurrency)
    pace_s = None if spec.latency_ms is None else spec.latency_ms / 1000 / in_flight
    if pace_s is not None and limits.rpm is not None:
        pace_s = max(pace_s, 60 / limits.rpm)
    return calls_of(
        version.bank.n_items,
        tokens_in=_tokens(version.expected_tokens_in, spec.tokens_in),
        tokens_out=_tokens(version.expected_tokens_out, spec.tokens_out),
        price_in=price.input_per_1m,
        price_out=price.output_per_1m,
        pace_s=pace_s,
    )


def _tokens(expected: FloatArray, given: float | None) -> FloatArray | None:
    """Tokens of each item by the request, else by the bank; None where unknown."""
    known = expected if given is None else np.full_like(expected, given)
    return None if np.isnan(known).any() else known


def _examinees(
    spec: SimulationSpec, design: Design, version: LoadedVersion
) -> tuple[str, Sequence[float] | FloatArray]:
    if spec.thetas:
        return "given", spec.thetas
    rng = np.random.default_rng(spec.seed)
    if version.bank.abilities is not None:  # both names mean its one population
        drawn_from = spec.population or "reference"
        return drawn_from, prior_thetas(version.bank, design.estimator, spec.n_examinees, rng)
    abilities = version.reference_abilities
    if spec.population == "reference" and not abilities:
        detail = (
            "expected prior, got reference: this version has no stored abilities of its "
            "reference models"
        )
        raise InvalidInputError.of_field("population", detail)
    if abilities and spec.population != "prior":
        return "reference", drawn(abilities, spec.n_examinees, rng)
    return "prior", prior_thetas(version.bank, design.estimator, spec.n_examinees, rng)


def _short(reached: float | None) -> str | None:
    """Caution that few simulated sessions reach the asked precision; None where enough do."""
    if reached is None or reached >= _MOST_REACH:
        return None
    return (
        f"{percent(reached)} of the simulated tests become as exact as asked for: raise "
        "stopping.max_items, or ask for less."
    )


def _trials(version: LoadedVersion) -> str | None:
    """Caution that sessions also ask trial questions, which the forecast leaves out; else None."""
    asked = sum(item.id not in version.barred for item in version.pretest)
    n = min(version.pretest_items, asked)
    return f"Trial questions ({n} a session) come on top, with their cost and time." if n else None


def _beyond(calibrated: Sequence[float] | None, thetas: Sequence[float] | FloatArray) -> str | None:
    """Caution that simulated thetas lie beyond the reference models, given quantiles of theirs."""
    if not calibrated:
        return None
    lo, hi = calibrated[0], calibrated[-1]
    beyond = sum(not lo <= theta <= hi for theta in thetas)
    if not beyond:
        return None
    are = "is" if beyond == 1 else "are"
    return (
        f"{beyond} of {len(thetas)} simulated examinees {are} beyond the reference models "
        f"(theta {lo:.2f} to {hi:.2f}); the forecast takes the bank's curves to hold there, too."
    )


def _check_budget(design: Design, calls: Calls) -> None:
    priced = "tokens_in and tokens_out, and a price or an endpoint that has one"
    for name, cap, known, needed in (
        ("usd", design.budget.usd, calls.usd, priced),
        ("tokens", design.budget.tokens, calls.tokens, priced),
        ("seconds", design.budget.seconds, calls.pace_s, "latency_ms"),
    ):
        if cap is not None and known is None:
            detail = f"what an item takes is not known: give {needed}"
            raise InvalidInputError(
                f"The budget cannot be forecast: {detail}.",
                problems=[FieldProblem(f"/budget/{name}", detail)],
            )


def _check_size(design: Design, version: LoadedVersion, n_examinees: int) -> None:
    n_active = version.n_active
    longest = min(design.stopping.max_items or n_active, n_active)
    if n_examinees * longest > MAX_ITEMS:
        detail = (
            f"{n_examinees} tests of up to {longest} items are more than the {MAX_ITEMS} items one "
            f"forecast may ask: set n_examinees to {max(MAX_ITEMS // longest, 1)} or fewer, or "
            "lower stopping.max_items"
        )
        raise InvalidInputError(f"{detail}.", problems=[FieldProblem("/n_examinees", detail)])
