"""`sextant keys` and `projects`: API keys, and projects with their own banks and sessions."""

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from app.cli.servers.connection import asked, listed, path_of, request
from app.cli.servers.options import SAME, also_json, on_server, tell_list
from app.cli.terminal.console import JsonObject, err, fail_clearly, out, when
from app.cli.terminal.fields import option, reading
from app.cli.terminal.options import LIMITS, YesOption, confirm, time_of
from app.records.api_keys import Scope
from sextant_client import AsyncSextant

_STANDARD = [Scope.READ, Scope.RUN, Scope.BANKS_WRITE]

app = typer.Typer(no_args_is_help=True)
projects = typer.Typer(no_args_is_help=True)


def _show_limits(document: JsonObject) -> None:
    for name, value in document["limits"].items():
        out.say(f"{name}  {'-' if value is None else value}")


def _limits_in(body: dict[str, Any]) -> dict[str, float | None]:
    """Limits that the command names; 0 becomes None: no limit."""
    return {name: most or None for name, most in body.get("limits", {}).items()}


@on_server(
    app,
    fields={
        "/project": option(
            str,
            "Id or name of the project whose data the key can access. By default all "
            "projects with the scope admin, else the default project.",
        ),
        "/expires_at": option(
            datetime,
            "Time when the key expires, UTC.",
            "--expires",
            formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
            callback=reading(time_of),
        ),
        **LIMITS,
    },
    names={"/scopes": "--scope"},
)
def create(
    body: dict[str, Any],
    name: Annotated[str, typer.Argument(help="Name of the key, such as its purpose.")],
    scope: Annotated[
        list[Scope] | None,
        typer.Option(help="Scope of the key; may be repeated. By default all scopes but admin."),
    ] = None,
) -> None:
    """Create a key. Its secret is printed once, alone on stdout.

    The limits of a key are within those of its project. Without a limit, or with
    0, the key may use whatever the project leaves.
    """
    body |= {"name": name, "scopes": scope or _STANDARD}
    if limits := _limits_in(body):
        body["limits"] = limits
    key = request("POST", "/v1/api-keys", body)
    err.say(f"Created {key['id']} ({', '.join(key['scopes'])}). The secret is not shown again:")
    out.say(str(key["secret"]))


@on_server(app, "list", json=SAME)
def list_keys() -> None:
    """List all keys, including revoked and expired ones."""
    tell_list(
        listed("/v1/api-keys?order=asc"),
        {
            "id": "id",
            "name": "name",
            "secret": lambda key: f"{key['prefix']}...",
            "scopes": lambda key: ",".join(key["scopes"]),
            "project": lambda key: key["project_id"] or "all",
            "limits": _limits,
            "created": lambda key: when(key["created_at"]),
            "expires": lambda key: when(key["expires_at"]),
            "last used": lambda key: when(key["last_used_at"]),
            "state": _state,
        },
    )


@on_server(app, fields=LIMITS)
def limit(
    body: dict[str, Any],
    key_id: Annotated[str, typer.Argument(help="Id of the key, key_...")],
) -> None:
    """Set limits of a key, and print all its limits.

    0 removes a limit: the key may then use whatever its project leaves. Limits
    that are not given do not change. The limits of a revoked key apply to the
    work that it left running.
    """
    _show_limits(request("PATCH", path_of("api-keys", key_id), {"limits": _limits_in(body)}))


@on_server(app)
def revoke(key_id: Annotated[str, typer.Argument(help="Id of the key, key_...")]) -> None:
    """Revoke a key; it is refused from now on."""
    request("DELETE", path_of("api-keys", key_id))
    err.say(f"Revoked {key_id}.")


@app.command("rotate-secret")
@fail_clearly
def rotate_secret() -> None:
    """Encrypt all stored secrets with a new key, while servers run.

    With SEXTANT_SECRET_KEY=NEW,OLD, everything is encrypted with NEW. Without it,
    the key file in the data directory gets a new key first. Secrets that no key
    can decrypt are listed and left as they are.
    """
    # Imported late: commands that only talk to a server need not wait for these modules.
    from app.cli.terminal.runtime import open_database
    from app.services.secret_keys import Rotation, SecretKeys
    from app.settings import Settings
    from app.storage.secrets import SecretBox

    settings = Settings()
    box = SecretBox(settings)

    async def rotate() -> Rotation:
        async with open_database(settings) as database:
            return await SecretKeys(database, box).rotate()

    done = asyncio.run(rotate())
    out.say(
        f"Encrypted with the newest key: the secrets of {done.endpoints} endpoints and "
        f"{done.webhooks} webhooks, and {done.answers} answers kept for repeated calls."
    )
    for endpoint, names in done.unreadable:
        what = "deleted, its sessions cannot go on" if endpoint.is_deleted else "PATCH it"
        err.say(
            f"Cannot be decrypted with any present key, left as it is: {' and '.join(names)} of "
            f"{endpoint.id} ({endpoint.name or 'unnamed'}; {what})."
        )
    for webhook_id in done.unreadable_webhooks:
        err.say(
            f"Cannot be decrypted with any present key: the secret of {webhook_id} (make another)."
        )
    if done.unreadable_answers:
        err.say(
            f"{done.unreadable_answers} answers kept for repeated calls cannot be decrypted "
            "either; they are deleted after a day."
        )
    in_use = any(not endpoint.is_deleted for endpoint, _ in done.unreadable)
    if in_use or done.unreadable_webhooks:
        err.say(
            "If you have the old key, put it after the new one (SEXTANT_SECRET_KEY=NEW,OLD, or as "
            "another line of the key file) and run this again."
        )
        raise typer.Exit(1)


def _limits(key: JsonObject) -> str:
    own = [f"{name}={most}" for name, most in key["limits"].items() if most is not None]
    return " ".join(own) or "-"


def _state(key: JsonObject) -> str:
    if key["revoked_at"]:
        return "revoked"
    ends = key["expires_at"]
    return "expired" if ends and datetime.fromisoformat(ends) <= datetime.now(UTC) else "active"


@on_server(projects, "create")
def create_project(
    name: Annotated[str, typer.Argument(help="Name of the project.")],
    description: Annotated[str, typer.Option(help="Purpose of the project.")] = "",
) -> None:
    """Create a project. Only its id is printed to stdout."""
    body = {"name": name, "description": description}
    made = request("POST", "/v1/projects", body)
    err.say(f"Created project {made['name']!r}.")
    out.say(str(made["id"]))


@on_server(projects, "limit", fields=LIMITS)
def limit_project(
    body: dict[str, Any],
    project: Annotated[str, typer.Argument(help="Id or name of the project.")],
) -> None:
    """Set limits of a project, and print all its limits.

    0 removes a limit. Limits that are not given do not change.
    """
    path = path_of("projects", project)

    async def set_limits(client: AsyncSextant) -> JsonObject:
        if not (changes := _limits_in(body)):
            return await client.request("GET", path)
        return await client.change(path, lambda found: {"limits": {**found["limits"], **changes}})

    _show_limits(asked(set_limits))


@on_server(projects, "list", json=SAME)
def list_projects() -> None:
    """List all projects."""
    found = listed("/v1/projects?order=asc")
    if also_json({"data": found}):
        for project in found:
            out.say(f"{project['id']}  {project['name']}")


@on_server(projects, "delete")
def delete_project(
    project: Annotated[str, typer.Argument(help="Id or name of the project.")],
    yes: YesOption = False,
    erase: Annotated[
        bool, typer.Option("--erase", help="Also delete everything in the project.")
    ] = False,
) -> None:
    """Delete an empty project with its keys, or with --erase a project with everything in it."""
    confirm(f"Delete the project {project!r}{' with everything in it' * erase}?", yes=yes)
    asked(lambda client: client.remove(path_of("projects", project), erase=erase))
    err.say(f"Deleted project {project!r}.")
