"""Descriptions of endpoints: by their owners, in provenance, and by the scorers that call them."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import EllipsisType
from typing import Any

from app import scorers
from app.adapters.base import EndpointConfig
from app.adapters.callback import KIND as CALLBACK
from app.adapters.embeddings import KINDS as EMBEDDING_KINDS
from app.adapters.transport import parse_endpoint_url
from app.calling import GenerationParams
from app.errors import EndpointMovedError, InvalidInputError, NotFoundError
from app.items import BY_KIND, ScorerSpec, sha256_of
from app.records.endpoints import SIMULATED, Endpoint, EndpointSettings, Price, ReasoningTags
from app.records.fields import convert, restored
from app.records.sessions import Origin, Provenance
from app.scorers.calling import CallingScorer
from app.storage.unit_of_work import UnitOfWork

#: Placeholder for an unchanged secret while a changed endpoint is checked.
_KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSpec:
    """An endpoint as its owner describes it, with secrets in plain text."""

    settings: EndpointSettings
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def config(self) -> EndpointConfig:
        """Configuration of the adapter."""
        return convert(
            EndpointConfig,
            self.settings,
            api_key=self.api_key,
            headers=dict(self.headers),
            options=dict(self.settings.options),
            reasoning_tags=(self.settings.reasoning.open, self.settings.reasoning.close),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointChange:
    """Changes of an endpoint; fields that are not in `settings` keep their values.

    Attributes:
        settings: New values of fields of `EndpointSettings`.
        api_key: The new key; `None` removes it, `...` keeps it.
        headers: The new headers, replacing all old ones; `...` keeps them.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    api_key: str | EllipsisType | None = field(default=..., repr=False)
    headers: Mapping[str, str] | EllipsisType = field(default=..., repr=False)

    def applied_to(self, present: Endpoint) -> EndpointSpec:
        """The endpoint after the change; unchanged secrets are not read.

        Raises:
            InvalidInputError: Unchanged secrets would go to another host.
        """
        held = present.sealed
        keeps_key = self.api_key is ... and held.api_key is not None
        keeps_headers = self.headers is ... and held.headers is not None
        settings = replace(present.settings, **dict(self.settings))
        kept = "api_key" if keeps_key else "headers" if keeps_headers else None
        # Otherwise, users who may change an endpoint could send its key to their own host.
        if kept and _origin(settings.base_url) != _origin(present.settings.base_url):
            raise InvalidInputError.of_field(
                kept,
                f"expected {kept} given again, or removed: the new base_url has another scheme, "
                "host or port",
            )
        return EndpointSpec(
            settings=settings,
            api_key=(_KEPT if keeps_key else None) if self.api_key is ... else self.api_key,
            headers=dict.fromkeys(held.header_names, _KEPT)
            if self.headers is ...
            else self.headers,
        )


def _origin(base_url: str) -> tuple[str, str, int | None] | None:
    """Scheme, host and port of the called server; None for kinds that call no server."""
    if not base_url:
        return None
    try:
        url = parse_endpoint_url(base_url)
    except ValueError as exc:
        raise InvalidInputError.of_field("base_url", str(exc)) from exc
    return url.scheme, url.host, url.port


def origin_of(endpoint: Endpoint) -> Origin:
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
        "price": {
            "input_per_1m": settings.price.input_per_1m,
            "output_per_1m": settings.price.output_per_1m,
        },
        "reasoning_tags": [settings.reasoning.open, settings.reasoning.close],
        # Of what every call sends besides the prompt.
        "parameters_hash": sha256_of([asdict(settings.sampling), dict(settings.options)]),
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
        reasoning=ReasoningTags(open=opening, close=closing),
    )
    return replace(endpoint, settings=settings)


def price_in(provenance: Provenance) -> Price | None:
    """The price of a session's endpoint when the session was made; item selection uses it.

    Later changes of the price do not count, so that a session's item selection can be repeated.
    """
    origin = provenance["endpoint"]
    price = None if origin is None else origin.get("price")
    return None if price is None else restored(Price, price)


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
    if scorer.needs not in capabilities_of(kind) or kind == SIMULATED:
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
