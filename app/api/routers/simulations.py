"""Forecasts: what a test will take, before anything is paid."""

from app.api.errors import errors
from app.api.routing import router as make_router
from app.api.schemas.simulations import SimulationCreate, SimulationRead
from app.deps import Simulations, caller
from app.errors import InvalidStateError, NotFoundError

router = make_router("/simulations", tag="simulations")


@router.post("", dependencies=[caller("read")], responses=errors(NotFoundError, InvalidStateError))
async def simulate(body: SimulationCreate, simulations: Simulations) -> SimulationRead:
    """Items, cost and time to expect of a design on a bank version, from simulated tests.

    The answer comes at once, within seconds; nothing is stored. A design and a number of examinees
    that would take longer are refused.
    """
    return SimulationRead.of(await simulations.simulate(body.to_domain()))
