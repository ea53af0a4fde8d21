"""Where answers come from, as their sessions' provenance says it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from app.adapters.base import EndpointConfig
from app.calling import GenerationParams
from app.errors import EndpointMovedError
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
        "reasoning_tags": list(settings.reasoning_tags),
        "parameters_hash": _parameters_hash(settings),
    }


def as_begun(config: EndpointConfig, origin: Mapping[str, Any]) -> EndpointConfig:
    """The endpoint with its present secrets, asked as it was when `origin` was noted.

    Raises:
        EndpointMovedError: It has another address or kind by now.
    """
    kind, base_url = (origin.get(name, getattr(config, name)) for name in ("kind", "base_url"))
    require_unmoved(config, kind, base_url)
    told = {name: origin[name] for name in ("model", "options") if name in origin}
    if "sampling" in origin:
        sampling = origin["sampling"]
        told["sampling"] = GenerationParams(**{**sampling, "stop": tuple(sampling["stop"])})
    if "reasoning_tags" in origin:
        told["reasoning_tags"] = tuple(origin["reasoning_tags"])
    return replace(config, **told)


def require_unmoved(present: EndpointConfig | EndpointSettings, kind: str, base_url: str) -> None:
    """Refuse an endpoint with another address: a key given for one never goes to the other.

    Raises:
        EndpointMovedError: Its address or kind is another than when the work began.
    """
    if (present.kind, present.base_url) != (kind, base_url):
        raise EndpointMovedError(
            f"The endpoint was changed from {kind} at {base_url!r} to {present.kind} at "
            f"{present.base_url!r}. What began with the former asks nothing more: start it anew, "
            "or extend the session to go on with the latter."
        )


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
