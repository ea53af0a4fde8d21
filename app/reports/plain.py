"""Values of a report as JSON."""

import math
from collections.abc import Mapping, Sequence
from typing import Any


def plain(value: Any) -> Any:
    """The same from lists, dictionaries and numbers; what is not finite becomes None."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case str():
            return value
        case Mapping():
            return {str(key): plain(part) for key, part in value.items()}
        case Sequence():
            return [plain(part) for part in value]
        case _:
            return value
