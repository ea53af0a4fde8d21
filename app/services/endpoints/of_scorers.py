"""Endpoints that scorers name: found, and refused where they could not serve, before any call."""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from app import scorers
from app.adapters.callback import KIND as CALLBACK
from app.adapters.embeddings import KINDS as EMBEDDING_KINDS
from app.errors import InvalidInputError, NotFoundError
from app.items import BY_KIND, ScorerSpec
from app.records.endpoints import Endpoint
from app.scorers.calling import CallingScorer
from app.services.endpoints.origin import origin_of
from app.storage.unit_of_work import UnitOfWork

_SIMULATED = "scripted"


def capabilities_of(kind: str) -> frozenset[str]:
    """What an endpoint of this kind can do: `completions`, `embeddings`, `callback`."""
    if kind == CALLBACK:
        return frozenset({"callback"})
    return frozenset({"completions", *(["embeddings"] if kind in EMBEDDING_KINDS else [])})


def described(found: Mapping[str, Endpoint]) -> dict[str, Any]:
    """Who marks, for a session's provenance: no secrets, plain JSON values."""
    return {reference: origin_of(endpoint) for reference, endpoint in found.items()}


async def scorer_endpoints(uow: UnitOfWork, specs: Iterable[ScorerSpec]) -> dict[str, Endpoint]:
    """The endpoints that some scorers call, by the id or name that they are called by.

    Raises:
        InvalidInputError: One is not there, cannot do what its scorer needs, or has no price though
            the scorer has a budget in US dollars.
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
