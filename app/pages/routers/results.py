"""Comparisons of two sessions, and gates."""

import json
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Path, Query, Request, Response
from pydantic import ValidationError

from app.api.schemas.results import ComparisonRead, GateCreate, GateRead
from app.api.schemas.sessions import SessionRead
from app.deps import AllServices
from app.errors import SextantError
from app.pages.access import Form, Visit, Visitor
from app.pages.forms import Faults, faults_in, numbers_in
from app.pages.live import AnswerRow, answers_of
from app.pages.rendering import page
from app.pages.routing import router as make_router
from app.pages.routing import see
from app.records.sessions import SessionFilter, SessionRecord
from app.services.container import Services
from app.services.visibility import View
from app.storage.paging import PageRequest

router = make_router()

_LISTED = 25
SessionName = Annotated[str | None, Query(pattern=r"^(ses_[0-9a-z]{26})?$")]
GateId = Annotated[str, Path(pattern=r"^gat_[0-9a-z]{26}$")]
After = Annotated[str | None, Query(pattern=r"^[a-z]+_[0-9a-z]+$", max_length=64)]


@dataclass(frozen=True, slots=True)
class _Changed:
    """A question with different scores in two sessions.

    Attributes:
        first: Answer of the first session.
        gain: Score in the second session minus score in the first.
    """

    first: AnswerRow
    second: AnswerRow
    gain: float


@router.get("/compare")
async def compare(
    request: Request,
    visit: Visit,
    opened: AllServices,
    first: SessionName = None,
    second: SessionName = None,
    ticked: Annotated[list[SessionName] | None, Query(alias="session", max_length=100)] = None,
    confidence: Annotated[float, Query(ge=0.5, lt=1)] = 0.95,
) -> Response:
    """Two sessions: the difference between them, and the questions on which they differ."""
    visit.require("read")
    shown: dict[str, Any] = {"comparison": None, "problem": None, "changed": [], "others": []}
    if ticked:  # ids begin with their time: the older session is first
        first, second = (*sorted(filter(None, ticked)), None, None)[:2]
        if len(ticked) > 2:
            second = None
            shown["problem"] = Faults(f"Two tests are compared; {len(ticked)} were ticked.")
    named = [None if not name else await opened.sessions.get(name) for name in (first, second)]
    one, other = named
    if one is not None and other is not None:
        try:
            found = await opened.comparisons.sessions(one.id, other.id, confidence=confidence)
            shown["comparison"] = ComparisonRead.of(found)
            shown["cautions"] = found.caution, found.theta_caution
            shown["changed"] = await _changed(opened, visit.view, one, other)
        except SextantError as error:
            shown["problem"] = faults_in(error)
    else:
        bank_id = None if one is None else one.bank_id
        wanted = SessionFilter(status="completed", bank_id=bank_id)
        others = await opened.sessions.list_page(PageRequest(limit=_LISTED), wanted)
        shown["others"] = [
            SessionRead.of(record, visit.view) for record in others.items if record.id != first
        ]
    sides = [None if record is None else SessionRead.of(record, visit.view) for record in named]
    return await page(request, "compare.html", first=sides[0], second=sides[1], **shown)


async def _changed(
    opened: Services, view: View, first: SessionRecord, second: SessionRecord
) -> list[_Changed]:
    """Questions with different scores in both sessions, the greatest losses first."""
    mine, theirs = [
        {
            row.answer.item_id: (row.answer.score, row)
            for row in await answers_of(opened.sessions, opened.versions, view, record)
            if row.answer.score is not None and not row.answer.pretest
        }
        for record in (first, second)
    ]
    found = [
        _Changed(row, theirs[key][1], theirs[key][0] - score)
        for key, (score, row) in mine.items()
        if key in theirs
    ]
    changed = [one for one in found if one.gain]
    return sorted(changed, key=lambda one: (one.gain, one.first.answer.step))


@router.get("/gates")
async def gate_list(
    request: Request, visit: Visit, opened: AllServices, after: After = None
) -> Response:
    """Gates and their outcomes, the newest first."""
    visit.require("read")
    return await _gates(request, visit, opened, after, {}, None)


@router.post("/gates")
async def create_gate(request: Request, visit: Visit, form: Form, opened: AllServices) -> Response:
    """Compare a session with a threshold."""
    visit.require("read", "run")
    try:
        given: dict[str, str] = {
            name: form[name] for name in ("threshold", "confidence") if name in form
        }
        plain = {name: form[name] for name in ("session_id", "metric", "direction") if name in form}
        body = GateCreate.model_validate_json(json.dumps({**plain, **numbers_in(given)}))
        made = await opened.gates.create(body.to_domain(None), body.session_id or "")
    except (ValidationError, SextantError) as error:
        return await _gates(request, visit, opened, None, form, faults_in(error))
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
    visit: Visitor,
    opened: Services,
    after: str | None,
    values: dict[str, str],
    problem: Faults | None,
) -> Response:
    found = await opened.gates.list_page(PageRequest(limit=_LISTED, after=after))
    wanted = SessionFilter(status="completed")
    tests = (await opened.sessions.list_page(PageRequest(limit=_LISTED), wanted)).items
    return await page(
        request,
        "gates.html",
        status=422 if problem else 200,
        rows=[GateRead.of(gate, visit.view) for gate in found.items],
        more=found.has_more,
        tests=[SessionRead.of(record, visit.view) for record in tests],
        values=values or dict(request.query_params),
        problem=problem,
    )
