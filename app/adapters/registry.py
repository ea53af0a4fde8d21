"""Kinds of endpoints and the functions that build them.

Other packages add kinds through the entry point group `sextant.adapters`: name = kind, value = a
callable `(EndpointConfig, Transport) -> Examinee`.
"""

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from app.adapters.base import EndpointConfig, Examinee
from app.adapters.callback import callback
from app.adapters.huggingface import hf_endpoint, hf_tgi
from app.adapters.openai_compatible import OpenAIChat, OpenAICompletions
from app.adapters.scripted import scripted
from app.adapters.transport import Transport
from app.errors import UnknownNameError

GROUP: Final = "sextant.adapters"

Factory = Callable[[EndpointConfig, Transport], Examinee]

_BUILT_IN: Final[dict[str, Factory]] = {
    "openai_chat": OpenAIChat.of,
    "openai_completions": OpenAICompletions.of,
    "hf_endpoint": hf_endpoint,
    "hf_tgi": hf_tgi,
    "scripted": scripted,
    "callback": callback,
}


@cache
def _installed() -> dict[str, EntryPoint]:
    """Kinds of other packages, which cannot replace built-in kinds."""
    found = entry_points(group=GROUP)
    return {point.name: point for point in found if point.name not in _BUILT_IN}


def kinds() -> tuple[str, ...]:
    """Every kind that `build` knows."""
    return (*_BUILT_IN, *_installed())


def build(config: EndpointConfig, transport: Transport) -> Examinee:
    """The examinee that `config` describes.

    Raises:
        UnknownNameError: No adapter of that kind is installed.
        InvalidInputError: base_url, model, a header or an option cannot be used.
    """
    factory = _BUILT_IN.get(config.kind)
    if factory is None:
        point = _installed().get(config.kind)
        if point is None:
            raise UnknownNameError("endpoint kind", config.kind, kinds(), pointer="/kind")
        factory = point.load()
    return factory(config, transport)
