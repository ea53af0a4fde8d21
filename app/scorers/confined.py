"""Runs scorers' work that may hang in a child of the sandbox: patterns, algebra, long answers.

Such work cannot be interrupted within its process: a power tower is computed in C, and a
catastrophic regular expression holds the interpreter lock. A child is killed at its time limit.
"""

import asyncio
import atexit
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any, TypeVar

from app.errors import LimitExceededError
from app.sandbox.pool import SMALL_MEMORY, Limits, LostError, Sandbox

R = TypeVar("R")

#: Most waiting tasks; many sessions may have several answers to score each.
_WAITING = 256
#: Places kept free for keys without running work, however slow the work of others.
_SPARE = 2
_OUTPUT_BYTES = 1 << 20

_is_child = False


@dataclass(frozen=True, slots=True)
class Failed:
    """Failure of work that gave no result.

    Attributes:
        is_lost: Whether the process was lost, which says nothing about the work itself.
    """

    reason: str
    is_lost: bool = False


async def confined(
    work: partial[R],
    *,
    timeout_s: float,
    libraries: tuple[str, ...] = (),
    memory: int = SMALL_MEMORY,
) -> R | Failed:
    """Call a function in a child process, or directly if this process is a child already.

    Args:
        work: A top-level function of one of our modules, with keyword arguments. Arguments and
            result are JSON: a tuple comes back as a list.
        timeout_s: Seconds of CPU time that the work may take; see `Limits`.
        libraries: Modules that the work needs and that take long to import.
        memory: Bytes that the work may take beyond those of the libraries.

    Raises:
        BusyError: Too much other work is waiting.
    """
    if _is_child:
        return work()
    try:
        limits = Limits(memory=memory, seconds=timeout_s, output=_OUTPUT_BYTES)
        order = work.func.__module__, work.func.__name__, work.keywords
        result = await _sandbox(libraries).run(_perform, order, limits=limits, subject="it")
    except LimitExceededError as error:
        return Failed(error.detail.removesuffix("."), is_lost=isinstance(error, LostError))
    if "failed" in result:
        return Failed(result["failed"])
    made: R = result["made"]
    return made


def _perform(order: Any, *_: object) -> dict[str, object]:
    global _is_child  # a child stays one
    _is_child = True
    module, name, arguments = order
    function: Callable[..., object] = getattr(import_module(module), name)
    try:
        return {"made": function(**arguments)}
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  any library's fault is a result, not an end
        return {"failed": f"{type(error).__name__}: {error}"[:200]}


@cache
def _sandbox(libraries: tuple[str, ...]) -> Sandbox:
    made = Sandbox(
        ("app.scorers.marking", "app.scorers.shipped", *libraries), spare=_SPARE, waiting=_WAITING
    )
    atexit.register(made.close)
    _made.append(made)
    return made


_made: list[Sandbox] = []


async def aclose() -> None:
    """End all helper processes. The next use starts new ones."""
    for sandbox in _made:
        await asyncio.to_thread(sandbox.close)
