"""Advice whether live answers suffice to recalibrate a provisional version."""

from dataclasses import dataclass

from app.records.banks import Bank, BankVersion, Provisional, provisional_words
from app.records.response_sets import Source
from app.services.banks.versions import VersionService
from app.storage.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Knowledge about a version's items, and whether a recalibration would add to it.

    Attributes:
        known: Uncertainty of guessed parameters; None where they are calibrated.
        n_examinees: Number of examinees with answers in live or manual sessions on the bank.
    """

    version: BankVersion
    bank_name: str
    known: Provisional | None
    n_examinees: int = 0

    @property
    def due(self) -> bool:
        """Whether there are enough new examinees."""
        return self.known is not None and self.n_examinees >= self.known.next_examinees

    @property
    def words(self) -> str:
        """The advice in a few sentences."""
        if self.known is None:
            return (
                "The items' parameters are not guesses; `banks drift` says whether they still hold."
            )
        if self.due:
            rest = (
                f"{self.n_examinees} models have answered by now: `sextant banks recalibrate "
                f"{self.bank_name}` makes the next version from all their answers."
            )
        else:
            rest = (
                f"{self.n_examinees} models have answered by now. Recalibrate after "
                f"{self.known.next_examinees} models."
            )
        return f"{provisional_words(self.known)} {rest}"


@dataclass(frozen=True, eq=False)
class RecalibrationAdvice:
    """Examines versions; stores nothing."""

    database: Database
    versions: VersionService

    async def look(self, bank: str, version: str | None = None) -> Offer:
        """Examine a version.

        Raises:
            NotFoundError: No such bank or version.
        """
        found = await self.versions.get(bank, version)
        async with self.database.reading() as uow:
            of: Bank = await uow.banks.of_version(found.id)
        return await self.of_version(found, of.name)

    async def of_version(self, version: BankVersion, bank_name: str) -> Offer:
        """Examine a version that is loaded already."""
        known = Provisional.of(version.knowledge)
        if known is None:
            return Offer(version=version, bank_name=bank_name, known=None)
        async with self.database.unit_of_work() as uow:
            n = await uow.collected.n_examinees(Source(bank_id=version.bank_id))
        return Offer(version=version, bank_name=bank_name, known=known, n_examinees=n)
