"""Calls to language models: prompts in, completions or classified errors out."""

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
