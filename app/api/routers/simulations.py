"""Forecasts: what a test will take, before anything is paid."""

from fastapi import Request

from app.api.disconnects import while_connected
from app.api.errors import errors
from app.api.routing import router as make_router
from app.api.schemas.simulations import SimulationCreate, SimulationRead
from app.deps import AllServices, caller
from app.errors import InvalidStateError, NotFoundError

router = make_router("/simulations", tag="simulations")


@router.post("", dependencies=[caller("read")], responses=errors(NotFoundError, InvalidStateError))
async def simulate(body: SimulationCreate, opened: AllServices, request: Request) -> SimulationRead:
    """Items, cost and time to expect of a design on a bank version, from simulated tests.

    The answer comes within seconds, the first one of a design with `exposure` within a minute or
    two; nothing is stored. A design and a number of examinees that would take longer are refused.
    Who hangs up ends it.
    """
    made = await while_connected(request, opened.simulations.simulate(body.to_domain()))
    return SimulationRead.of(made)
