"""Gates: go, no go or inconclusive, by one session."""

from typing import Annotated

from fastapi import Path, Query, Response

from app.api.errors import errors
from app.api.idempotency import IDEMPOTENT
from app.api.paging import Paging, list_of
from app.api.routers.rankings import BankId
from app.api.routing import router as make_router
from app.api.schemas.common import ListRead
from app.api.schemas.comparisons import SessionName
from app.api.schemas.gates import GateCreate, GateRead
from app.deps import AllServices, Seen, caller
from app.errors import BlockedAddressError, InvalidStateError, NotFoundError, UnknownNameError

router = make_router("/gates", tag="gates")

GateId = Annotated[
    str, Path(pattern=r"^gat_[0-9a-z]{26}$", examples=["gat_01jd0000000000000000000000"])
]


@router.post(
    "",
    status_code=201,
    dependencies=[caller("run"), IDEMPOTENT],
    responses=errors(NotFoundError, InvalidStateError, BlockedAddressError, UnknownNameError),
)
async def create_gate(
    body: GateCreate, response: Response, opened: AllServices, view: Seen
) -> GateRead:
    """Hold a session against a threshold, or start a session for the purpose.

    `go` if the interval lies wholly beyond the threshold, `no_go` if wholly short of it, else
    `inconclusive`; so is the gate of a session that failed. Extend an inconclusive session and make
    a new gate. `pending` while the session goes on.
    """
    given = body.session.endpoint if body.session else None
    await opened.scorer_guard.require_free(view, given.name if given else None)
    session = body.session_id if body.session is None else body.session.to_domain()
    made = await opened.gates.create(body.to_domain(), session or "")
    response.headers["Location"] = f"/v1/gates/{made.record.id}"
    return GateRead.of(made, view)


@router.get("", dependencies=[caller("read")], responses=errors(NotFoundError))
async def list_gates(
    page: Paging,
    opened: AllServices,
    view: Seen,
    session_id: Annotated[SessionName | None, Query()] = None,
    bank_id: BankId | None = None,
) -> ListRead[GateRead]:
    """Gates, the newest first."""
    found = await opened.gates.list_page(page, session_id=session_id, bank_id=bank_id)
    return list_of(
        found, lambda gate: GateRead.of(gate, view), identify=lambda gate: gate.record.id
    )


@router.get("/{gate_id}", dependencies=[caller("read")])
async def get_gate(gate_id: GateId, opened: AllServices, view: Seen) -> GateRead:
    """A gate, decided if its session has ended."""
    return GateRead.of(await opened.gates.get(gate_id), view)
