"""Adaptive tests: create, watch, steer, answer by hand."""

import asyncio
from typing import Annotated, Literal

from fastapi import Query, Request, Response

from app.api.bodies import MEDIUM, up_to
from app.api.downloads import REPORT, ReportFormat, attachment, file_responses, html_page, preferred
from app.api.events import EVENTS, AfterEvent, Wait, events_for, wait_for_end
from app.api.parameters import AfterStep, Paging, id_path, list_of
from app.api.routers.rankings import BankId
from app.api.routing import allow, allow_once, make_router
from app.api.schemas.answers import (
    AnsweredRead,
    ChangeRead,
    NextItemRead,
    NextItemsInput,
    ReleaseInput,
    ResponseList,
    ResponseRead,
    Trajectory,
)
from app.api.schemas.events import EventList
from app.api.schemas.reports import SessionReportRead
from app.api.schemas.sessions import (
    SessionBrief,
    SessionCreate,
    SessionExtend,
    SessionRead,
    SessionReplay,
    SessionRescore,
    SessionStatus,
)
from app.deps import AllServices, Feed, Seen
from app.errors import (
    AlreadyExistsError,
    BlockedAddressError,
    InvalidStateError,
    NotFoundError,
    SecretsError,
    StaleStepError,
    UnknownNameError,
)
from app.records.sessions import SessionFilter
from app.reports.session.page import render
from app.services.sessions.manual import ManualAnswer
from app.services.sessions.report import SessionFormat
from app.shapes import Listed, ListRead, Moment, Name

router = make_router("/sessions", tag="sessions")

SessionId = Annotated[str, id_path("ses")]
EndpointId = Annotated[str, Query(pattern=r"^end_[0-9a-z]{26}$")]


@router.post(
    "",
    status_code=202,
    **allow_once(
        "run",
        NotFoundError,
        AlreadyExistsError,
        BlockedAddressError,
        UnknownNameError,
        also={201: {"model": SessionRead, "description": "A manual session: fetch its next item."}},
    ),
)
async def create_session(
    body: SessionCreate, response: Response, opened: AllServices, view: Seen
) -> SessionRead:
    """Start an adaptive test of an endpoint, or a manual one that the caller answers.

    The call returns at once; the test runs in a worker. Poll the session, or read its events.
    """
    if body.endpoint is not None:
        await opened.scorer_guard.require_free(view, body.endpoint.name)
    created = await opened.sessions.create(body.to_domain(), is_admin=view.is_admin)
    if body.mode == "manual":
        response.status_code = 201
    response.headers["Location"] = f"/v1/sessions/{created.id}"
    return SessionRead.of(created, view)


@router.get("", **allow("read", NotFoundError))
async def list_sessions(
    request: Request,
    page: Paging,
    opened: AllServices,
    view: Seen,
    status: Annotated[SessionStatus | None, Query()] = None,
    endpoint_id: EndpointId | None = None,
    bank_id: BankId | None = None,
    examinee: Annotated[
        Name | None, Query(description="Name of the endpoint or of the named examinee.")
    ] = None,
    model: Annotated[Name | None, Query(description="Name of the model.")] = None,
    since: Annotated[
        Moment | None, Query(description="Only sessions created at this time or later.")
    ] = None,
    before: Annotated[
        Moment | None, Query(description="Only sessions created before this time.")
    ] = None,
    pairs: Annotated[
        str | None,
        Query(
            alias="metadata.*",
            description="Only sessions with this metadata pair, such as `metadata.commit=abc`; "
            "may be repeated for other names.",
        ),
    ] = None,
) -> ListRead[SessionRead]:
    """List sessions, the newest first."""
    begins = "metadata."
    metadata = {
        name.removeprefix(begins): value
        for name, value in request.query_params.items()
        if name.startswith(begins)
    }
    wanted = SessionFilter(
        status=status,
        endpoint_id=endpoint_id,
        bank_id=bank_id,
        examinee=examinee,
        model=model,
        metadata=metadata,
        since=since,
        before=before,
    )
    found = await opened.sessions.list_page(page, wanted)
    return list_of(found, lambda record: SessionRead.of(record, view))


@router.get("/{session_id}", **allow("read"))
async def get_session(
    session_id: SessionId,
    request: Request,
    opened: AllServices,
    feed: Feed,
    seen: Seen,
    view: Annotated[
        Literal["whole", "brief"],
        Query(description="`whole`, or `brief` with a few hundred characters."),
    ] = "whole",
    wait: Wait = 0,
) -> SessionRead | SessionBrief:
    """State and results of a session: theta with its SE, score, usage and outcomes."""
    if wait:
        await wait_for_end(request, feed, "session", session_id, wait)
    record = await opened.sessions.get(session_id)
    return SessionBrief.of(record, seen) if view == "brief" else SessionRead.of(record, seen)


@router.delete("/{session_id}", status_code=204, **allow("run", InvalidStateError))
async def delete_session(session_id: SessionId, opened: AllServices) -> None:
    """Delete an ended session with its answers and events."""
    await opened.sessions.delete(session_id)


@router.get("/{session_id}/responses", **allow("read"))
async def list_responses(
    session_id: SessionId,
    opened: AllServices,
    view: Seen,
    after: AfterStep = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> ResponseList:
    """List the items of a session in order of asking, with answer, outcome, score and cost.

    A page with long answers has fewer entries than `limit`: continue while `has_more` is true.
    """
    page = await opened.sessions.responses_page(session_id, after_step=after, limit=limit)
    data = [ResponseRead.of(row, view) for row in page.items]
    return ResponseList(
        data=data, last_step=data[-1].step if data else after, has_more=page.has_more
    )


@router.get("/{session_id}/trajectory", **allow("read"))
async def get_trajectory(session_id: SessionId, opened: AllServices) -> Trajectory:
    """Theta and SE after each answer, in order of arrival."""
    return Trajectory.of(await opened.sessions.responses(session_id))


@router.get(
    "/{session_id}/export",
    response_class=Response,
    **allow(
        "read", InvalidStateError, also=file_responses(kind.media_type for kind in SessionFormat)
    ),
)
async def export_ended_session(
    session_id: SessionId,
    opened: AllServices,
    view: Seen,
    file_format: Annotated[
        SessionFormat,
        Query(
            alias="format",
            description="`eee`: the object of one evaluation in the format Every Eval Ever; "
            "`eee-items`: its lines, one per item.",
        ),
    ] = SessionFormat.EEE,
) -> Response:
    """Export an ended session for other tools.

    Items without a score are counted in the object and have no line. For keys without
    `banks:write`, questions and answers of a withheld bank are left out.
    """
    content = await opened.session_reports.export(session_id, file_format, reveal=view.is_whole)
    headers = {"Content-Disposition": attachment(f"{session_id}.{file_format.suffix}")}
    return Response(content, media_type=file_format.media_type, headers=headers)


@router.get("/{session_id}/report", response_model=SessionReportRead, **allow("read", also=REPORT))
async def get_session_report(
    session_id: SessionId,
    request: Request,
    response: Response,
    opened: AllServices,
    view: Seen,
    file_format: ReportFormat = None,
) -> SessionReportRead | Response:
    """Report on a session in plain words, as figures or as an HTML page.

    The session may be in any state. The page is self-contained: no scripts, fonts or images from
    elsewhere. For keys without `banks:write`, questions and answers of a withheld bank are left
    out.
    """
    report = await opened.session_reports.report(session_id, reveal=view.is_whole)
    if (file_format or preferred(request, "json", "html")) == "html":
        return html_page(await asyncio.to_thread(render, report))
    response.headers["Vary"] = "Accept"
    return await asyncio.to_thread(SessionReportRead.of, report)


@router.get("/{session_id}/events", **EVENTS)
async def session_events(
    session_id: SessionId,
    request: Request,
    opened: AllServices,
    feed: Feed,
    view: Seen,
    after: AfterEvent = 0,
) -> Response | EventList:
    """Events of a session. `Last-Event-ID` or `after` resumes the stream."""
    await opened.sessions.get(session_id)
    return await events_for(request, feed, "session", session_id, view, after=after)


@router.post("/{session_id}:cancel", **allow("run", InvalidStateError))
async def cancel_session(session_id: SessionId, opened: AllServices, view: Seen) -> SessionRead:
    """Cancel a session. Its answers so far are kept."""
    return SessionRead.of(await opened.sessions.cancel(session_id), view)


@router.post("/{session_id}:pause", **allow("run", InvalidStateError))
async def pause_session(session_id: SessionId, opened: AllServices, view: Seen) -> SessionRead:
    """Pause a session. Calls in flight are dropped; their items are asked again later."""
    return SessionRead.of(await opened.sessions.pause(session_id), view)


@router.post("/{session_id}:resume", **allow("run", InvalidStateError))
async def resume_session(session_id: SessionId, opened: AllServices, view: Seen) -> SessionRead:
    """Resume a paused session."""
    return SessionRead.of(await opened.sessions.resume(session_id), view)


@router.post("/{session_id}:extend", status_code=202, **allow_once("run", InvalidStateError))
async def extend_session(
    session_id: SessionId, body: SessionExtend, response: Response, opened: AllServices, view: Seen
) -> SessionRead:
    """Continue an ended session with a tighter target or a larger budget.

    This creates a new session that starts with the old answers. Only items that ended in an error
    may be asked again.
    """
    created = await opened.derived_sessions.extend(session_id, body.plan(), body.metadata)
    response.headers["Location"] = f"/v1/sessions/{created.id}"
    return SessionRead.of(created, view)


@router.post("/{session_id}:replay", status_code=201, **allow_once("run", InvalidStateError))
async def replay_session(
    session_id: SessionId, body: SessionReplay, response: Response, opened: AllServices, view: Seen
) -> SessionRead:
    """Estimate again from the answers of an ended session, by another estimator or bank version.

    To move answers to or from a withheld bank a key needs `banks:write`.
    """
    created = await opened.derived_sessions.replay(
        session_id,
        body.changes(),
        bank_version_id=body.bank_version_id,
        metadata=body.metadata,
        view=view,
    )
    response.headers["Location"] = f"/v1/sessions/{created.id}"
    return SessionRead.of(created, view)


@router.post(
    "/{session_id}:rescore",
    status_code=202,
    **allow_once("run", InvalidStateError, UnknownNameError),
)
async def rescore_session(
    session_id: SessionId, body: SessionRescore, response: Response, opened: AllServices, view: Seen
) -> SessionRead:
    """Score the stored answers of an ended session again, with another scorer.

    The tested model is not called. This creates a linked session, which a worker fills; the old one
    does not change. Theta is estimated again, in the order in which the answers arrived. A judge is
    called, within its own budget. To name a scorer for answers to a withheld bank a key needs
    `banks:write`, because a scorer gets the right answers.
    """
    scorer = None if body.scorer is None else body.scorer.to_domain()
    view.require_own_scorer(await opened.sessions.get(session_id), named=scorer is not None)
    created = await opened.derived_sessions.rescore(session_id, scorer, body.metadata)
    response.headers["Location"] = f"/v1/sessions/{created.id}"
    return SessionRead.of(created, view)


@router.get("/{session_id}/changes", **allow("read", InvalidStateError))
async def list_changes(
    session_id: SessionId, opened: AllServices, view: Seen
) -> Listed[ChangeRead]:
    """What a `:rescore` changed, answer by answer."""
    changes = await opened.derived_sessions.changes(session_id)
    return Listed(data=[ChangeRead.of(change, view) for change in changes])


@router.get("/{session_id}/next-item", **allow("run", InvalidStateError))
async def get_next_item(session_id: SessionId, opened: AllServices, view: Seen) -> NextItemRead:
    """The item that a manual session waits for.

    For keys without `banks:write`, an item of a withheld bank is only its key.
    """
    return NextItemRead.of(await opened.manual_sessions.next_item(session_id), view)


@router.post("/{session_id}/next-items", **allow_once("run", InvalidStateError))
async def get_next_items(
    session_id: SessionId, body: NextItemsInput, opened: AllServices, view: Seen
) -> Listed[NextItemRead]:
    """The items that a manual session waits for: up to its `concurrency`.

    Items that have been pending for longer than `answer_within` are first closed as `error`. A
    client that restarts finds its unanswered items here. Answers may arrive in any order.
    """
    awaited = await opened.manual_sessions.next_items(session_id, body.n)
    return Listed(data=[NextItemRead.of(one, view) for one in awaited])


@router.post("/{session_id}:release", **allow_once("run", InvalidStateError, StaleStepError))
async def release_item(
    session_id: SessionId, body: ReleaseInput, opened: AllServices, view: Seen
) -> NextItemRead:
    """Give a pending item back. It gets a new token; answers with the old one are refused."""
    released = await opened.manual_sessions.release(session_id, body.step_token)
    return NextItemRead.of(released, view)


@router.post(
    "/{session_id}/responses",
    status_code=201,
    openapi_extra=up_to(MEDIUM),
    **allow_once("run", InvalidStateError, SecretsError, StaleStepError),
)
async def answer_item(
    session_id: SessionId, body: ManualAnswer, opened: AllServices, view: Seen
) -> AnsweredRead:
    """Answer a pending item of a manual session; the session then chooses what to ask next."""
    record, asked = await opened.manual_sessions.answer(session_id, body)
    return AnsweredRead.of(record, view, next_items=[NextItemRead.of(one, view) for one in asked])
