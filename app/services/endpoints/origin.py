"""Where answers come from, as their sessions' provenance says it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from app.calling import GenerationParams
from app.errors import EndpointMovedError
from app.records.endpoints import Endpoint, EndpointSettings, NewEndpoint, Price


def origin_of(endpoint: Endpoint | NewEndpoint) -> dict[str, Any]:
    """Where answers come from, for their provenance: no secrets, plain JSON values."""
    settings = endpoint.settings
    who = {
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


def as_begun(endpoint: Endpoint, origin: Mapping[str, Any]) -> Endpoint:
    """The endpoint as it is now, but asked for what it was asked when `origin` was noted.

    Raises:
        EndpointMovedError: It has another address or kind by now: a key given for one address never
            goes to another.
    """
    present = endpoint.settings
    began = {**origin_of(endpoint), **origin}
    if (present.kind, present.base_url) != (began["kind"], began["base_url"]):
        raise EndpointMovedError(
            f"The endpoint was changed from {began['kind']} at {began['base_url']!r} to "
            f"{present.kind} at {present.base_url!r}. What began with the former asks nothing "
            "more: start it anew."
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
    """SHA-256 of all that is sent with every call beside the prompt: sampling and options."""
    canonical = json.dumps(
        [asdict(settings.sampling), dict(settings.options)], sort_keys=True, ensure_ascii=False
    )
    return hashlib.sha256(canonical.encode(errors="surrogatepass")).hexdigest()


def price_in(provenance: Mapping[str, Any]) -> Price | None:
    """The price of a session's endpoint when the session was made, by which it chooses items.

    Later changes of the endpoint do not count, so that the choices of a session can be repeated.
    """
    price = (provenance["endpoint"] or {}).get("price")
    return price and Price(**price)
