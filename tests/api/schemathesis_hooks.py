"""Hooks for schemathesis, loaded by schemathesis.toml."""

import json
import os
from itertools import count
from typing import Any

import schemathesis

_KEY = "Idempotency-Key"
_numbers = count()
#: IDs of existing resources by path parameter; they replace half of the generated ids.
_EXISTING: dict[str, str] = json.loads(os.environ.get("SEXTANT_EXISTING", "{}"))


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Make each valid Idempotency-Key unique, as a client does for each intent.

    Never revoke the key that all calls use: every later call would be refused.
    """
    if (case.path_parameters or {}).get("key_id") == _EXISTING.get("own_key_id", ""):
        case.path_parameters["key_id"] = _EXISTING["key_id"]
    given = (case.headers or {}).get(_KEY)
    if isinstance(given, str) and 0 < len(given.strip()) < 240:
        case.headers[_KEY] = f"{given}-{next(_numbers)}"


@schemathesis.hook
def map_path_parameters(
    context: Any, path_parameters: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Let half of the calls reach an existing resource."""
    if path_parameters and next(_numbers) % 2:
        known = {name: _EXISTING[name] for name in path_parameters if name in _EXISTING}
        return path_parameters | known
    return path_parameters


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Write whole numbers without a point: JSON Schema allows 1.0, and the API refuses it."""
    if isinstance(body, dict):
        return {name: map_body(context, inner) for name, inner in body.items()}
    if isinstance(body, list):
        return [map_body(context, inner) for inner in body]
    return int(body) if isinstance(body, float) and body.is_integer() else body
