"""Checks that the present secret key decrypts the stored secrets, and rotates the key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from app.errors import SecretsError
from app.storage.database import Database
from app.storage.repositories.secrets import Sealed, SealedKind
from app.storage.secrets import SecretBox
from app.storage.unit_of_work import UnitOfWork

_KNOWN_TEXT = "sextant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """Result of a key rotation.

    Attributes:
        answers: Number of cached answers to repeated calls that the newest key encrypts now.
        unreadable: Endpoints with secrets that no present key decrypts, and the names of these
            secrets; they stay unchanged.
        unreadable_answers: Number of undecryptable cached answers; they expire after a day.
        unreadable_webhooks: Ids of webhooks with undecryptable secrets; only new webhooks help.
    """

    endpoints: int
    answers: int
    webhooks: int
    unreadable: Sequence[tuple[Sealed, tuple[str, ...]]]
    unreadable_answers: int
    unreadable_webhooks: Sequence[str]


@dataclass(frozen=True, eq=False)
class SecretKeys:
    """Checks and rotates the key that encrypts secrets at rest."""

    database: Database
    box: SecretBox

    async def check(self) -> None:
        """Check that stored secrets can be read; a new database records the present key.

        Raises:
            SecretsError: The key differs from the recorded one, is lost, or its file is unusable.
        """
        async with self.database.unit_of_work() as uow:
            canary = await uow.secrets.canary()
            if canary is None:
                await self._require_own(uow)
                await uow.secrets.add_canary(self.box.encrypt(_KNOWN_TEXT))
                canary = await uow.secrets.canary()
        if canary is not None:
            self.box.decrypt(canary)

    async def state(self) -> Literal["ok", "unreadable"]:
        """Whether stored secrets can be read with the present key."""
        async with self.database.reading() as uow:
            canary = await uow.secrets.canary()
        try:
            if canary is not None:
                self.box.decrypt(canary)
        except SecretsError:
            return "unreadable"
        return "ok"

    async def _require_own(self, uow: UnitOfWork) -> None:
        """Require that the present key decrypts a secret stored before there was a canary."""
        failure: SecretsError | None = None
        batch = await uow.secrets.sealed("endpoints")
        while batch:
            for cipher in (each for endpoint in batch for each in endpoint.ciphers.values()):
                try:
                    self.box.decrypt(cipher)
                except SecretsError as error:
                    failure = error
                else:
                    return
            batch = await uow.secrets.sealed("endpoints", batch[-1])
        if failure is not None:
            raise failure

    async def rotate(self) -> Rotation:
        """Encrypt all secrets again with the newest key; a key file gets a new key first.

        An interruption at any moment loses nothing: old keys go last, and a second run continues.

        Raises:
            SecretsError: The key file cannot be read or written.
        """
        async with self.database.unit_of_work() as uow:
            await uow.secrets.add_canary(self.box.encrypt(_KNOWN_TEXT))
            await uow.secrets.canary(for_update=True)  # two rotations run one after the other
            self.box.take_new_key()
            endpoints, unreadable = await self._renew("endpoints")
            answers, unreadable_answers = await self._renew("answers")
            webhooks, unreadable_webhooks = await self._renew("webhooks")
            await uow.secrets.replace_canary(self.box.encrypt(_KNOWN_TEXT))
        self.box.forget_old_keys()
        return Rotation(
            endpoints=endpoints,
            answers=answers,
            webhooks=webhooks,
            unreadable=unreadable,
            unreadable_answers=len(unreadable_answers),
            unreadable_webhooks=[webhook.id for webhook, _ in unreadable_webhooks],
        )

    async def _renew(self, kind: SealedKind) -> tuple[int, list[tuple[Sealed, tuple[str, ...]]]]:
        """The number of rows under the newest key, and rows with the names of lost secrets."""
        n, lost, last = 0, list[tuple[Sealed, tuple[str, ...]]](), None
        while True:
            async with self.database.unit_of_work() as uow:
                batch = await uow.secrets.sealed(kind, last, for_update=True)
                for found in batch:
                    renewed, unreadable = self._renewed(found.ciphers)
                    if renewed:
                        await uow.secrets.renew(kind, found, renewed)
                    if unreadable:
                        lost.append((found, unreadable))
                    else:
                        n += 1
            if not batch:
                return n, lost
            last = batch[-1]

    def _renewed(self, ciphers: Mapping[str, bytes]) -> tuple[dict[str, bytes], tuple[str, ...]]:
        """New ciphertexts where needed, and the names of secrets that no present key decrypts."""
        renewed: dict[str, bytes] = {}
        unreadable: list[str] = []
        for name, cipher in ciphers.items():
            try:
                new = self.box.renewed(cipher)
            except SecretsError:
                unreadable.append(name)
            else:
                if new is not None:
                    renewed[name] = new
        return renewed, tuple(unreadable)
