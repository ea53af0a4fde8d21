"""Decides whose work comes next in one process: projects take turns, and the keys of a project.

A project takes at most three quarters of the places that other projects leave, and a key at most
three quarters of those. So work of another owner begins at once, however much one has queued.
"""

import math
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from app.records.projects import SHARE, share_of


class Owner(NamedTuple):
    """Project and API key that own work."""

    project_id: str
    key_id: str | None


class Turns:
    """Lets work begin unless its owner runs too much already; other work waits.

    Waiting work has no job any more. It begins when other work ends here, or, since it stays
    queued in its table, in another process that rescues it.

    Args:
        alone: Most work that one key may run at a time while no other key wants any.
        run: Runs the work with an id to its end.
        owner_of: Owner of the work with an id; None where the work was deleted.
    """

    def __init__(
        self,
        alone: int,
        *,
        run: Callable[[str], Awaitable[None]],
        owner_of: Callable[[str], Awaitable[Owner | None]],
    ) -> None:
        self.alone = alone
        #: Most work that all owners together run at a time.
        self.places = math.ceil(math.ceil(alone / SHARE) / SHARE)
        self._run = run
        self._owner_of = owner_of
        self._projects: Counter[str] = Counter()
        self._owners: Counter[Owner] = Counter()
        self._waiting: dict[Owner, dict[str, None]] = {}

    @property
    def waiting(self) -> list[str]:
        """Ids of the work that waits here for its turn."""
        return [resource_id for line in self._waiting.values() for resource_id in line]

    async def run(self, resource_id: str) -> None:
        """Run work now, and then the work that waits for its place; or let it wait."""
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
        """Waiting work of the owner that runs least, if any may begin."""
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
