"""Protects endpoints that score answers to withheld banks and so receive the accepted answers."""

from dataclasses import dataclass

from app import scorers
from app.acting import maker
from app.errors import InvalidInputError, MissingScopeError
from app.items import BY_KIND, ScorerSpec
from app.scorers.calling import CallingScorer
from app.services.visibility import View
from app.storage.database import Database


@dataclass(frozen=True, eq=False)
class ScorerGuard:
    """Keeps keys that may not write banks from replacing or changing such an endpoint.

    Otherwise such a key could change a judge's address to its owner's, or take its name, and the
    next answer would send the withheld texts there.
    """

    database: Database

    async def require_free(
        self, view: View, *names: str | None, endpoint_id: str | None = None
    ) -> None:
        """Refuse a name or an endpoint by which answers to a withheld bank are scored.

        Raises:
            NotFoundError: There is no such endpoint.
            MissingScopeError: Another key made the endpoint, and the caller is no admin; or it
                scores answers to a withheld bank, and the caller may not write banks.
        """
        wanted = {name for name in names if name is not None}
        if view.is_admin or not (wanted or endpoint_id):
            return
        async with self.database.reading() as uow:
            if endpoint_id is not None:
                endpoint = await uow.endpoints.get(endpoint_id)
                if endpoint.created_by != maker():  # its users did not agree to a change
                    raise MissingScopeError(
                        f"Endpoint {endpoint_id} was made by another key: changing or deleting it "
                        "needs that key, or one with the scope 'admin'."
                    )
                wanted |= {endpoint_id, endpoint.settings.name or endpoint_id}
            if view.is_whole:
                return
            specs = await uow.banks.withheld_scorers()
            taken = any(wanted.intersection(_called_by(spec)) for spec in specs)
            if endpoint_id is not None and not taken:
                taken = await uow.sessions.scores_withheld(endpoint_id)
        if taken:
            raise MissingScopeError(
                "This endpoint scores answers of a withheld bank and is told the right answers: "
                "changing it, or taking its name, needs a key with the scope 'banks:write'."
            )


def _called_by(spec: ScorerSpec) -> tuple[str, ...]:
    """Endpoints that a scorer calls, as it names them; none where it is no longer installed."""
    if spec.name == BY_KIND:
        return ()
    try:
        scorer = scorers.build(spec)
    except InvalidInputError:
        return ()
    return scorer.endpoints() if isinstance(scorer, CallingScorer) else ()
