"""Origin of answers and scores: a session's endpoint, and the endpoints that its scorers name."""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from app import scorers
from app.adapters.callback import KIND as CALLBACK
from app.adapters.embeddings import KINDS as EMBEDDING_KINDS
from app.calling import GenerationParams
from app.errors import EndpointMovedError, InvalidInputError, NotFoundError
from app.items import BY_KIND, ScorerSpec
from app.records.endpoints import Endpoint, EndpointSettings, NewEndpoint, Price
from app.records.sessions import Origin, Provenance
from app.scorers.calling import CallingScorer
from app.storage.unit_of_work import UnitOfWork


def origin_of(endpoint: Endpoint | NewEndpoint) -> Origin:
    """Description of an endpoint for the provenance of its answers, without secrets."""
    settings = endpoint.settings
    who: Origin = {
        "id": endpoint.id,
        "revision": endpoint.revision,
        "name": settings.name,
        "kind": settings.kind,
        "model": settings.model,
        "options": dict(settings.options),
    }
    if not settings.is_called:
        return who
    return {
        **who,
        "base_url": settings.base_url,
        "sampling": asdict(settings.sampling) | {"stop": list(settings.sampling.stop)},
        "price": asdict(settings.price),
        "reasoning_tags": list(settings.reasoning_tags),
        "parameters_hash": _parameters_hash(settings),
    }


def as_begun(endpoint: Endpoint, origin: Origin | None) -> Endpoint:
    """The present endpoint, but with the model and parameters of when `origin` was noted.

    Raises:
        EndpointMovedError: Its address or kind has changed since: a key given for one address
            never goes to another.
    """
    present = endpoint.settings
    began: Mapping[str, Any] = {**origin_of(endpoint), **(origin or {})}
    if (present.kind, present.base_url) != (began["kind"], began["base_url"]):
        raise EndpointMovedError(
            f"The endpoint was changed from {began['kind']} at {began['base_url']!r} to "
            f"{present.kind} at {present.base_url!r}. Work that began with the former asks no "
            "more questions: start it again."
        )
    sampling = {**began["sampling"], "stop": tuple(began["sampling"]["stop"])}
    opening, closing = began["reasoning_tags"]
    settings = replace(
        present,
        model=began["model"],
        sampling=GenerationParams(**sampling),
        options=began["options"],
        reasoning_tags=(opening, closing),
    )
    return replace(endpoint, settings=settings)


def _parameters_hash(settings: EndpointSettings) -> str:
    """SHA-256 of what every call sends besides the prompt: sampling parameters and options."""
    canonical = json.dumps(
        [asdict(settings.sampling), dict(settings.options)], sort_keys=True, ensure_ascii=False
    )
    return hashlib.sha256(canonical.encode(errors="surrogatepass")).hexdigest()


def price_in(provenance: Provenance) -> Price | None:
    """The price of a session's endpoint when the session was made; item selection uses it.

    Later changes of the price do not count, so that a session's item selection can be repeated.
    """
    origin = provenance["endpoint"]
    price = None if origin is None else origin.get("price")
    return None if price is None else Price(**price)


_SIMULATED = "scripted"


def capabilities_of(kind: str) -> frozenset[str]:
    """What an endpoint of this kind can do: `completions`, `embeddings`, `callback`."""
    if kind == CALLBACK:
        return frozenset({"callback"})
    return frozenset({"completions", *(["embeddings"] if kind in EMBEDDING_KINDS else [])})


def described(found: Mapping[str, Endpoint]) -> dict[str, Origin]:
    """Endpoints of scorers for a session's provenance, without secrets."""
    return {reference: origin_of(endpoint) for reference, endpoint in found.items()}


async def scorer_endpoints(uow: UnitOfWork, specs: Iterable[ScorerSpec]) -> dict[str, Endpoint]:
    """The endpoints that some scorers call, by the id or name that the scorers use.

    Raises:
        InvalidInputError: An endpoint does not exist, lacks a capability that its scorer needs, or
            has no price although the scorer has a budget in US dollars.
    """
    found: dict[str, Endpoint] = {}
    for spec in specs:
        if spec.name == BY_KIND:
            continue
        scorer = scorers.build(spec)
        if not isinstance(scorer, CallingScorer):
            continue
        for reference in scorer.endpoints():
            if reference not in found:
                found[reference] = await _find(uow, spec.name, reference)
            _check(spec.name, scorer, reference, found[reference])
    return found


async def _find(uow: UnitOfWork, scorer: str, reference: str) -> Endpoint:
    for find in (uow.endpoints.get, uow.endpoints.by_name):
        with contextlib.suppress(NotFoundError):
            return await find(reference)
    raise InvalidInputError.at(
        "/scorer",
        f"Scorer {scorer!r} calls endpoint {reference!r}, which is not there: expected the id or "
        "name of a saved endpoint.",
    )


def _check(name: str, scorer: CallingScorer, reference: str, endpoint: Endpoint) -> None:
    kind = endpoint.settings.kind
    if scorer.needs not in capabilities_of(kind) or kind == _SIMULATED:
        raise InvalidInputError.at(
            "/scorer",
            f"Scorer {name!r} needs an endpoint for {scorer.needs}, got {reference!r} of kind "
            f"{kind!r}.",
        )
    budget = scorer.budget
    if budget is not None and budget.usd is not None and not endpoint.settings.price.known:
        raise InvalidInputError.at(
            "/scorer",
            f"Scorer {name!r} has a budget in US dollars, but its endpoint {reference!r} has no "
            "price: set one, or cap tokens or calls.",
        )
