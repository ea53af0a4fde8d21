"""The form of a new session: model, benchmark, precision, and a forecast of what it takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from fastapi import Response
from pydantic import ValidationError

from app.adapters.base import ProbeReport
from app.api.disconnects import while_connected
from app.api.schemas.answers import PreviewCreate, PreviewRead
from app.api.schemas.banks import BankRead
from app.api.schemas.designs import SimulationCreate, SimulationRead
from app.api.schemas.endpoints import EndpointCreate, EndpointRead
from app.api.schemas.sessions import SessionCreate
from app.engine.design.design import CONCURRENCY, PRESETS, Preset
from app.engine.prediction.sample_size import margin_after
from app.engine.simulation.forecast import TOLD_MARGIN, Effort
from app.errors import InvalidInputError, SextantError
from app.pages.access import Form
from app.pages.forms import (
    Body,
    Faults,
    faults_in,
    margin_in,
    numbers_in,
    read_as,
    sections,
    texts_in,
)
from app.pages.routing import PageCall, Run, make_router
from app.records.sessions import SessionFilter
from app.services.container import Services
from app.services.sessions.figures import effort_of
from app.storage.paging import PageRequest

router = make_router()

#: Simulated examinees of a forecast: enough for the figures shown, and fast.
_EXAMINEES = 30
_CHOICES = 100
_DEFAULTS = {"concurrency": str(CONCURRENCY), "kind": "openai_chat", "precision": "normal"}
_SECRETS = ("api_key",)
_GOALS = ("se", "margin", "max_items")
_NORMAL = PRESETS[Preset.SCORE]["stopping"]
_MARGIN = _NORMAL["score_margin"]
#: Goals of each precision of a score; without `max_items` all of the bank may be asked.
PRECISIONS: Mapping[str, Body] = {
    "quick": {"score_margin": _MARGIN, "max_items": _NORMAL["min_items"] + 5},
    "normal": {"score_margin": _MARGIN, "max_items": _NORMAL["max_items"]},
    "exact": {"score_margin": TOLD_MARGIN},
}


#: Half-width of the score's 95 % interval, as a share, 0 where all questions are asked; and what it
#: takes.
Takes: TypeAlias = tuple[float, Effort]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What a button of the form has found out.

    Attributes:
        forecast: Forecast of goals that were set by hand.
        takes: What each choice of precision takes, where no goals were set by hand.
    """

    forecast: SimulationRead | None = None
    takes: Mapping[str, Takes] = field(default_factory=dict)
    preview: PreviewRead | None = None
    probe: ProbeReport | None = None
    problem: Faults | None = None


@router.get("/sessions/new")
async def new_session(call: Run) -> Response:
    """The form of a new session."""
    return await _form(call, dict(call.request.query_params), _Found())


@router.post("/sessions/new")
async def send(form: Form, call: Run) -> Response:
    """Start the session, or forecast, probe or preview it, by the button that was pressed."""
    opened = call.services
    wanted = form.pop("do", "start")
    try:
        if wanted == "start":
            body = read_as(SessionCreate, await _session(form, opened))
            await opened.scorer_guard.require_free(
                call.visit.view, body.endpoint.name if body.endpoint else None
            )
            created = await opened.sessions.create(body.to_domain())
            return call.see(f"/sessions/{created.id}")
        call.visit.require("read")
        found = await _find(wanted, form, call)
    except (ValidationError, SextantError) as error:
        found = _Found(problem=faults_in(error))
    if "hx-request" in call.request.headers:
        choices = PRECISIONS if wanted == "forecast" else {}
        return await call.page("parts/found.html", found=found, choices=choices)
    return await _form(call, form, found)


async def _find(wanted: str, form: Mapping[str, str], call: PageCall) -> _Found:
    opened = call.services
    match wanted:
        case "forecast" if "bank" not in form:
            return _Found()
        case "forecast":
            return await while_connected(call.request, _forecast(form, opened))
        case "probe" | "preview" | "ask" if form.get("endpoint_id") == "manual":
            raise InvalidInputError("You answer by hand: there is no endpoint to be asked.")
        case "probe" if "endpoint_id" in form:
            report = await opened.endpoints.probe(form["endpoint_id"])
            return _Found(probe=report)
        case "preview" | "ask":
            body = read_as(PreviewCreate, {**_endpoint(form), "send": wanted == "ask"})
            bank = _bank(form)
            version = await opened.versions.load(bank=bank)
            best = int(np.argmax(version.bank.information(0.0) * version.active))
            preview = opened.previews.preview(
                bank,
                version.item_ids[best],
                body.chosen(),
                call.visit.view,
                prompt=body.prompt.changes(),
                send=body.send,
            )
            return _Found(preview=PreviewRead.read(await while_connected(call.request, preview)))
        case "probe":
            unsaved = read_as(EndpointCreate, endpoint_in(form)).to_spec()
            return _Found(probe=await opened.endpoints.probe(unsaved))
        case _:
            raise InvalidInputError(f"There is no button {wanted!r:.40} here.")


async def _forecast(form: Mapping[str, str], opened: Services) -> _Found:
    known = await _known_calls(form, opened)

    async def simulated(stopping: Body) -> SimulationRead:
        body = _simulation(form) | {"stopping": stopping}
        spec = read_as(SimulationCreate, known | body).to_domain()
        return SimulationRead.of(await opened.simulations.simulate(spec))

    if any(name in form for name in _GOALS):
        return _Found(forecast=await simulated(_stopping(form)))
    quick, normal = [await simulated(PRECISIONS[one]) for one in ("quick", "normal")]
    exact, every = normal.for_3_points, normal.for_all
    most = TOLD_MARGIN, exact
    if exact.items >= every.items:  # questions set aside leave an interval even then
        version = await opened.versions.load(normal.bank_version_id)
        margin = margin_after(
            every.items,
            reached=normal.margin.median,
            n_asked=round(normal.items.median),
            n_items=version.bank.n_items,
        )
        most = margin, every
    return _Found(takes={"quick": _typical(quick), "normal": _typical(normal), "exact": most})


def _typical(found: SimulationRead) -> Takes:
    """The medians of simulated sessions."""
    seconds, usd, tokens = (
        None if one is None else one.median for one in (found.seconds, found.usd, found.tokens)
    )
    effort = Effort(items=round(found.items.median), seconds=seconds, usd=usd, tokens=tokens)
    return found.margin.median, effort


async def _known_calls(form: Mapping[str, str], opened: Services) -> Body:
    """Latency of calls, and their tokens on this bank, from the endpoint's last session."""
    endpoint = form.get("endpoint_id", "manual")
    if endpoint == "manual":
        return {}
    wanted = SessionFilter(status="completed", endpoint_id=endpoint)
    found = (await opened.sessions.list_page(PageRequest(limit=1), wanted)).items
    if not found:
        return {}
    usage, latency = found[0].summary["usage"], effort_of(found[0].summary)["latency_ms"]
    known = {} if latency is None else {"latency_ms": latency["p50"]}
    if form["bank"] in (found[0].bank_id, found[0].bank_name) and usage["calls"]:
        for name in ("tokens_in", "tokens_out"):
            if (tokens := usage[name]) is not None:
                known[name] = tokens / usage["calls"]
    return known


async def choices(call: PageCall) -> dict[str, Any]:
    """Banks with a version, and saved endpoints, that a form offers to whoever may read them."""
    if not call.visit.may("read"):
        return {"banks": [], "endpoints": []}
    everything = PageRequest(limit=_CHOICES)
    banks = (await call.services.banks.list_banks(everything)).items
    endpoints = (await call.services.endpoints.list(everything)).items
    return {
        "banks": [BankRead.of(one, call.visit.view) for one in banks if one.latest is not None],
        "endpoints": [EndpointRead.of(one) for one in endpoints],
    }


async def _form(call: PageCall, given: Mapping[str, str], found: _Found) -> Response:
    return await call.page(
        "new_session.html",
        problem=found.problem,
        values=_DEFAULTS | {name: text for name, text in given.items() if name not in _SECRETS},
        precisions=PRECISIONS,
        key_typed="api_key" in given,
        found=found,
        **await choices(call),
    )


def _bank(form: Mapping[str, str]) -> str:
    if "bank" not in form:
        raise InvalidInputError.of_field("bank", "choose a bank")
    return form["bank"]


def _stopping(form: Mapping[str, str]) -> Body:
    """Goals of the session that were set by hand."""
    stopping = numbers_in(form, "se", "max_items")
    return {**stopping, **({} if "se" in stopping else margin_in(form))}


def _design(form: Mapping[str, str]) -> Body:
    budget = numbers_in(form, "usd", "tokens", "seconds")
    return sections(stopping=_stopping(form), budget=budget, **numbers_in(form, "concurrency"))


def _endpoint(form: Mapping[str, str]) -> Body:
    if "endpoint_id" in form:
        return {"endpoint_id": form["endpoint_id"]}
    if "model" not in form:
        detail = "choose an endpoint, or type the address and the model of one"
        raise InvalidInputError.of_field("model", detail)
    return {"endpoint": endpoint_in(form)}


def endpoint_in(form: Mapping[str, str]) -> Body:
    """The endpoint that a form describes, as a body for REST."""
    return {
        "kind": form.get("kind", _DEFAULTS["kind"]),
        **texts_in(form, "name", "base_url", "model", "api_key"),
        **sections(
            limits=numbers_in(form, "rpm", "tpm", "usd_per_day"),
            price=numbers_in(form, "input_per_1m", "output_per_1m"),
            sampling=numbers_in(form, "max_tokens"),
        ),
    }


async def _session(form: Mapping[str, str], opened: Services) -> Body:
    by_hand = form.get("endpoint_id") == "manual"
    asked = {"mode": "manual"} if by_hand else _endpoint(form)
    design = _design(form)
    if by_hand:
        design.pop("concurrency", None)
    if "stopping" not in design and (chosen := PRECISIONS.get(form.get("precision", ""))):
        if "max_items" not in chosen:
            most = (await opened.versions.load(bank=_bank(form))).n_active
            chosen = {**chosen, "max_items": most}
        design["stopping"] = chosen
    return {"bank": _bank(form), **asked, **design}


def _simulation(form: Mapping[str, str]) -> Body:
    calls = numbers_in(form, "latency_ms", "tokens_in", "tokens_out")
    body = {"bank": _bank(form), "n_examinees": _EXAMINEES, **_design(form), **calls}
    body.pop("budget", None)  # the forecast is of what the session takes without one
    if form.get("endpoint_id", "manual") != "manual":
        return {**body, "endpoint_id": form["endpoint_id"]}
    return {**body, **sections(price=endpoint_in(form).get("price"))}
