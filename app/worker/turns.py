"""Whose work comes next in one process: projects take turns, and the keys of a project.

Of the places that other projects leave, one project takes three quarters at most, and of those one
key three quarters: however much somebody has asked for, the next one's work begins at once.
"""

import math
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from app.records.projects import SHARE, share_of


class Owner(NamedTuple):
    """Whose work it is."""

    project_id: str
    key_id: str | None


class Turns:
    """Lets work begin where its owner has not taken too much already; the rest waits.

    What waits has no job any more. It begins in the place of what ends here, or, since it stays
    queued in its table, wherever it is rescued to.

    Args:
        alone: How much one key may run at a time if nobody else wants anything.
        run: Runs work to its end, by its id.
        owner_of: Whose it is; None where it is gone.
    """

    def __init__(
        self,
        alone: int,
        *,
        run: Callable[[str], Awaitable[None]],
        owner_of: Callable[[str], Awaitable[Owner | None]],
    ) -> None:
        self.alone = alone
        #: Of all owners together.
        self.places = math.ceil(math.ceil(alone / SHARE) / SHARE)
        self._run = run
        self._owner_of = owner_of
        self._projects: Counter[str] = Counter()
        self._owners: Counter[Owner] = Counter()
        self._waiting: dict[Owner, dict[str, None]] = {}

    @property
    def waiting(self) -> list[str]:
        """What waits here for its turn."""
        return [resource_id for line in self._waiting.values() for resource_id in line]

    async def run(self, resource_id: str) -> None:
        """Run work now, and then what waits for its place; or have it wait."""
        owner = await self._owner_of(resource_id)
        if owner is None:
            return
        if not self._may_begin(owner):
            self._waiting.setdefault(owner, {})[resource_id] = None
            return
        begun: tuple[Owner, str] | None = (owner, resource_id)
        while begun is not None:
            owner, resource_id = begun
            self._projects[owner.project_id] += 1
            self._owners[owner] += 1
            try:
                await self._run(resource_id)
            finally:
                self._projects[owner.project_id] -= 1
                self._owners[owner] -= 1
            begun = self._next()

    def _may_begin(self, owner: Owner) -> bool:
        mine, keys = self._projects[owner.project_id], self._owners[owner]
        allowed = share_of(self.places - (self._projects.total() - mine))
        return mine < allowed and keys < share_of(allowed - (mine - keys))

    def _next(self) -> tuple[Owner, str] | None:
        """What waits of the owner who has the least, if it may begin."""
        ready = [owner for owner in self._waiting if self._may_begin(owner)]
        if not ready:
            return None
        owner = min(ready, key=lambda one: (self._projects[one.project_id], self._owners[one]))
        waiting = self._waiting[owner]
        resource_id = next(iter(waiting))
        del waiting[resource_id]
        if not waiting:
            del self._waiting[owner]
        return owner, resource_id
