"""Checks that the present secret key decrypts the stored secrets, and rotates the key."""

from dataclasses import dataclass, field
from typing import Literal

from app.errors import SecretsError
from app.storage.database import Database
from app.storage.repositories.secrets import SealedEndpoint
from app.storage.secrets import SecretBox
from app.storage.unit_of_work import UnitOfWork

_KNOWN_TEXT = "sextant"


@dataclass(slots=True)
class Rotation:
    """Result of a key rotation.

    Attributes:
        answers: Number of cached answers to repeated calls that the newest key encrypts now.
        unreadable: Endpoints with secrets that no present key decrypts, and the names of these
            secrets; they stay unchanged.
        unreadable_answers: Number of undecryptable cached answers; they expire after a day.
        unreadable_webhooks: Ids of webhooks with undecryptable secrets; only new webhooks help.
    """

    endpoints: int = 0
    answers: int = 0
    webhooks: int = 0
    unreadable: list[tuple[SealedEndpoint, tuple[str, ...]]] = field(default_factory=list)
    unreadable_answers: int = 0
    unreadable_webhooks: list[str] = field(default_factory=list)


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
        batch = await uow.secrets.endpoints()
        while batch:
            for cipher in (each for endpoint in batch for each in endpoint.ciphers.values()):
                try:
                    self.box.decrypt(cipher)
                except SecretsError as error:
                    failure = error
                else:
                    return
            batch = await uow.secrets.endpoints(after=batch[-1].id)
        if failure is not None:
            raise failure

    async def rotate(self) -> Rotation:
        """Encrypt all secrets again with the newest key; a key file gets a new key first.

        An interruption at any moment loses nothing: old keys go last, and a second run continues.

        Raises:
            SecretsError: The key file cannot be read or written.
        """
        done = Rotation()
        async with self.database.unit_of_work() as uow:
            await uow.secrets.add_canary(self.box.encrypt(_KNOWN_TEXT))
            await uow.secrets.canary(for_update=True)  # two rotations run one after the other
            self.box.take_new_key()
            await self._renew_endpoints(done)
            await self._renew_answers(done)
            await self._renew_webhooks(done)
            await uow.secrets.replace_canary(self.box.encrypt(_KNOWN_TEXT))
        self.box.forget_old_keys()
        return done

    async def _renew_endpoints(self, done: Rotation) -> None:
        after = ""
        while True:
            async with self.database.unit_of_work() as uow:
                batch = await uow.secrets.endpoints(after=after, for_update=True)
                for endpoint in batch:
                    renewed, unreadable = self._renewed(endpoint.ciphers)
                    if renewed:
                        await uow.secrets.renew_endpoint(endpoint.id, renewed)
                    if unreadable:
                        done.unreadable.append((endpoint, unreadable))
                    else:
                        done.endpoints += 1
            if not batch:
                return
            after = batch[-1].id

    async def _renew_answers(self, done: Rotation) -> None:
        after = ("", "")
        while True:
            async with self.database.unit_of_work() as uow:
                batch = await uow.secrets.answers(after=after)
                for key, cipher in batch:
                    renewed, unreadable = self._renewed({"body": cipher})
                    if renewed:
                        await uow.secrets.renew_answer(key, renewed["body"])
                    done.unreadable_answers += bool(unreadable)
                    done.answers += not unreadable
            if not batch:
                return
            after = batch[-1][0]

    async def _renew_webhooks(self, done: Rotation) -> None:
        async with self.database.unit_of_work() as uow:
            for webhook_id, cipher in await uow.secrets.webhooks():
                renewed, unreadable = self._renewed({"secret": cipher})
                if renewed:
                    await uow.secrets.renew_webhook(webhook_id, renewed["secret"])
                done.unreadable_webhooks += [webhook_id] * bool(unreadable)
                done.webhooks += not unreadable

    def _renewed(self, ciphers: dict[str, bytes]) -> tuple[dict[str, bytes], tuple[str, ...]]:
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
