"""Loaded by schemathesis, see schemathesis.toml."""

from itertools import count
from typing import Any

import schemathesis

_KEY = "Idempotency-Key"
_numbers = count()


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Make each valid Idempotency-Key a new one, as a client does for each intent."""
    given = (case.headers or {}).get(_KEY)
    if isinstance(given, str) and 0 < len(given.strip()) < 240:
        case.headers[_KEY] = f"{given}-{next(_numbers)}"
