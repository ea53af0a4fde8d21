"""How many requests of a project are let in, at one process."""

import time

from cachetools import LRUCache

from app.errors import TooManyRequestsError
from app.records.projects import Project

#: Over so long the limit is an average: as many requests may come at once, seconds.
_OVER_S = 10.0
_MOST_PROJECTS = 10_000

#: When the requests that were let in would have come at the limit's own pace (GCRA).
_scheduled: LRUCache[str, float] = LRUCache(_MOST_PROJECTS)


def let_in(project: Project, now: float | None = None) -> None:
    """Count a request.

    Args:
        project: Whose it is.
        now: The clock, seconds; by default the process's own.

    Raises:
        TooManyRequestsError: It is one too many.
    """
    rate = project.limits.requests_per_s
    if rate is None:
        return
    now = time.monotonic() if now is None else now
    due = max(_scheduled.get(project.id, now), now)
    early_s = due - now - max(_OVER_S - 1 / rate, 0.0)
    if early_s > 1e-9:
        raise TooManyRequestsError(
            f"Project {project.name!r} may send {rate:g} requests a second, on average over "
            f"{_OVER_S:g} s; more came.",
            retry_after_s=early_s,
        )
    _scheduled[project.id] = due + 1 / rate
