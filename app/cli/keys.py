"""`sextant keys`: who may call the API, and the key that encrypts secrets at rest."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, TypeVar

import typer

from app.cli.console import err, fail_clearly, out
from app.cli.database import on_database
from app.cli.tables import show_table
from app.records.api_keys import ApiKey, Scope
from app.services.api_keys import ApiKeyService
from app.services.projects import ProjectService
from app.services.secret_keys import SecretKeys
from app.settings import Settings
from app.storage.database import Database
from app.storage.paging import PageRequest
from app.storage.secrets import SecretBox

T = TypeVar("T")

_COLUMNS = ("id", "name", "secret", "scopes", "project", "created", "expires", "state")
_PAGE = 100
_STANDARD = [Scope.READ, Scope.RUN, Scope.BANKS_WRITE]

app = typer.Typer(
    no_args_is_help=True,
    help="Create, list and revoke API keys; rotate the secret key.",
)


@app.command()
@fail_clearly
def create(
    name: Annotated[str, typer.Argument(help="What the key is for.")],
    scope: Annotated[
        list[Scope] | None,
        typer.Option(help="What it may do; give it once for each scope. All but admin if absent."),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(
            help="Id or name of the project whose data it reaches. Absent: all of them with the "
            "scope admin, else the default one."
        ),
    ] = None,
    expires: Annotated[
        datetime | None,
        typer.Option(help="When it ends, UTC.", formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]),
    ] = None,
) -> None:
    """Create a key. Its secret is printed once, alone on stdout."""
    ends = expires.replace(tzinfo=UTC) if expires else None

    async def make(database: Database) -> tuple[ApiKey, str]:
        return await ApiKeyService(database).create(
            name=name,
            scopes=scope or _STANDARD,
            expires_at=ends,
            project_id=project and (await ProjectService(database).find(project)).id,
        )

    key, secret = on_database(Settings(), make)
    err.print(
        f"Created {key.id} ({', '.join(sorted(key.scopes))}). The secret is not shown again:",
        markup=False,
        soft_wrap=True,
    )
    out.print(secret, markup=False, soft_wrap=True)


@app.command("list")
@fail_clearly
def list_keys() -> None:
    """List all keys, revoked and expired ones too."""
    now = datetime.now(UTC)
    rows = []
    for key in _with_service(_all):
        state = "revoked" if key.revoked_at else "active" if key.active(now) else "expired"
        scopes = ",".join(sorted(key.scopes))
        ends = _shown(key.expires_at) if key.expires_at else "-"
        made = _shown(key.created_at)
        whose = key.project_id or "all"
        rows.append((key.id, key.name, f"{key.prefix}...", scopes, whose, made, ends, state))
    show_table(_COLUMNS, rows)


@app.command()
@fail_clearly
def revoke(key_id: Annotated[str, typer.Argument(help="Id of the key, key_...")]) -> None:
    """Revoke a key: it is refused from now on."""
    key = _with_service(lambda keys: keys.revoke(key_id))
    err.print(f"Revoked {key.id} ({key.name}).", markup=False, soft_wrap=True)


@app.command("rotate-secret")
@fail_clearly
def rotate_secret() -> None:
    """Encrypt all stored secrets anew, while servers run.

    With SEXTANT_SECRET_KEY=NEW,OLD everything is encrypted with NEW. Without it the key file in
    the data directory gets a new key first. What no key opens is listed and left as it is.
    """
    settings = Settings()
    box = SecretBox(settings)
    done = on_database(settings, lambda database: SecretKeys(database, box).rotate(), connections=2)
    out.print(
        f"Encrypted with the newest key: the secrets of {done.endpoints} endpoints and "
        f"{done.answers} answers kept for repeated calls.",
        soft_wrap=True,
    )
    for endpoint, names in done.unreadable:
        what = "deleted, its sessions cannot go on" if endpoint.is_deleted else "PATCH it"
        err.print(
            f"Not readable with any present key, left as it is: {' and '.join(names)} of "
            f"{endpoint.id} ({endpoint.name or 'unnamed'}; {what}).",
            soft_wrap=True,
        )
    if done.unreadable_answers:
        err.print(
            f"{done.unreadable_answers} answers kept for repeated calls are not readable either; "
            "they are forgotten after a day.",
            soft_wrap=True,
        )
    if any(not endpoint.is_deleted for endpoint, _ in done.unreadable):
        err.print(
            "If you have the old key, put it after the new one (SEXTANT_SECRET_KEY=NEW,OLD, or as "
            "another line of the key file) and run this again.",
            soft_wrap=True,
        )
        raise typer.Exit(1)


async def _all(keys: ApiKeyService) -> list[ApiKey]:
    found: list[ApiKey] = []
    after = None
    while True:
        page = await keys.page(PageRequest(limit=_PAGE, after=after, descending=False))
        found += page.items
        if not page.has_more:
            return found
        after = found[-1].id


def _with_service(use: Callable[[ApiKeyService], Awaitable[T]]) -> T:
    return on_database(Settings(), lambda database: use(ApiKeyService(database)))


def _shown(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%MZ}"
