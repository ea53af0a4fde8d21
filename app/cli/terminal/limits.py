"""Limits of projects and keys on the command line."""

import math
from collections.abc import Mapping
from typing import Any

from app.cli.servers.connection import given
from app.cli.terminal.console import out
from app.errors import InvalidInputError


def changes_of(**told: float | None) -> dict[str, Any]:
    """The limits that a command names, by name; None where it says 0: as much as there is.

    Raises:
        InvalidInputError: One is below 0, or no number.
    """
    named = given(**told)
    if refused := [name for name, value in named.items() if not 0 <= value < math.inf]:
        raise InvalidInputError(f"{refused[0]}: expected 0 or more, got {named[refused[0]]}.")
    return {name: value or None for name, value in named.items()}


def show_limits(limits: Mapping[str, Any]) -> None:
    """Print them, a line each."""
    for name, value in limits.items():
        out.say(f"{name}  {'-' if value is None else value}")
