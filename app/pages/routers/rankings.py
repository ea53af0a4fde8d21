"""Rankings: the list, the form that starts one, and one ranking."""

import json
from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import ValidationError

from app.api.routers.rankings import RankingId
from app.api.schemas.banks import BankRead
from app.api.schemas.endpoints import EndpointRead
from app.api.schemas.rankings import RankingCreate, RankingRead
from app.deps import AllServices, Feed
from app.engine.design.design import CONCURRENCY
from app.engine.ranking.rules import RankingRules
from app.errors import SextantError
from app.pages.access import Form, Visit, Visitor
from app.pages.forms import Body, Faults, faults_in, numbers_in, sections
from app.pages.rendering import page
from app.pages.routing import Seen, see, unchanged
from app.pages.routing import router as make_router
from app.records.leased import ENDED
from app.services.container import Services
from app.storage.paging import PageRequest

router = make_router()

_LISTED, _CHOICES = 50, 100
_CHOSEN = "endpoint-"
_RULES = RankingRules()
_DEFAULTS = {
    "confidence": f"{_RULES.confidence:g}",
    "max_items": str(_RULES.max_items),
    "concurrency": str(CONCURRENCY),
}
After = Annotated[str | None, Query(pattern=r"^[a-z]+_[0-9a-z]+$", max_length=64)]


@router.get("/rankings")
async def ranking_list(
    request: Request, visit: Visit, opened: AllServices, after: After = None
) -> Response:
    """Rankings, the newest first."""
    visit.require("read")
    found = await opened.rankings.list_page(PageRequest(limit=_LISTED, after=after))
    rows = [RankingRead.of(record, visit.view) for record in found.items]
    return await page(request, "rankings.html", rows=rows, more=found.has_more)


@router.get("/rankings/new")
async def new_ranking(request: Request, visit: Visit, opened: AllServices) -> Response:
    """The form that starts a ranking."""
    visit.require("read", "run")
    return await _form(request, visit, opened, dict(request.query_params))


@router.post("/rankings/new")
async def begin_ranking(
    request: Request, visit: Visit, form: Form, opened: AllServices
) -> Response:
    """Start a ranking."""
    visit.require("read", "run")
    try:
        body = RankingCreate.model_validate_json(json.dumps(_ranking(form)))
        created = await opened.rankings.create(body.to_domain())
    except (ValidationError, SextantError) as error:
        return await _form(request, visit, opened, form, faults_in(error))
    return see(request, f"/rankings/{created.id}")


@router.get("/rankings/{ranking_id}")
async def ranking_page(
    ranking_id: RankingId,
    request: Request,
    visit: Visit,
    opened: AllServices,
    feed: Feed,
    seen: Seen = None,
) -> Response:
    """One ranking with its present order; the page polls it every second while it runs."""
    visit.require("read")
    newest = await feed.newest("ranking", ranking_id)
    if seen == newest:
        return unchanged()
    shown = RankingRead.of(await opened.rankings.get(ranking_id), visit.view)
    names = {one["endpoint_id"]: one["name"] or one["model"] for one in shown.order}
    template = "parts/ranking.html" if "hx-request" in request.headers else "ranking.html"
    return await page(
        request,
        template,
        ranking=shown,
        names=names,
        running=shown.status not in ENDED,
        # No event says that a worker has taken the ranking, or that a wait became longer.
        seen=newest if shown.status == "running" and not shown.waiting_reason else None,
    )


@router.post("/rankings/{ranking_id}/cancel")
async def cancel_ranking(
    ranking_id: RankingId, request: Request, visit: Visit, opened: AllServices
) -> Response:
    """End a ranking with the answers so far."""
    visit.require("run")
    await opened.rankings.cancel(ranking_id)
    return see(request, f"/rankings/{ranking_id}")


def _ranking(form: dict[str, str]) -> Body:
    def numbers(*names: str) -> dict[str, float | int]:
        return numbers_in({name: form[name] for name in names if name in form})

    chosen = [name.removeprefix(_CHOSEN) for name in form if name.startswith(_CHOSEN)]
    budget = {
        name.removeprefix("budget_"): value
        for name, value in numbers("budget_items", "budget_usd", "budget_tokens").items()
    }
    return {
        "bank": form.get("bank", ""),
        **{name: form[name] for name in ("metric",) if name in form},
        "endpoints": [{"endpoint_id": endpoint} for endpoint in chosen],
        **numbers("confidence", "max_items", "concurrency"),
        **sections(budget=budget),
    }


async def _form(
    request: Request,
    visit: Visitor,
    opened: Services,
    values: dict[str, str],
    problem: Faults | None = None,
) -> Response:
    everything = PageRequest(limit=_CHOICES)
    banks = (await opened.banks.list_banks(everything)).items
    endpoints = (await opened.endpoints.list(everything)).items
    return await page(
        request,
        "new_ranking.html",
        status=422 if problem else 200,
        banks=[BankRead.of(one, visit.view) for one in banks if one.latest is not None],
        endpoints=[EndpointRead.of(one) for one in endpoints],
        values={**_DEFAULTS, **values},
        problem=problem,
    )
