"""Sessions and rankings as pages show them: a deleted bank has no page to link to."""

from app.api.schemas.rankings import RankingRead
from app.api.schemas.sessions import BankAsked, SessionRead
from app.shapes import Output


class _OnBank(Output):
    bank: BankAsked
    bank_deleted: bool

    @property
    def bank_path(self) -> str | None:
        """Path of the bank's page; None where the bank was deleted."""
        return None if self.bank_deleted else f"/banks/{self.bank.id}"


class ShownSession(SessionRead, _OnBank):
    """A session, and whether its bank was deleted."""


class ShownRanking(RankingRead, _OnBank):
    """A ranking, and whether its bank was deleted."""
