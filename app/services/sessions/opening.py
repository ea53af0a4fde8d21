"""From what is stored of a session to its run."""

from collections.abc import Sequence

from app.records.sessions import Administration, NewSession, SessionRecord
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService
from app.services.endpoints.service import price_in
from app.services.sessions.plan import SessionPlan
from app.services.sessions.run import SessionRun


async def open_run(
    versions: VersionService,
    session: SessionRecord | NewSession,
    administrations: Sequence[Administration] = (),
    *,
    version: LoadedVersion | None = None,
    plan: SessionPlan | None = None,
) -> SessionRun:
    """A session as far as its answers go.

    Args:
        versions: What is asked.
        session: The session.
        administrations: Items that it has asked, in any order.
        version: Its bank version as it asks it, where the caller has that.
        plan: Its plan, where the caller has that.

    Raises:
        InvalidInputError: Its design cannot be built on its bank version.
        NotFoundError: No such version.
    """
    if version is None:
        version = await versions.load_as(session.bank_version_id, session.provenance["asking"])
    if plan is None:
        plan = SessionPlan.from_dict(session.design)
    return SessionRun(
        test=await versions.adaptive_test(version, plan.design, price_in(session.provenance)),
        plan=plan,
        version=version,
        seed=session.seed,
        administrations=administrations,
    )
