"""Writes the steps of many sessions together."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from app.errors import DatabaseUnavailableError
from app.records.sessions import Advance
from app.storage.database import Database

#: Steps of one statement: what waits longer than the others for the sake of one is bounded.
MOST_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A step to be written, and who waits for that."""

    session_id: str
    epoch: int
    step: Advance
    written: asyncio.Future[None]


class StepWriter:
    """Writes steps of the sessions that one process runs.

    Each commit waits for the disk. Steps that come in meanwhile are written together, by one
    statement: a step alone waits for nobody, a hundred at once share what writing costs.

    Args:
        database: Where sessions are stored.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[_Waiting] = []
        self._task: asyncio.Task[None] | None = None

    async def write(self, session_id: str, epoch: int, step: Advance) -> None:
        """Write one step, all of it or nothing.

        Raises:
            LeaseLostError: The session's lease is no longer that of `epoch`.
            StaleStepError: An answer was closed before.
            DatabaseUnavailableError: It may be written or not.
        """
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(session_id, epoch, step, written))
        if self._task is None:
            self._task = asyncio.create_task(self._write_all(), name="steps")
        await written

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[:MOST_AT_ONCE]
                del self._waiting[:MOST_AT_ONCE]
                await self._write(batch)
        finally:
            self._task = None

    async def _write(self, batch: Sequence[_Waiting]) -> None:
        batch = [each for each in batch if not each.written.done()]  # who waited was stopped
        if not batch:
            return
        writing = asyncio.create_task(self._written(batch))
        await asyncio.wait([writing])
        error = writing.exception()
        if error is None:
            refusals: Sequence[BaseException | None] = writing.result()
        elif len(batch) == 1 or isinstance(error, DatabaseUnavailableError):
            refusals = [error] * len(batch)
        else:  # a value that cannot be stored is the fault of one of them
            for each in batch:
                await self._write([each])
            return
        for each, refusal in zip(batch, refusals, strict=True):
            if each.written.done():
                continue
            if refusal is None:
                each.written.set_result(None)
            else:
                each.written.set_exception(refusal)

    async def _written(self, batch: Sequence[_Waiting]) -> Sequence[Exception | None]:
        async with self._database.reading() as uow:
            return await uow.sessions.advance_each(
                [(each.session_id, each.epoch, each.step) for each in batch]
            )
