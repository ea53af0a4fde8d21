"""Sessions: the list, one running or ended session, its questions, and its buttons."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request, Response
from pydantic import ValidationError

from app.api.events import event_stream
from app.api.routers.sessions import BankId, EndpointId, SessionId
from app.api.schemas.answers import ResponseRead
from app.api.schemas.sessions import SessionExtend, SessionRead, SessionStatus
from app.deps import AllServices, Feed
from app.errors import InvalidInputError, InvalidStateError, NotFoundError, SextantError
from app.pages.access import Form, Visit, still_there
from app.pages.forms import Body, faults_in, margin_in, numbers_in
from app.pages.item_curve import item_curve
from app.pages.latest import strip_of
from app.pages.live import AnswerKind, Live, answers_of, course_values, is_over, state_of
from app.pages.rendering import page
from app.pages.reports import session_sections
from app.pages.routing import router as make_router
from app.pages.routing import see
from app.records.leased import ENDED
from app.records.sessions import SessionFilter, SessionRecord
from app.services.sessions.manual import ManualAnswer
from app.services.sessions.service import SessionService
from app.storage.paging import PageRequest

router = make_router()
_live = Live()

_LISTED = 25
#: Questions that a page shows at once; a link leads to the rest.
_ANSWERS = 25
Step = Annotated[int, Path(ge=1, le=10**9)]
After = Annotated[str | None, Query(pattern=r"^[a-z]+_[0-9a-z]+$", max_length=64)]
#: Empty choice of a form.
Any_ = Annotated[str | None, Query(max_length=0)]


@router.get("/sessions")
async def session_list(
    request: Request,
    visit: Visit,
    opened: AllServices,
    status: SessionStatus | Any_ = None,
    endpoint_id: EndpointId | None = None,
    bank_id: BankId | None = None,
    after: After = None,
) -> Response:
    """Sessions, the newest first."""
    visit.require("read")
    wanted = SessionFilter(status=status or None, endpoint_id=endpoint_id, bank_id=bank_id)
    found = await opened.sessions.list_page(PageRequest(limit=_LISTED, after=after), wanted)
    rows = [SessionRead.of(record, visit.view) for record in found.items]
    return await page(request, "sessions.html", rows=rows, more=found.has_more)


@router.get("/sessions/{session_id}")
async def session_page(
    session_id: SessionId,
    request: Request,
    visit: Visit,
    opened: AllServices,
) -> Response:
    """One session: its progress while it runs, or its report."""
    visit.require("read")
    record = await opened.sessions.get(session_id)
    shown = SessionRead.of(record, visit.view)
    if record.status in ENDED:
        sections = await session_sections(
            opened.session_reports, record, reveal=visit.view.is_whole
        )
        return await page(request, "session_ended.html", session=shown, sections=sections)
    points, last = await _live.course_of(opened.sessions, record)
    first = max(shown.progress["items"] + shown.progress["in_flight"] - _ANSWERS, 0)
    answers = await answers_of(opened.sessions, opened.versions, visit.view, record, after=first)
    awaited = None
    if record.status == "awaiting_response" and visit.may("run"):
        with contextlib.suppress(InvalidStateError):  # answered in the meantime
            awaited = visit.view.next_item(await opened.manual_sessions.next_item(session_id))
    return await page(
        request,
        "session.html",
        session=shown,
        state=state_of(record),
        strip=strip_of(await opened.versions.load(record.bank_version_id), [shown]),
        **await asyncio.to_thread(course_values, points),
        last=last,
        answers=answers[::-1],
        earlier=first,
        awaited=awaited,
        can_pause=record.status in ("queued", "running", "waiting"),
    )


@router.get("/sessions/{session_id}/live")
async def session_stream(
    session_id: SessionId,
    request: Request,
    visit: Visit,
    opened: AllServices,
    feed: Feed,
    after: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
) -> Response:
    """Changes of a session's page, as server-sent events of HTML."""
    visit.require("read")
    await opened.sessions.get(session_id)
    view = visit.view

    async def fetch(seq: int) -> list[Any]:
        return await _live.since(opened.sessions, opened.versions, view, session_id, seq)

    return await event_stream(
        request,
        feed,
        "session",
        session_id,
        fetch,
        is_over,
        after=after,
        key_id=visit.key_id,
        check=lambda: still_there(request),
    )


@router.get("/sessions/{session_id}/answers")
async def answer_list(
    session_id: SessionId,
    request: Request,
    visit: Visit,
    opened: AllServices,
    after: Annotated[int, Query(ge=0, le=10**9)] = 0,
    only: Annotated[AnswerKind | Literal[""], Query()] = "",
    search: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """The questions of a session in order of asking, a page at a time."""
    visit.require("read")
    record = await opened.sessions.get(session_id)
    is_filtered = bool(only or search)
    found = await answers_of(
        opened.sessions,
        opened.versions,
        visit.view,
        record,
        after=after,
        limit=None if is_filtered else _ANSWERS + 1,
    )
    if is_filtered:
        found = [
            row for row in found if (not only or row.is_like(only)) and row.holds(search.strip())
        ][: _ANSWERS + 1]
    return await page(
        request,
        "answers.html",
        session=SessionRead.of(record, visit.view),
        answers=found[:_ANSWERS],
        more=len(found) > _ANSWERS,
    )


@router.get("/sessions/{session_id}/steps/{step}")
async def answer_page(
    session_id: SessionId,
    step: Step,
    request: Request,
    visit: Visit,
    opened: AllServices,
) -> Response:
    """One question of a session: its whole text, how it was scored, and its curve."""
    visit.require("read")
    record = await opened.sessions.get(session_id)
    asked = await opened.sessions.responses(session_id, after_step=step - 1, limit=2)
    if not asked or asked[0].step != step:
        raise NotFoundError("question", f"{step} of {session_id}")
    version = await opened.versions.load(record.bank_version_id)
    item = None
    if visit.view.shows(withheld=record.withheld):
        found = await opened.versions.items_at(version, [asked[0].position])
        item = found.get(asked[0].position)
    answer = ResponseRead.of(asked[0], visit.view)
    shown = SessionRead.of(record, visit.view)
    chart = await asyncio.to_thread(
        item_curve, version, asked[0].position, theta=shown.estimate["theta"]
    )
    template = "parts/answer_whole.html" if "hx-request" in request.headers else "answer.html"
    return await page(
        request,
        template,
        session=shown,
        answer=answer,
        item=item,
        chart=chart,
        has_next=len(asked) > 1,
        item_id=version.item_ids[asked[0].position] if not asked[0].is_pretest else None,
    )


def _add_action(action: Callable[[SessionService, str], Awaitable[object]], name: str) -> None:
    @router.post(f"/sessions/{{session_id}}/{name}", name=name)
    async def steer(
        session_id: SessionId, request: Request, visit: Visit, opened: AllServices
    ) -> Response:
        visit.require("run")
        await action(opened.sessions, session_id)
        return see(request, f"/sessions/{session_id}")


_add_action(SessionService.cancel, "cancel")  # ends a session with the answers so far
_add_action(SessionService.pause, "pause")
_add_action(SessionService.resume, "resume")


@router.post("/sessions/{session_id}/delete")
async def delete(
    session_id: SessionId, request: Request, visit: Visit, opened: AllServices
) -> Response:
    """Delete an ended session."""
    visit.require("run")
    await opened.sessions.delete(session_id)
    return see(request, "/sessions")


@router.post("/sessions/{session_id}/extend")
async def extend(
    session_id: SessionId,
    request: Request,
    visit: Visit,
    form: Form,
    opened: AllServices,
) -> Response:
    """Continue an ended session in a new one."""
    visit.require("read", "run")
    try:
        body = SessionExtend.model_validate(_extension(form, await opened.sessions.get(session_id)))
        created = await opened.derived_sessions.extend(session_id, body.plan(), body.metadata)
    except (ValidationError, SextantError) as error:
        problem = faults_in(error)
        record = await opened.sessions.get(session_id)
        return await page(
            request,
            "session_ended.html",
            status=422,
            session=SessionRead.of(record, visit.view),
            sections=await session_sections(
                opened.session_reports, record, reveal=visit.view.is_whole
            ),
            problem=problem,
        )
    return see(request, f"/sessions/{created.id}")


def _extension(form: dict[str, str], record: SessionRecord) -> Body:
    given: dict[str, str] = {name: form[name] for name in ("se", "max_items") if name in form}
    least = (record.design.get("stopping") or {}).get("min_items")
    goals = numbers_in(given)
    if least is not None:
        goals["min_items"] = min(least, goals.get("max_items", least))
    body: Body = {"stopping": {**goals, **margin_in(form)}}
    if budget := numbers_in({"usd": form["usd"]} if "usd" in form else {}):
        body["budget"] = budget
    return body


@router.post("/sessions/{session_id}/answer")
async def answer_by_hand(
    session_id: SessionId,
    request: Request,
    visit: Visit,
    form: Form,
    opened: AllServices,
) -> Response:
    """Answer the question that a session by hand awaits."""
    visit.require("run")
    if "step_token" not in form:
        raise InvalidInputError("The form does not say which question it answers.")
    await opened.manual_sessions.answer(
        session_id,
        ManualAnswer(step_token=form["step_token"], response=form.get("response", "")),
    )
    return see(request, f"/sessions/{session_id}")
