"""Sessions: the list, one running or ended session, its questions, and its buttons."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, Literal

from cachetools import TTLCache
from fastapi import Path, Query, Response
from markupsafe import Markup
from pydantic import ValidationError

from app.api.events import event_stream
from app.api.routers.rankings import BankId
from app.api.routers.sessions import EndpointId, SessionId
from app.api.schemas.answers import ResponseRead
from app.api.schemas.sessions import SessionExtend, SessionStatus
from app.deps import Feed
from app.errors import InvalidInputError, InvalidStateError, NotFoundError, SextantError
from app.pages.access import Form, still_there
from app.pages.forms import Body, Faults, faults_in, margin_in, numbers_in
from app.pages.items import item_curve
from app.pages.live import AnswerKind, Live, answers_of, course_values, is_over, state_of
from app.pages.model_results import strip_of
from app.pages.routing import After, PageCall, Read, ReadRun, Run, make_router
from app.pages.shown import ShownSession
from app.records.leased import ENDED
from app.records.sessions import SessionFilter, SessionRecord
from app.reports.session.page import sections
from app.services.sessions.manual import ManualAnswer
from app.services.sessions.service import SessionService
from app.storage.paging import PageRequest

router = make_router()
_live = Live()
#: Reports of ended sessions, kept for some seconds, since many people open a shared link.
_reports: Final[TTLCache[tuple[str, int, bool, bool], Markup]] = TTLCache(32, 30.0)

_LISTED = 25
#: Questions that a page shows at once; a link leads to the rest.
_ANSWERS = 25
Step = Annotated[int, Path(ge=1, le=10**9)]
#: Empty choice of a form.
Any_ = Annotated[str | None, Query(max_length=0)]


@router.get("/sessions")
async def session_list(
    call: Read,
    status: SessionStatus | Any_ = None,
    endpoint_id: EndpointId | None = None,
    bank_id: BankId | None = None,
    after: After = None,
) -> Response:
    """Sessions, the newest first."""
    wanted = SessionFilter(status=status or None, endpoint_id=endpoint_id, bank_id=bank_id)
    request = PageRequest(limit=_LISTED, after=after)
    found = await call.services.sessions.list_page(request, wanted)
    rows = [ShownSession.of(record, call.visit.view) for record in found.items]
    return await call.page("sessions.html", rows=rows, more=found.has_more)


@router.get("/sessions/{session_id}")
async def session_page(session_id: SessionId, call: Read) -> Response:
    """One session: its progress while it runs, or its report."""
    visit, opened = call.visit, call.services
    record = await opened.sessions.get(session_id)
    shown = ShownSession.of(record, visit.view)
    if record.status in ENDED:
        return await _ended(call, record)
    points, last = await _live.course_of(opened.sessions, record)
    first = max(shown.progress["items"] + shown.progress["in_flight"] - _ANSWERS, 0)
    answers = await answers_of(opened, visit.view, record, after=first)
    awaited = None
    if record.status == "awaiting_response" and visit.may("run"):
        with contextlib.suppress(InvalidStateError):  # answered in the meantime
            awaited = visit.view.next_item(await opened.manual_sessions.next_item(session_id))
    return await call.page(
        "session.html",
        session=shown,
        state=state_of(record),
        strip=strip_of(await opened.versions.load(record.bank_version_id), [shown]),
        **await asyncio.to_thread(course_values, points),
        last=last,
        answers=answers[::-1],
        awaited=awaited,
        can_pause=record.status in ("queued", "running", "waiting"),
    )


async def _ended(call: PageCall, record: SessionRecord, problem: Faults | None = None) -> Response:
    """The page of an ended session: its report without heading, and what can follow."""
    view = call.visit.view
    key = (record.id, record.revision, record.withheld, view.is_whole)
    found = _reports.get(key)
    if found is None:
        report = await call.services.session_reports.report(record.id, reveal=view.is_whole)
        found = _reports[key] = await asyncio.to_thread(sections, report)
    return await call.page(
        "session_ended.html",
        session=ShownSession.of(record, view),
        sections=found,
        problem=problem,
    )


@router.get("/sessions/{session_id}/live")
async def session_stream(
    session_id: SessionId,
    call: Read,
    feed: Feed,
    after: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
) -> Response:
    """Changes of a session's page, as server-sent events of HTML."""
    await call.services.sessions.get(session_id)

    async def fetch(seq: int) -> list[Any]:
        return await _live.since(call.services, call.visit.view, session_id, seq)

    return await event_stream(
        call.request,
        feed,
        "session",
        session_id,
        fetch,
        is_over,
        after=after,
        check=lambda: still_there(call.request),
    )


@router.get("/sessions/{session_id}/answers")
async def answer_list(
    session_id: SessionId,
    call: Read,
    after: Annotated[int, Query(ge=0, le=10**9)] = 0,
    only: Annotated[AnswerKind | Literal[""], Query()] = "",
    search: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """The questions of a session in order of asking, a page at a time."""
    opened, view = call.services, call.visit.view
    record = await opened.sessions.get(session_id)
    is_filtered = bool(only or search)
    limit = None if is_filtered else _ANSWERS + 1
    found = await answers_of(opened, view, record, after=after, limit=limit)
    if is_filtered:
        found = [
            row for row in found if (not only or row.is_like(only)) and row.holds(search.strip())
        ][: _ANSWERS + 1]
    return await call.page(
        "answers.html",
        session=ShownSession.of(record, view),
        answers=found[:_ANSWERS],
        more=len(found) > _ANSWERS,
    )


@router.get("/sessions/{session_id}/steps/{step}")
async def answer_page(session_id: SessionId, step: Step, call: Read) -> Response:
    """One question of a session: its whole text, how it was scored, and its curve."""
    opened, view = call.services, call.visit.view
    record = await opened.sessions.get(session_id)
    asked = await opened.sessions.responses(session_id, after_step=step - 1, limit=2)
    if not asked or asked[0].step != step:
        raise NotFoundError("question", f"{step} of {session_id}")
    version = await opened.versions.load(record.bank_version_id)
    item = None
    if view.shows(withheld=record.withheld):
        found = await opened.versions.items_at(version, [asked[0].position])
        item = found.get(asked[0].position)
    shown = ShownSession.of(record, view)
    chart = await asyncio.to_thread(
        item_curve, version, asked[0].position, theta=shown.estimate["theta"], profile=shown.profile
    )
    return await call.page(
        "answer.html",
        "parts/answer_whole.html",
        session=shown,
        answer=ResponseRead.of(asked[0], view),
        item=item,
        chart=chart,
        has_next=len(asked) > 1,
        item_id=version.item_ids[asked[0].position] if not asked[0].is_pretest else None,
    )


def _add_action(action: Callable[[SessionService, str], Awaitable[object]], name: str) -> None:
    @router.post(f"/sessions/{{session_id}}/{name}", name=name)
    async def steer(session_id: SessionId, call: Run) -> Response:
        await action(call.services.sessions, session_id)
        return call.see(f"/sessions/{session_id}")


_add_action(SessionService.cancel, "cancel")  # ends a session with the answers so far
_add_action(SessionService.pause, "pause")
_add_action(SessionService.resume, "resume")


@router.post("/sessions/{session_id}/delete")
async def delete(session_id: SessionId, call: Run) -> Response:
    """Delete an ended session."""
    await call.services.sessions.delete(session_id)
    return call.see("/sessions")


@router.post("/sessions/{session_id}/extend")
async def extend(session_id: SessionId, form: Form, call: ReadRun) -> Response:
    """Continue an ended session in a new one."""
    opened = call.services
    try:
        body = SessionExtend.model_validate(_extension(form))
        created = await opened.derived_sessions.extend(session_id, body.plan(), body.metadata)
    except (ValidationError, SextantError) as error:
        return await _ended(call, await opened.sessions.get(session_id), faults_in(error))
    return call.see(f"/sessions/{created.id}")


def _extension(form: dict[str, str]) -> Body:
    goals = {**numbers_in(form, "se", "max_items"), **margin_in(form)}
    # An empty field means no goal.
    body: Body = {"stopping": {"se": None, "score_margin": None, **goals}}
    if budget := numbers_in(form, "usd"):
        body["budget"] = budget
    return body


@router.post("/sessions/{session_id}/answer")
async def answer_by_hand(session_id: SessionId, form: Form, call: Run) -> Response:
    """Answer the question that a session by hand awaits."""
    if "step_token" not in form:
        raise InvalidInputError("The form does not say which question it answers.")
    answer = ManualAnswer(step_token=form["step_token"], response=form.get("response", ""))
    await call.services.manual_sessions.answer(session_id, answer)
    return call.see(f"/sessions/{session_id}")
