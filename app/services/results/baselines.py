"""Baselines: named results that later sessions are compared with."""

from dataclasses import dataclass

from app.acting import maker
from app.errors import FieldProblem, InvalidInputError, MissingScopeError
from app.records.gates import Baseline, NamedBaseline
from app.records.sessions import SessionRecord
from app.services.banks.versions import VersionService
from app.services.results.measured import Measured
from app.services.sessions.derived import EXTEND
from app.services.sessions.result import cautions_of
from app.storage.database import Database
from app.storage.identifiers import may_name
from app.storage.unit_of_work import UnitOfWork


@dataclass(frozen=True, eq=False)
class BaselineService:
    """Creates, moves, reads and deletes baselines.

    Raises:
        NotFoundError: There is no such baseline or session; true of all methods.
        InvalidStateError: A session has not ended, or has failed; likewise.
    """

    database: Database
    versions: VersionService

    async def put(self, name: str, session_id: str, *, is_admin: bool) -> NamedBaseline:
        """Name the result of an ended session, or move an existing name to it.

        Raises:
            InvalidInputError: The name has the form of a session's id.
            MissingScopeError: Another key made the baseline.
            StorageFullError: The project, or this key of it, has reached its storage limit.
        """
        if may_name(name, "ses_"):
            detail = "expected a name of your own, got the id of a session"
            raise InvalidInputError(f"name: {detail}.", problems=[FieldProblem("/name", detail)])
        baseline = await self.of_session(session_id)
        async with self.database.unit_of_work() as uow:
            moved = await uow.baselines.put(name, baseline, is_admin=is_admin)
        if moved is None:
            raise _another_keys(name)
        return moved

    async def get(self, name: str) -> NamedBaseline:
        """One baseline."""
        async with self.database.reading() as uow:
            return await uow.baselines.get(name)

    async def delete(self, name: str, *, is_admin: bool) -> None:
        """Delete a baseline. Gates made against it keep their copy of its result.

        Raises:
            MissingScopeError: Another key made the baseline.
        """
        async with self.database.unit_of_work() as uow:
            if (await uow.baselines.get(name)).created_by != maker() and not is_admin:
                raise _another_keys(name)
            await uow.baselines.delete(name)

    async def of(self, name: str) -> Baseline:
        """The baseline with a name, or the result of the session with an id."""
        if may_name(name, "ses_"):
            return await self.of_session(name)
        return (await self.get(name)).baseline

    async def of_session(self, session_id: str) -> Baseline:
        """The result of an ended session in the form that is kept apart from the session."""
        async with self.database.reading() as uow:
            record = await uow.sessions.get(session_id)
            asked = await uow.sessions.administrations(session_id)
            lineage, extensions = await lineage_of(record, uow)
        version = await self.versions.load(record.bank_version_id)
        measured = Measured.of_session(record, version, asked)
        return Baseline(
            session_id=record.id,
            label=measured.label,
            lineage=lineage,
            extensions=extensions,
            withheld=record.withheld,
            bank=record.bank_name,
            bank_version_id=record.bank_version_id,
            seed=record.seed,
            design=record.design,
            provenance={
                "asked": record.provenance.get("asked", {}),
                "asking": record.provenance["asking"],
            },
            summary={
                "estimate": record.summary["estimate"],
                "score": record.summary["score"],
                "progress": record.summary["progress"],
                "outcomes": record.summary["outcomes"],
                "profile": record.summary.get("profile"),
            },
            residuals=dict(measured.residuals),
            cautions={
                metric: cautions_of(record, is_score=metric == "score")
                for metric in ("score", "theta")
            },
        )


async def lineage_of(session: SessionRecord, uow: UnitOfWork) -> tuple[list[str], int]:
    """Ids of a session and its ancestors, and the number of extensions among them."""
    lineage, extensions, at = [session.id], 0, session
    while at.parent_id is not None:
        extensions += at.relation == EXTEND
        at = await uow.sessions.get(at.parent_id)
        lineage.append(at.id)
    return lineage, extensions


def _another_keys(name: str) -> MissingScopeError:
    return MissingScopeError(
        f"The baseline {name!r} was made by another key: changing it needs that key, or one with "
        "the scope 'admin'."
    )
