"""Connections of the tests' workers to the queue, which stay open from test to test.

A worker opens a dozen. Postgres starts a process for each, which reads the catalogue anew.
"""

from contextlib import suppress
from typing import Any, ClassVar, Self

import psycopg
from psycopg import pq
from typing_extensions import override


def _ended() -> pq.abc.PGconn:
    """Return a closed libpq connection."""
    made = pq.PGconn.connect_start(b"host=/nonexistent")
    made.finish()
    return made


class KeptConnection(psycopg.AsyncConnection[Any]):
    """A connection to the tests' database that stays open when this object is closed.

    Attributes:
        conninfo: Connection string of the tests' database.
        kept: Free connections to it, in the state of new ones.
    """

    conninfo: ClassVar[str | None] = None
    kept: ClassVar[list[pq.abc.PGconn]] = []
    _is_of_tests = False

    @classmethod
    @override
    async def connect(cls, conninfo: str = "", **options: Any) -> Self:
        is_of_tests = conninfo == cls.conninfo
        if is_of_tests and cls.kept:
            connection = cls(cls.kept.pop())
            await connection.set_autocommit(bool(options.get("autocommit")))
        else:
            connection = await super().connect(conninfo, **options)
        connection._is_of_tests = is_of_tests
        return connection

    @override
    async def close(self) -> None:
        is_as_new = False
        try:
            if self._is_of_tests and self.pgconn.transaction_status == pq.TransactionStatus.IDLE:
                with suppress(psycopg.Error):
                    await self.execute("DISCARD ALL")
                    is_as_new = True
        finally:
            if is_as_new:
                self.kept.append(self.pgconn)
                self.pgconn = _ended()
            else:
                await super().close()

    @classmethod
    def end_kept(cls) -> None:
        """Close the free connections."""
        while cls.kept:
            cls.kept.pop().finish()
