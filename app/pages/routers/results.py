"""Results beside each other: two tests; gates."""

import json
from typing import Annotated, Any

from fastapi import Path, Query, Request, Response
from pydantic import ValidationError

from app.api.schemas.comparisons import ComparisonRead
from app.api.schemas.gates import GateCreate, GateRead
from app.api.schemas.sessions import SessionRead
from app.deps import AllServices
from app.errors import SextantError
from app.pages.access import Form, Visit
from app.pages.forms import Faults, faults_in, numbers_in
from app.pages.rendering import page
from app.pages.routing import router as make_router
from app.pages.routing import see
from app.records.sessions import SessionFilter
from app.services.results.gates import GateService
from app.services.sessions.service import SessionService
from app.storage.paging import PageRequest

router = make_router()

_LISTED, _DIFFERING = 50, 200
SessionName = Annotated[str | None, Query(pattern=r"^(ses_[0-9a-z]{26})?$")]
GateId = Annotated[str, Path(pattern=r"^gat_[0-9a-z]{26}$")]
After = Annotated[str | None, Query(pattern=r"^[a-z]+_[0-9a-z]+$", max_length=64)]


@router.get("/compare")
async def compare(
    request: Request,
    visit: Visit,
    opened: AllServices,
    first: SessionName = None,
    second: SessionName = None,
    confidence: Annotated[float, Query(ge=0.5, lt=1)] = 0.95,
) -> Response:
    """Two tests: how far apart they are, and on which questions they differ."""
    visit.require("read")
    shown: dict[str, Any] = {"comparison": None, "problem": None, "differing": [], "others": []}
    named = [
        None if not name else SessionRead.of(await opened.sessions.get(name), visit.view)
        for name in (first, second)
    ]
    if first and second:
        try:
            found = await opened.comparisons.sessions(first, second, confidence=confidence)
            shown["comparison"] = ComparisonRead.read(found)
            shown["differing"] = await _differing(opened.sessions, first, second)
        except SextantError as error:
            shown["problem"] = faults_in(error)
    elif named[0] is not None:
        wanted = SessionFilter(status="completed", bank_id=named[0].bank.id)
        others = await opened.sessions.list_page(PageRequest(limit=_LISTED), wanted)
        shown["others"] = [
            SessionRead.of(record, visit.view) for record in others.items if record.id != first
        ]
    return await page(
        request, "compare.html", first=named[0], second=named[1], confidence=confidence, **shown
    )


async def _differing(
    sessions: SessionService, first: str, second: str
) -> list[tuple[str, tuple[int, float], tuple[int, float]]]:
    """Key, and of both sides step and score, of the questions that were marked differently."""
    marks = []
    for name in (first, second):
        asked = await sessions.responses(name)
        marks.append(
            {
                one.item_key: (one.step, one.closing.score)
                for one in asked
                if one.closing is not None and one.closing.score is not None
            }
        )
    mine, theirs = marks
    return [
        (key, mine[key], theirs[key])
        for key in mine
        if key in theirs and mine[key][1] != theirs[key][1]
    ][:_DIFFERING]


@router.get("/gates")
async def gate_list(
    request: Request, visit: Visit, opened: AllServices, after: After = None
) -> Response:
    """Gates and what they said, the newest first."""
    visit.require("read")
    return await _gates(request, visit, opened.gates, after, {}, None)


@router.post("/gates")
async def create_gate(request: Request, visit: Visit, form: Form, opened: AllServices) -> Response:
    """Holds a test against a threshold."""
    visit.require("read", "run")
    try:
        given: dict[str, str] = {
            name: form[name] for name in ("threshold", "confidence") if name in form
        }
        plain = {name: form[name] for name in ("session_id", "metric", "direction") if name in form}
        body = GateCreate.model_validate_json(json.dumps({**plain, **numbers_in(given)}))
        made = await opened.gates.create(body.to_domain(None), body.session_id or "")
    except (ValidationError, SextantError) as error:
        return await _gates(request, visit, opened.gates, None, form, faults_in(error))
    return see(request, f"/gates/{made.record.id}")


@router.get("/gates/{gate_id}")
async def gate_page(
    gate_id: GateId, request: Request, visit: Visit, opened: AllServices
) -> Response:
    """One gate."""
    visit.require("read")
    return await page(
        request, "gate.html", gate=GateRead.of(await opened.gates.get(gate_id), visit.view)
    )


async def _gates(
    request: Request,
    visit: Visit,
    gates: GateService,
    after: str | None,
    values: dict[str, str],
    problem: Faults | None,
) -> Response:
    found = await gates.list_page(PageRequest(limit=_LISTED, after=after))
    return await page(
        request,
        "gates.html",
        status=422 if problem else 200,
        rows=[GateRead.of(gate, visit.view) for gate in found.items],
        more=found.has_more,
        values=values or dict(request.query_params),
        problem=problem,
    )
