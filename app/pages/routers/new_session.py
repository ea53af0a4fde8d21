"""A new test: whom to ask, what, how exactly; what that will take, before it is paid."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastapi import Request, Response
from pydantic import ValidationError

from app.api.disconnects import while_connected
from app.api.schemas.banks import BankRead
from app.api.schemas.endpoints import EndpointCreate, EndpointRead, ProbeRead
from app.api.schemas.previews import PreviewCreate, PreviewRead
from app.api.schemas.sessions import SessionCreate
from app.api.schemas.simulations import SimulationCreate, SimulationRead
from app.deps import AllServices
from app.engine.design.design import CONCURRENCY, PRESETS, Preset
from app.errors import FieldProblem, InvalidInputError, SextantError
from app.pages.access import Form, Visit, Visitor
from app.pages.forms import Faults, faults_in, margin_in, numbers_in, sections
from app.pages.rendering import page
from app.pages.routing import router as make_router
from app.pages.routing import see
from app.services.container import Services
from app.storage.paging import PageRequest

router = make_router()

#: Simulated tests of a forecast: enough for what is shown, and soon there.
_EXAMINEES = 60
_CHOICES = 100
_STOPPING = PRESETS[Preset.SCORE]["stopping"]
_DEFAULTS = {
    "margin": f"{100 * _STOPPING['score_margin']:g}",
    "max_items": str(_STOPPING["max_items"]),
    "concurrency": str(CONCURRENCY),
    "kind": "openai_chat",
}
_SECRETS = ("api_key",)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What a button of the form has found out."""

    forecast: SimulationRead | None = None
    preview: PreviewRead | None = None
    probe: ProbeRead | None = None
    problem: Faults | None = None


@router.get("/sessions/new")
async def new_session(request: Request, visit: Visit, opened: AllServices) -> Response:
    """The form."""
    visit.require("run")
    return await _form(request, visit, opened, dict(request.query_params), _Found())


@router.post("/sessions/new")
async def send(request: Request, visit: Visit, form: Form, opened: AllServices) -> Response:
    """Starts the test, or finds out something about it, by the button that was pressed."""
    visit.require("run")
    wanted = form.pop("do", "start")
    try:
        if wanted == "start":
            body = _read(SessionCreate, _session(form))
            await opened.scorer_guard.require_free(
                visit.view, body.endpoint.name if body.endpoint else None
            )
            created = await opened.sessions.create(body.to_domain())
            return see(request, f"/sessions/{created.id}")
        visit.require("read")
        found = await _find(wanted, request, visit, form, opened)
    except (ValidationError, SextantError) as error:
        found = _Found(problem=faults_in(error))
    if "hx-request" in request.headers:
        return await page(request, "parts/found.html", found=found)
    return await _form(request, visit, opened, form, found, status=422 if found.problem else 200)


async def _find(
    wanted: str, request: Request, visit: Visitor, form: Mapping[str, str], opened: Services
) -> _Found:
    match wanted:
        case "forecast":
            spec = _read(SimulationCreate, _simulation(form)).to_domain()
            made = await while_connected(request, opened.simulations.simulate(spec))
            return _Found(forecast=SimulationRead.of(made))
        case "probe" | "preview" | "ask" if form.get("endpoint_id") == "manual":
            raise InvalidInputError("You answer by hand: there is no endpoint to be asked.")
        case "probe" if "endpoint_id" in form:
            report = await opened.endpoints.probe(form["endpoint_id"])
            return _Found(probe=ProbeRead.read(report))
        case "preview" | "ask":
            body = _read(PreviewCreate, {**_endpoint(form), "send": wanted == "ask"})
            bank = _bank(form)
            version = await opened.versions.load(bank=bank)
            best = int(np.argmax(version.bank.information(0.0) * version.active))
            spec = body.to_domain(bank, version.item_ids[best])
            shown = await while_connected(
                request, opened.previews.preview(spec, visit.view, caller=visit.key_id)
            )
            return _Found(preview=PreviewRead.of(shown))
        case "probe":
            spec = _read(EndpointCreate, endpoint_in(form)).to_spec()
            return _Found(probe=ProbeRead.read(await opened.endpoints.probe_unsaved(spec)))
        case _:
            raise InvalidInputError(f"There is no button {wanted!r:.40} here.")


async def _form(
    request: Request,
    visit: Visitor,
    opened: Services,
    given: Mapping[str, str],
    found: _Found,
    *,
    status: int = 200,
) -> Response:
    banks, endpoints = [], []
    if visit.may("read"):
        everything = PageRequest(limit=_CHOICES)
        banks = [
            BankRead.of(overview, visit.view)
            for overview in (await opened.banks.list_banks(everything)).items
            if overview.latest is not None
        ]
        endpoints = [
            EndpointRead.of(one) for one in (await opened.endpoints.list(everything)).items
        ]
    values = {**_DEFAULTS, **{name: given[name] for name in given if name not in _SECRETS}}
    return await page(
        request,
        "new_session.html",
        status=status,
        banks=banks,
        endpoints=endpoints,
        values=values,
        key_typed="api_key" in given,
        found=found,
    )


def _read(model: Any, body: Mapping[str, Any]) -> Any:
    """A body as REST would take it, with all of its checks."""
    return model.model_validate_json(json.dumps(body))


def _bank(form: Mapping[str, str]) -> str:
    if "bank" not in form:
        detail = "choose a bank"
        raise InvalidInputError(f"bank: {detail}.", problems=[FieldProblem("/bank", detail)])
    return form["bank"]


def _design(form: Mapping[str, str]) -> dict[str, Any]:
    stopping = numbers_in({name: form[name] for name in form if name in ("se", "max_items")})
    if "se" not in stopping:
        stopping |= margin_in(form)
    budget = numbers_in({name: form[name] for name in form if name in ("usd", "tokens", "seconds")})
    concurrency = numbers_in({name: form[name] for name in form if name == "concurrency"})
    return sections(stopping=stopping, budget=budget, **concurrency)


def _endpoint(form: Mapping[str, str]) -> dict[str, Any]:
    if "endpoint_id" in form:
        return {"endpoint_id": form["endpoint_id"]}
    return {"endpoint": endpoint_in(form)}


def endpoint_in(form: Mapping[str, str]) -> dict[str, Any]:
    """The endpoint that a form describes, as REST takes it."""
    limits = numbers_in(
        {name: form[name] for name in form if name in ("rpm", "tpm", "usd_per_day")}
    )
    price = numbers_in(
        {name: form[name] for name in form if name in ("input_per_1m", "output_per_1m")}
    )
    sampling = numbers_in({name: form[name] for name in form if name in ("max_tokens",)})
    plain = {name: form[name] for name in ("name", "base_url", "model", "api_key") if name in form}
    return {
        "kind": form.get("kind", _DEFAULTS["kind"]),
        **plain,
        **sections(limits=limits, price=price, sampling=sampling),
    }


def _session(form: Mapping[str, str]) -> dict[str, Any]:
    by_hand = form.get("endpoint_id") == "manual"
    asked = {"mode": "manual"} if by_hand else _endpoint(form)
    design = _design(form)
    if by_hand:
        design.pop("concurrency", None)
    return {"bank": _bank(form), **asked, **design}


def _simulation(form: Mapping[str, str]) -> dict[str, Any]:
    calls = numbers_in(
        {name: form[name] for name in form if name in ("latency_ms", "tokens_in", "tokens_out")}
    )
    body = {"bank": _bank(form), "n_examinees": _EXAMINEES, **_design(form), **calls}
    body.pop("budget", None)  # what it comes to is what is asked here
    if form.get("endpoint_id", "manual") != "manual":
        return {**body, "endpoint_id": form["endpoint_id"]}
    return {**body, **sections(price=endpoint_in(form).get("price"))}
