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
    """Forecast items, cost and time of a design on a bank version, by simulated tests.

    The answer takes seconds; the first one for a design with `exposure` takes a minute or two.
    Nothing is stored. A design and a number of examinees that would take longer are refused. If the
    client disconnects, the simulation ends.
    """
    made = await while_connected(request, opened.simulations.simulate(body.to_domain()))
    return SimulationRead.of(made)
