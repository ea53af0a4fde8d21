"""Rankings: several endpoints on one bank, asked until their order is known."""

from typing import Annotated

from fastapi import Query, Request, Response

from app.api.events import EVENTS, AfterEvent, Wait, events_for, wait_for_end
from app.api.parameters import Paging, id_path, list_of
from app.api.routing import allow, allow_once, make_router
from app.api.schemas.answers import NextItemRead, NextItemsInput
from app.api.schemas.events import EventList
from app.api.schemas.rankings import RankingCreate, RankingJoin, RankingRead
from app.deps import AllServices, Feed, Seen
from app.engine.ranking.rules import RankingBudget
from app.errors import (
    AlreadyExistsError,
    BlockedAddressError,
    InvalidStateError,
    NotFoundError,
    UnknownNameError,
)
from app.records.fields import convert
from app.shapes import Listed, ListRead, WorkStatus

router = make_router("/rankings", tag="rankings")

RankingId = Annotated[str, id_path("rnk")]
BankId = Annotated[str, Query(pattern=r"^bnk_[0-9a-z]{26}$")]


@router.post(
    "",
    status_code=202,
    **allow_once("run", NotFoundError, AlreadyExistsError, BlockedAddressError, UnknownNameError),
)
async def create_ranking(
    body: RankingCreate, response: Response, opened: AllServices, view: Seen
) -> RankingRead:
    """Rank several endpoints with as few items as possible; close ones are tied.

    The call returns at once; a worker asks all endpoints in parallel. Poll the ranking, or read its
    events. Named examinees are asked by the caller, who fetches the ranking's `next-items`.
    """
    given = (ranked.endpoint for ranked in body.endpoints or ())
    await opened.scorer_guard.require_free(view, *(endpoint.name for endpoint in given if endpoint))
    created = await opened.rankings.create(body.to_domain(), is_admin=view.is_admin)
    response.headers["Location"] = f"/v1/rankings/{created.id}"
    return RankingRead.of(created, view)


@router.get("", **allow("read", NotFoundError))
async def list_rankings(
    page: Paging,
    opened: AllServices,
    view: Seen,
    status: Annotated[WorkStatus | None, Query()] = None,
    bank_id: BankId | None = None,
) -> ListRead[RankingRead]:
    """List rankings, the newest first."""
    found = await opened.rankings.list_page(page, status=status, bank_id=bank_id)
    return list_of(found, lambda record: RankingRead.of(record, view))


@router.get("/{ranking_id}", **allow("read"))
async def get_ranking(
    ranking_id: RankingId,
    request: Request,
    opened: AllServices,
    feed: Feed,
    view: Seen,
    wait: Wait = 0,
) -> RankingRead:
    """State and results of a ranking: order with tie groups and possible ranks, pairs, cost."""
    if wait:
        await wait_for_end(request, feed, "ranking", ranking_id, wait)
    return RankingRead.of(await opened.rankings.get(ranking_id), view)


@router.delete("/{ranking_id}", status_code=204, **allow("run", InvalidStateError))
async def delete_ranking(ranking_id: RankingId, opened: AllServices) -> None:
    """Delete an ended ranking with the sessions and answers of its members."""
    await opened.rankings.delete(ranking_id)


@router.get("/{ranking_id}/events", **EVENTS)
async def ranking_events(
    ranking_id: RankingId,
    request: Request,
    opened: AllServices,
    feed: Feed,
    view: Seen,
    after: AfterEvent = 0,
) -> Response | EventList:
    """Events of a ranking. `Last-Event-ID` or `after` resumes the stream."""
    await opened.rankings.get(ranking_id)
    return await events_for(request, feed, "ranking", ranking_id, view, after=after)


@router.post("/{ranking_id}/next-items", **allow_once("run", InvalidStateError))
async def get_ranking_items(
    ranking_id: RankingId, body: NextItemsInput, opened: AllServices, view: Seen
) -> Listed[NextItemRead]:
    """The items that a ranking of named examinees waits for, at most `n`.

    If fewer are pending, more are chosen, each for the examinee it is most informative about. Send
    answers to `/v1/sessions/{session_id}/responses`; each reply has the items that are asked next.
    """
    awaited = await opened.manual_sessions.ranking_items(ranking_id, body.n)
    return Listed(data=[NextItemRead.of(one, view) for one in awaited])


@router.post("/{ranking_id}:cancel", **allow("run", InvalidStateError))
async def cancel_ranking(ranking_id: RankingId, opened: AllServices, view: Seen) -> RankingRead:
    """Cancel a ranking. The answers so far are kept."""
    return RankingRead.of(await opened.rankings.cancel(ranking_id), view)


@router.post(
    "/{ranking_id}:join",
    status_code=202,
    **allow_once(
        "run", InvalidStateError, AlreadyExistsError, BlockedAddressError, UnknownNameError
    ),
)
async def join_ranking(
    ranking_id: RankingId, body: RankingJoin, response: Response, opened: AllServices, view: Seen
) -> RankingRead:
    """Add an endpoint or a named examinee to a completed ranking; only the new one is asked.

    The others keep their answers; all pairs are decided again.
    """
    await opened.scorer_guard.require_free(view, body.endpoint.name if body.endpoint else None)
    budget = convert(RankingBudget, body.budget)
    who = body.examinee or body.chosen()
    joined = await opened.rankings.join(ranking_id, who, budget, is_admin=view.is_admin)
    response.headers["Location"] = f"/v1/rankings/{joined.id}"
    return RankingRead.of(joined, view)
