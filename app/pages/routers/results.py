"""Comparisons of two sessions, and gates."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import ValidationError

from app.api.routers.results import GateId
from app.api.schemas.results import ComparisonRead, GateCreate, GateRead
from app.errors import SextantError
from app.pages.access import Form
from app.pages.forms import Faults, faults_in, numbers_in, read_as, texts_in
from app.pages.live import AnswerRow, answers_of
from app.pages.routing import After, PageCall, Read, ReadRun, make_router
from app.pages.shown import ShownSession
from app.records.sessions import SessionFilter, SessionRecord
from app.storage.paging import PageRequest

router = make_router()

_LISTED = 25
SessionName = Annotated[str | None, Query(pattern=r"^(ses_[0-9a-z]{26})?$")]


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
    call: Read,
    first: SessionName = None,
    second: SessionName = None,
    ticked: Annotated[list[SessionName] | None, Query(alias="session", max_length=100)] = None,
    confidence: Annotated[float, Query(ge=0.5, lt=1)] = 0.95,
) -> Response:
    """Two sessions: the difference between them, and the questions on which they differ."""
    opened, view = call.services, call.visit.view
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
            shown["changed"] = await _changed(call, one, other)
        except SextantError as error:
            shown["problem"] = faults_in(error)
    else:
        bank_id = None if one is None else one.bank_id
        wanted = SessionFilter(status="completed", bank_id=bank_id)
        others = await opened.sessions.list_page(PageRequest(limit=_LISTED), wanted)
        shown["others"] = [
            ShownSession.of(record, view) for record in others.items if record.id != first
        ]
    sides = [None if record is None else ShownSession.of(record, view) for record in named]
    return await call.page("compare.html", status=200, first=sides[0], second=sides[1], **shown)


async def _changed(call: PageCall, first: SessionRecord, second: SessionRecord) -> list[_Changed]:
    """Questions with different scores in both sessions, the greatest losses first."""
    mine, theirs = [
        {
            row.answer.item_id: (row.answer.score, row)
            for row in await answers_of(call.services, call.visit.view, record)
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
async def gate_list(call: Read, after: After = None) -> Response:
    """Gates and their outcomes, the newest first."""
    return await _gates(call, after, {}, None)


@router.post("/gates")
async def create_gate(form: Form, call: ReadRun) -> Response:
    """Compare a session with a threshold."""
    try:
        plain = texts_in(form, "session_id", "metric", "direction")
        body = read_as(GateCreate, {**plain, **numbers_in(form, "threshold", "confidence")})
        made = await call.services.gates.create(body.to_domain(None), body.session_id or "")
    except (ValidationError, SextantError) as error:
        return await _gates(call, None, form, faults_in(error))
    return call.see(f"/gates/{made.record.id}")


@router.get("/gates/{gate_id}")
async def gate_page(gate_id: GateId, call: Read) -> Response:
    """One gate."""
    gate = GateRead.of(await call.services.gates.get(gate_id), call.visit.view)
    return await call.page("gate.html", gate=gate)


async def _gates(
    call: PageCall, after: str | None, values: dict[str, str], problem: Faults | None
) -> Response:
    found = await call.services.gates.list_page(PageRequest(limit=_LISTED, after=after))
    wanted = SessionFilter(status="completed")
    tests = (await call.services.sessions.list_page(PageRequest(limit=_LISTED), wanted)).items
    return await call.page(
        "gates.html",
        rows=[GateRead.of(gate, call.visit.view) for gate in found.items],
        more=found.has_more,
        tests=[ShownSession.of(record, call.visit.view) for record in tests],
        values=values or dict(call.request.query_params),
        problem=problem,
    )
