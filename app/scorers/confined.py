"""Work of scorers that may hang, done in a child of the sandbox: patterns, algebra, long answers.

None of it can be interrupted inside a process: a power tower is computed in C, a catastrophic
regular expression holds the interpreter lock. The child is killed when its time is up.
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

#: Pieces of work that may wait: each of many sessions may have several answers to score.
_WAITING = 256
#: Places for keys that have no work under way, however slow the work of others.
_SPARE = 2
_OUTPUT_BYTES = 1 << 20

_is_child = False


@dataclass(frozen=True, slots=True)
class Failed:
    """The work gave no result.

    Attributes:
        reason: Why, in words.
        is_lost: Its process was lost, which tells nothing of the work.
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
    """What a function makes of its arguments; in a child, unless this is one already.

    Args:
        work: A function on the top level of a module of ours, with arguments by name. Both these
            and its result are JSON: a tuple comes back as a list.
        timeout_s: Seconds that it may take; waiting for its turn does not count.
        libraries: Modules that it needs and that take long to import.
        memory: Bytes that it may take beyond what these take.

    Raises:
        BusyError: Too much other work is waiting.
    """
    if _is_child:
        return work()
    try:
        result = await _sandbox(libraries).run(
            _perform,
            {
                "module": work.func.__module__,
                "name": work.func.__name__,
                "arguments": work.keywords,
            },
            limits=Limits(memory=memory, seconds=timeout_s, output=_OUTPUT_BYTES),
            subject="it",
        )
    except LimitExceededError as error:
        return Failed(error.detail.removesuffix("."), is_lost=isinstance(error, LostError))
    if "failed" in result:
        return Failed(result["failed"])
    made: R = result["made"]
    return made


def _perform(order: Any, *_: object) -> dict[str, object]:
    global _is_child  # a child stays one
    _is_child = True
    function: Callable[..., object] = getattr(import_module(order["module"]), order["name"])
    try:
        return {"made": function(**order["arguments"])}
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
    """End the helper processes, if any run. The next use starts new ones."""
    for sandbox in _made:
        await asyncio.to_thread(sandbox.close)
