"""Calls to language models: prompts in, completions or classified errors out."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.adapters.base import (
        Completion,
        CompletionRequest,
        EndpointConfig,
        Examinee,
        ProbeReport,
        SimulationHints,
    )
    from app.adapters.guard import AddressGuard
    from app.adapters.registry import build, kinds
    from app.adapters.transport import Transport

__all__ = [
    "AddressGuard",
    "Completion",
    "CompletionRequest",
    "EndpointConfig",
    "Examinee",
    "ProbeReport",
    "SimulationHints",
    "Transport",
    "build",
    "kinds",
]

#: Where what is not in `base` is: who fetches a file needs the guard, and not all endpoints.
_MODULES = {
    "AddressGuard": "guard",
    "Transport": "transport",
    "build": "registry",
    "kinds": "registry",
}


def __getattr__(name: str) -> object:
    """A name of `__all__`, loaded when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module 'app.adapters' has no attribute {name!r}")
    module = import_module(f"app.adapters.{_MODULES.get(name, 'base')}")
    found = globals()[name] = getattr(module, name)
    return found
