"""Where answers come from, as their sessions' provenance says it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from app.records.endpoints import Endpoint, EndpointSettings, NewEndpoint, Price


def origin_of(endpoint: Endpoint | NewEndpoint) -> dict[str, Any]:
    """Where answers come from, for their provenance: no secrets, plain JSON values."""
    settings = endpoint.settings
    return {
        "id": endpoint.id,
        "revision": endpoint.revision,
        "name": settings.name,
        "kind": settings.kind,
        "base_url": settings.base_url,
        "model": settings.model,
        "sampling": asdict(settings.sampling) | {"stop": list(settings.sampling.stop)},
        "price": asdict(settings.price),
        "options": dict(settings.options),
        "parameters_hash": _parameters_hash(settings),
    }


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
    endpoint = provenance["endpoint"]
    return endpoint and Price(**endpoint["price"])
