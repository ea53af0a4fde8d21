"""Rankings: the list, the form that starts one, and one ranking."""

from fastapi import Response
from pydantic import ValidationError

from app.api.routers.rankings import RankingId
from app.api.schemas.rankings import RankingCreate
from app.deps import Feed
from app.engine.design.design import CONCURRENCY
from app.engine.ranking.rules import RankingRules
from app.errors import SextantError
from app.pages.access import Form
from app.pages.forms import Body, Faults, faults_in, numbers_in, read_as, sections, texts_in
from app.pages.routers.new_session import choices
from app.pages.routing import After, PageCall, Read, ReadRun, Run, Seen, make_router, unchanged
from app.pages.shown import ShownRanking
from app.records.leased import ENDED
from app.storage.paging import PageRequest

router = make_router()

_LISTED = 50
_CHOSEN = "endpoint-"
_RULES = RankingRules()
_DEFAULTS = {
    "confidence": f"{_RULES.confidence:g}",
    "max_items": str(_RULES.max_items),
    "concurrency": str(CONCURRENCY),
}


@router.get("/rankings")
async def ranking_list(call: Read, after: After = None) -> Response:
    """Rankings, the newest first."""
    found = await call.services.rankings.list_page(PageRequest(limit=_LISTED, after=after))
    rows = [ShownRanking.of(record, call.visit.view) for record in found.items]
    return await call.page("rankings.html", rows=rows, more=found.has_more)


@router.get("/rankings/new")
async def new_ranking(call: ReadRun) -> Response:
    """The form that starts a ranking."""
    return await _form(call, dict(call.request.query_params))


@router.post("/rankings/new")
async def begin_ranking(form: Form, call: ReadRun) -> Response:
    """Start a ranking."""
    try:
        body = read_as(RankingCreate, _ranking(form))
        created = await call.services.rankings.create(body.to_domain())
    except (ValidationError, SextantError) as error:
        return await _form(call, form, faults_in(error))
    return call.see(f"/rankings/{created.id}")


@router.get("/rankings/{ranking_id}")
async def ranking_page(
    ranking_id: RankingId, call: Read, feed: Feed, seen: Seen = None
) -> Response:
    """One ranking with its present order; the page polls it every second while it runs."""
    newest = await feed.newest("ranking", ranking_id)
    if seen == newest:
        return unchanged()
    shown = ShownRanking.of(await call.services.rankings.get(ranking_id), call.visit.view)
    return await call.page(
        "ranking.html",
        "parts/ranking.html",
        ranking=shown,
        names={one["endpoint_id"]: one["name"] or one["model"] for one in shown.order},
        running=shown.status not in ENDED,
        # No event says that a worker has taken the ranking, or that a wait became longer.
        seen=newest if shown.status == "running" and not shown.waiting_reason else None,
    )


@router.post("/rankings/{ranking_id}/cancel")
async def cancel_ranking(ranking_id: RankingId, call: Run) -> Response:
    """End a ranking with the answers so far."""
    await call.services.rankings.cancel(ranking_id)
    return call.see(f"/rankings/{ranking_id}")


def _ranking(form: dict[str, str]) -> Body:
    chosen = [name.removeprefix(_CHOSEN) for name in form if name.startswith(_CHOSEN)]
    budget = numbers_in(form, "budget_items", "budget_usd", "budget_tokens")
    return {
        "bank": form.get("bank", ""),
        **texts_in(form, "metric"),
        "endpoints": [{"endpoint_id": endpoint} for endpoint in chosen],
        **numbers_in(form, "confidence", "max_items", "concurrency"),
        **sections(budget={name.removeprefix("budget_"): n for name, n in budget.items()}),
    }


async def _form(call: PageCall, values: dict[str, str], problem: Faults | None = None) -> Response:
    return await call.page(
        "new_ranking.html", values={**_DEFAULTS, **values}, problem=problem, **await choices(call)
    )
