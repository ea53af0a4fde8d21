"""Answers of endpoints that are kept, by what the call was."""

from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert

from app.storage.rows.endpoints import KeptAnswerRow
from app.storage.scoping import Repository

#: How long an answer is kept: what stands behind a model's name changes.
KEEP = timedelta(days=30)


class AnswerRepository(Repository):
    """Questions and changes about kept answers, within one transaction."""

    async def find(self, key: str) -> dict[str, Any] | None:
        """The answer to a call, if it is kept."""
        query = select(KeptAnswerRow.answer).where(
            KeptAnswerRow.key == key,
            KeptAnswerRow.created_at >= func.clock_timestamp() - KEEP,
        )
        return (await self._db.scalars(query)).one_or_none()

    async def keep(self, key: str, answer: dict[str, Any], *, session_id: str) -> None:
        """Keep an answer; one that is kept already stays, unless it is too old.

        Args:
            key: Of the call.
            answer: What came.
            session_id: The session that asked: the answer goes with it.
        """
        statement = insert(KeptAnswerRow).values(key=key, answer=answer, session_id=session_id)
        await self._db.execute(
            statement.on_conflict_do_update(
                index_elements=[KeptAnswerRow.key],
                set_={
                    "answer": answer,
                    "session_id": session_id,
                    "created_at": func.clock_timestamp(),
                },
                where=KeptAnswerRow.created_at < func.clock_timestamp() - KEEP,
            )
        )

    async def purge(self) -> None:
        """Delete what is too old."""
        await self._db.execute(
            delete(KeptAnswerRow).where(KeptAnswerRow.created_at < func.clock_timestamp() - KEEP)
        )
