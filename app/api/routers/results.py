"""Results decided, compared and forecast.

Gates: go, no go or inconclusive, by one session; and the baselines they are held against.
Comparisons of two examinees. Forecasts: what a test will take, before anything is paid.
"""

from typing import Annotated

from fastapi import Path, Query, Request, Response

from app.api.disconnects import while_connected
from app.api.parameters import Limit, Paging, id_path, list_of
from app.api.routers.rankings import BankId
from app.api.routing import allow, allow_once, make_router
from app.api.schemas.designs import SimulationCreate, SimulationRead
from app.api.schemas.results import (
    BaselineRead,
    BaselineSet,
    ComparisonCreate,
    ComparisonRead,
    GateCreate,
    GateRead,
    SessionName,
)
from app.deps import AllServices, Seen
from app.errors import (
    BlockedAddressError,
    InvalidInputError,
    InvalidStateError,
    MissingScopeError,
    NotFoundError,
    ScaleMismatchError,
    UnknownNameError,
)
from app.shapes import ListRead
from app.storage.paging import PageRequest
from app.validation import NAME_IN_URL

gates = make_router("", tag="gates")
comparisons = make_router("/comparisons", tag="comparisons")
simulations = make_router("/simulations", tag="simulations")

GateId = Annotated[str, id_path("gat")]


@gates.post(
    "/gates",
    status_code=201,
    **allow_once("run", NotFoundError, InvalidStateError, BlockedAddressError, UnknownNameError),
)
async def create_gate(
    body: GateCreate, response: Response, opened: AllServices, view: Seen
) -> GateRead:
    """Compare a session with a threshold or baseline, or start a session to compare.

    The outcome is `go` if the interval lies wholly beyond the threshold, `no_go` if it lies wholly
    on the other side, and otherwise `inconclusive`, as it is for a failed session. Against a
    baseline, the interval is that of the difference. If the outcome is inconclusive, extend the
    session and create a new gate. The gate is `pending` until its session has ended.
    """
    given = body.session.endpoint if body.session else None
    await opened.scorer_guard.require_free(view, given.name if given else None)
    session = body.session_id if body.session is None else body.session.to_domain()
    baseline = await opened.baselines.of(body.baseline) if body.baseline else None
    made = await opened.gates.create(body.to_domain(baseline), session or "")
    response.headers["Location"] = f"/v1/gates/{made.record.id}"
    return GateRead.of(made, view)


@gates.get("/gates", **allow("read", NotFoundError))
async def list_gates(
    page: Paging,
    opened: AllServices,
    view: Seen,
    session_id: Annotated[SessionName | None, Query()] = None,
    bank_id: BankId | None = None,
) -> ListRead[GateRead]:
    """List gates, the newest first."""
    found = await opened.gates.list_page(page, session_id=session_id, bank_id=bank_id)
    return list_of(
        found, lambda gate: GateRead.of(gate, view), identify=lambda gate: gate.record.id
    )


@gates.get("/gates/{gate_id}", **allow("read"))
async def get_gate(gate_id: GateId, opened: AllServices, view: Seen) -> GateRead:
    """One gate. It is decided if its session has ended."""
    return GateRead.of(await opened.gates.get(gate_id), view)


BaselineName = Annotated[
    str, Path(min_length=1, max_length=200, pattern=NAME_IN_URL, examples=["production"])
]


@gates.put("/baselines/{name}", **allow("run", NotFoundError, InvalidStateError, MissingScopeError))
async def put_baseline(
    name: BaselineName, body: BaselineSet, opened: AllServices, view: Seen
) -> BaselineRead:
    """Name the result of an ended session, or move an existing name to it.

    Only the key that created the name, or one with the scope `admin`, may move it.
    """
    made = await opened.baselines.put(name, body.session_id, is_admin=view.is_admin)
    return BaselineRead.of(made)


@gates.get("/baselines", **allow("read"))
async def list_baselines(
    opened: AllServices,
    limit: Limit = 20,
    after: Annotated[
        str | None,
        Query(
            max_length=200, description="Start after this name: the `last_id` of the previous page."
        ),
    ] = None,
) -> ListRead[BaselineRead]:
    """List baselines by name."""
    async with opened.database.reading() as uow:
        found = await uow.baselines.page(PageRequest(limit=limit, after=after))
    return list_of(found, BaselineRead.of, identify=lambda one: one.name)


@gates.get("/baselines/{name}", **allow("read"))
async def get_baseline(name: BaselineName, opened: AllServices) -> BaselineRead:
    """The result that has a name."""
    return BaselineRead.of(await opened.baselines.get(name))


@gates.delete("/baselines/{name}", status_code=204, **allow("run", MissingScopeError))
async def delete_baseline(name: BaselineName, opened: AllServices, view: Seen) -> None:
    """Delete a name. Gates that used it do not change."""
    await opened.baselines.delete(name, is_admin=view.is_admin)


@comparisons.post(
    "", **allow("read", NotFoundError, InvalidStateError, InvalidInputError, ScaleMismatchError)
)
async def compare(body: ComparisonCreate, opened: AllServices) -> ComparisonRead:
    """Compare two ended sessions on one scale, or two examinees of a response set.

    The result is the mean difference on the items that both answered, paired by item (items of one
    group count as one), and for sessions the difference of theta. Each has a standard error, an
    interval, a p-value, and the number of further items that would decide it. Nothing is stored.
    """
    if body.session_ids is not None:
        first, second = body.session_ids
        found = await opened.comparisons.sessions(first, second, confidence=body.confidence)
    else:
        first, second = body.examinees or ("", "")
        found = await opened.comparisons.examinees(
            body.response_set or "", first, second, confidence=body.confidence
        )
    return ComparisonRead.of(found)


@simulations.post("", **allow("read", NotFoundError, InvalidStateError))
async def simulate(body: SimulationCreate, opened: AllServices, request: Request) -> SimulationRead:
    """Forecast items, cost and time of a design on a bank version, by simulated tests.

    The answer takes seconds; the first one for a design with `exposure` takes a minute or two.
    Nothing is stored. A design and a number of examinees that would take longer are refused. If the
    client disconnects, the simulation ends.
    """
    made = await while_connected(request, opened.simulations.simulate(body.to_domain()))
    return SimulationRead.of(made)
