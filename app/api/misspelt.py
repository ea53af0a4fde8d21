"""Fields that a request names and nobody knows: what may have been meant."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from fastapi import Request
from pydantic import BaseModel


def unknown_field(request: Request, loc: Sequence[int | str]) -> str:
    """What to say of a field of the body that is not known.

    Args:
        request: Its route says what its body may be.
        loc: Where the field stands, as Pydantic says it: `body`, then the way to it.
    """
    body = getattr(request.scope.get("route"), "body_field", None)
    known = _fields_at(body.field_info.annotation, loc[1:-1]) if body is not None else []
    close = get_close_matches(str(loc[-1])[:100], known, n=1)
    if close:
        return f"no such field; did you mean {close[0]!r}?"
    listed = ", ".join(known[:20])
    return f"no such field; there are {listed}" if 0 < len(known) <= 20 else "no such field"


def _fields_at(annotation: Any, way: Sequence[int | str]) -> list[str]:
    """Names of the fields of whatever may stand at the end of a way into a body."""
    models = list(_models(annotation))
    for part in way:
        inside = [
            found
            for model in models
            if isinstance(part, str) and part in model.model_fields
            for found in _models(model.model_fields[part].annotation)
        ]
        # A place in a list, or which of several shapes it was taken for: the fields are the same.
        models = inside or models
    return list(dict.fromkeys(name for model in models for name in model.model_fields))


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation names, however deep in lists and unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
