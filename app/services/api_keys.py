"""Creates, lists, revokes and authenticates API keys, and browser logins that stand for keys."""

import contextlib
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from app.acting import DEFAULT_PROJECT
from app.errors import (
    DatabaseUnavailableError,
    FieldProblem,
    InvalidInputError,
    NotFoundError,
    UnauthenticatedError,
)
from app.records.api_keys import ApiKey, Scope
from app.records.fields import not_none
from app.records.projects import DaySpend, Limits
from app.services.waiting import Recent
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.paging import Page, PageRequest
from app.storage.unit_of_work import UnitOfWork

SECRET_PREFIX = "sxt_"  # noqa: S105 (the part that all keys share)
_SECRET_BYTES = 32
_SHOWN_CHARACTERS = 8
_LONGEST_NAME = 200
#: Seconds for which a seen key is not looked up again. A client that polls causes no second
#: look-up, and a key that another process revokes is soon refused.
_TRUSTED_S = 1.0
#: Least time between two notes that a key is used.
_USE_NOTED_EVERY = timedelta(minutes=1)


class ApiKeyService:
    """Issues and authenticates keys. A secret is shown once; only its hash is stored.

    Raises:
        NotFoundError: There is no key of a given id; true of all methods.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._trusted = Recent(self._looked_up, _TRUSTED_S)

    async def create(
        self,
        *,
        name: str,
        scopes: Iterable[str],
        expires_at: datetime | None = None,
        limits: Limits | None = None,
        project_id: str | None = None,
    ) -> tuple[ApiKey, str]:
        """Create a key.

        Without `project_id`, a key with the scope `admin` reaches any project, and another one the
        default project.

        Returns:
            The key and its secret, which cannot be shown again.

        Raises:
            InvalidInputError: The name is empty or too long, there are no scopes or unknown ones,
                the expiry is past or has no time zone, or the key cannot have the limits.
            ConflictError: There is no such project (from the unit of work).
        """
        granted, problems = _checked(name, list(scopes), expires_at)
        if problems:
            raise InvalidInputError(
                "The key cannot be made: "
                + "; ".join(f"{problem.pointer[1:]}: {problem.detail}" for problem in problems),
                problems=problems,
            )
        if project_id is None and Scope.ADMIN not in granted:
            project_id = DEFAULT_PROJECT
        token = secrets.token_urlsafe(_SECRET_BYTES)
        secret = SECRET_PREFIX + token
        limits = limits or Limits()
        async with self._database.unit_of_work() as uow:
            await _require_useful(uow, limits, granted, project_id)
            key = await uow.api_keys.add(
                key_id=new_id("key"),
                project_id=project_id,
                name=name,
                prefix=SECRET_PREFIX + token[:_SHOWN_CHARACTERS],
                secret_hash=_hash(secret),
                scopes=granted,
                expires_at=expires_at,
                limits=limits,
            )
        return key, secret

    async def limit(
        self, key_id: str, changes: Mapping[str, Any], *, project_id: str | None = None
    ) -> ApiKey:
        """Change the limits of a key; those of a revoked key hold for the work it left running.

        `changes` are new limits by name, None to remove a limit; other limits stay. The key must
        belong to `project_id`, if this is given.

        Raises:
            InvalidInputError: The key cannot have these limits.
        """
        async with self._database.unit_of_work() as uow:
            key = await uow.api_keys.find(key_id, project_id=project_id, for_update=True)
            if not changes:
                return key
            await _require_useful(uow, Limits(**changes), key.scopes, key.project_id)
            limits = replace(key.limits, **changes)
            await uow.api_keys.set_limits(key_id, limits)
        self._trusted.forget(lambda known: known.id == key_id)
        return replace(key, limits=limits)

    async def spend(
        self, key_id: str, *, project_id: str | None = None
    ) -> tuple[ApiKey, DaySpend, int]:
        """A key, the part of today's budgets that its calls used, and the bytes that it stores."""
        async with self._database.reading() as uow:
            key = await uow.api_keys.find(key_id, project_id=project_id)
            today = await uow.spend.today(key.id)
            if key.project_id is None:
                return key, today, 0
            return key, today, await uow.projects.stored_bytes(key.project_id, key.id)

    async def page(self, request: PageRequest, *, project_id: str | None = None) -> Page[ApiKey]:
        """One page of the keys, including revoked and expired ones; optionally of one project."""
        async with self._database.unit_of_work() as uow:
            return await uow.api_keys.page(request, project_id=project_id)

    async def revoke(self, key_id: str, *, project_id: str | None = None) -> ApiKey:
        """Revoke a key from now on. Revoking it again changes nothing."""
        async with self._database.unit_of_work() as uow:
            key = await uow.api_keys.revoke(key_id, project_id=project_id)
            if key is None:  # nothing changed, so the audit trail gets no entry
                raise NotFoundError("API key", key_id)
        self._trusted.forget(lambda known: known.id == key_id)
        return key

    async def authenticate(self, secret: str) -> ApiKey:
        """The key that has this secret.

        Raises:
            UnauthenticatedError: No key has it, or the key is revoked or expired.
        """
        key = await self._trusted.get(_hash(secret))
        require_active(key)
        return key

    async def _looked_up(self, presented: str) -> ApiKey:
        async with self._database.reading() as uow:
            found = await uow.api_keys.by_secret_hash(presented)
        if found is None or not hmac.compare_digest(found[1], presented):
            raise UnauthenticatedError("The API key is not known here.")
        require_active(found[0])
        await self.note_use(found[0])
        return found[0]

    async def note_use(self, key: ApiKey) -> None:
        """Note at most once a minute that a key is used; an absent database is no error."""
        now = datetime.now(UTC)
        if key.last_used_at is not None and now - key.last_used_at < _USE_NOTED_EVERY:
            return
        with contextlib.suppress(DatabaseUnavailableError):
            async with self._database.unit_of_work() as uow:
                await uow.api_keys.note_use(key.id, every=_USE_NOTED_EVERY)


def require_active(key: ApiKey) -> None:
    """Refuse a key that cannot be used any more.

    Raises:
        UnauthenticatedError: The key is revoked or expired.
    """
    if key.revoked_at is not None:
        raise UnauthenticatedError(f"The API key {key.prefix}... was revoked.")
    if key.expires_at is not None and key.expires_at <= datetime.now(UTC):
        raise UnauthenticatedError(f"The API key {key.prefix}... has expired.")


async def _require_useful(
    uow: UnitOfWork, limits: Limits, scopes: Iterable[Scope], project_id: str | None
) -> None:
    """Refuse limits that would have no effect."""
    wanted = not_none(limits)
    if not wanted:
        return
    if Scope.ADMIN in scopes or project_id is None:
        raise InvalidInputError(
            "A key with the scope admin has no limits of its own: it makes and changes keys.",
            problems=[FieldProblem("/limits", "expected none for a key with the scope admin")],
        )
    project = await uow.projects.find(project_id)
    problems = [
        FieldProblem(f"/limits/{name}", f"expected at most {most:,}, got {wanted[name]:,}")
        for name, most in not_none(project.limits).items()
        if wanted.get(name, most) > most
    ]
    if problems:
        raise InvalidInputError(
            f"The limits of a key cannot exceed those of its project {project.name!r}: "
            + "; ".join(f"{one.pointer[len('/limits/') :]}: {one.detail}" for one in problems),
            problems=problems,
        )


def _hash(secret: str) -> str:
    # A secret of 256 random bits cannot be guessed, so it needs no slow hash.
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


def _checked(
    name: str, scopes: list[str], expires_at: datetime | None
) -> tuple[list[Scope], list[FieldProblem]]:
    problems = []
    if not 1 <= len(name.strip()) <= _LONGEST_NAME:
        problems.append(
            FieldProblem("/name", f"expected 1 to {_LONGEST_NAME} characters, got {name!r:.40}")
        )
    unknown = [scope for scope in scopes if scope not in list(Scope)]
    if unknown or not scopes:
        got = ", ".join(unknown) if unknown else "none"
        problems.append(FieldProblem("/scopes", f"expected some of {', '.join(Scope)}; got {got}"))
    if expires_at is not None and expires_at.tzinfo is None:
        problems.append(FieldProblem("/expires_at", f"expected a time zone, got {expires_at}"))
    elif expires_at is not None and expires_at <= datetime.now(UTC):
        problems.append(
            FieldProblem("/expires_at", f"expected a time in the future, got {expires_at}")
        )
    return [Scope(scope) for scope in scopes if scope not in unknown], problems


#: How long a browser stays logged in; the key may end sooner.
LASTS = timedelta(days=7)
_TOKEN_BYTES = 32


@dataclass(frozen=True, eq=False)
class Logins:
    """Opens, authenticates and ends browser logins. Only the hash of a token is stored."""

    database: Database
    api_keys: ApiKeyService

    async def open(self, secret: str) -> str:
        """Open a login with the secret of a key; its token cannot be shown again.

        Raises:
            UnauthenticatedError: The key is unknown, revoked or expired.
        """
        key = await self.api_keys.authenticate(secret)
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        async with self.database.unit_of_work() as uow:
            await uow.logins.add(_hash(token), key_id=key.id, expires_at=datetime.now(UTC) + LASTS)
        return token

    async def key_of(self, token: str) -> ApiKey:
        """The key that a login stands for.

        Raises:
            UnauthenticatedError: The login is unknown or ended, or its key revoked or expired.
        """
        async with self.database.reading() as uow:
            key = await uow.logins.key_of(_hash(token))
        if key is None:
            raise UnauthenticatedError(
                "You are not logged in, or your login has ended: log in again."
            )
        require_active(key)
        await self.api_keys.note_use(key)
        return key

    async def close(self, token: str) -> None:
        """End a login, wherever its token was copied to."""
        async with self.database.unit_of_work() as uow:
            await uow.logins.remove(_hash(token))
