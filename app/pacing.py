"""Threads that reckon in Python let the event loop go first, and end where nobody waits for them.

Whatever the loop does next, it waits for the interpreter until a thread that reckons has had its
turn: two hundred connections that open while a large body is read wait two hundred turns, and the
look at the server's health waits behind them. A thread that rests between its slices leaves the
loop all that time, however much there is to do.
"""

import threading
import time

#: Seconds of work, and of the rest that follows.
_WORK_S, _REST_S = 0.001, 0.001


class UnwantedError(Exception):
    """Nobody waits for this work any more."""


class Pace:
    """Of one piece of work in a thread.

    The thread calls `keep`, whoever waits for it calls `stop` when that is over.
    """

    def __init__(self) -> None:
        self._unwanted = threading.Event()
        self._since = 0.0

    def keep(self) -> None:
        """Between two slices of at most a millisecond each: rest if it is time.

        Raises:
            UnwantedError: `stop` was called.
        """
        if time.perf_counter() - self._since < _WORK_S:
            return
        if self._unwanted.wait(_REST_S):
            raise UnwantedError
        self._since = time.perf_counter()

    def stop(self) -> None:
        """Let the work end at the next slice; of no effect once it is done."""
        self._unwanted.set()
