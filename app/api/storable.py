"""Which text can be stored: what Postgres and UTF-8 take."""

from typing import Any

from pydantic import BaseModel

from app.errors import FieldProblem, InvalidInputError
from app.pacing import Pace


def require_storable(value: Any, pointer: str = "", *, pace: Pace | None = None) -> None:
    """Look at every text within a value.

    Args:
        value: From JSON, parts of which may be validated already.
        pointer: Where it stands in the body, as a JSON pointer.
        pace: Kept meanwhile, in a thread.

    Raises:
        InvalidInputError: One cannot be stored.
        UnwantedError: `pace` was stopped.
    """
    if pace is not None:
        pace.keep()
    match value:
        case str():
            if "\x00" in value or not _is_encodable(value):
                raise unstorable(pointer)
        case list():
            for position, entry in enumerate(value):
                require_storable(entry, f"{pointer}/{position}", pace=pace)
        case dict():
            for key, entry in value.items():
                require_storable(key, pointer, pace=pace)
                require_storable(entry, f"{pointer}/{key}", pace=pace)
        case BaseModel():
            for name, entry in value:
                require_storable(entry, f"{pointer}/{name}", pace=pace)
        case _:
            pass


def unstorable(pointer: str) -> InvalidInputError:
    """The error that names a text that cannot be stored."""
    what = "Text must not contain the NUL character or half of a surrogate pair."
    return InvalidInputError(what, problems=[FieldProblem(pointer, what)])


def _is_encodable(value: str) -> bool:
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False
