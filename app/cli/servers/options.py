"""Options of all commands on a server: `--server`, `--server-key`, `--json` and `--project`."""

import functools
import inspect
from collections.abc import Callable, Container, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Annotated, Any, ParamSpec, TypeVar

import typer
from pydantic import ValidationError

from app.cli.servers.logins import Target, target
from app.cli.servers.problems import unreadable
from app.cli.terminal.console import USAGE_ERROR, JsonObject, fail_clearly, write_json
from app.cli.terminal.options import LIMITS, limits_of
from app.cli.terminal.tables import Columns, M, show_list
from app.errors import InvalidInputError
from sextant_client import MissingFieldError

P = ParamSpec("P")
R = TypeVar("R")

AskServerOption = Annotated[
    str | None,
    typer.Option(
        envvar="SEXTANT_SERVER",
        help="Sextant server to use; by default that of `sextant login`, else `local`: the "
        "database of this machine.",
    ),
]
ServerOption = Annotated[
    str | None,
    typer.Option(
        envvar="SEXTANT_SERVER",
        help="Sextant server to use; by default that of `sextant login`, else `local`: a server "
        "of its own for this command.",
    ),
]
ServerKeyOption = Annotated[
    str | None, typer.Option(envvar="SEXTANT_API_KEY", help="API key for --server.")
]
_ProjectOption = Annotated[
    str | None,
    typer.Option(
        envvar="SEXTANT_PROJECT",
        help="Id or name of the project, for keys of all projects and for the database of this "
        "machine; by default the project of the key, else the default one.",
    ),
]
#: Default help of `--json`.
SAME = "Write the result as JSON; - for stdout."


@dataclass(frozen=True, slots=True)
class Chosen:
    """Values of the running command's options; None for an option that is not given.

    Attributes:
        runs: Whether the command needs a worker.
        limits: Limits that the command names; None as value means no limit.
    """

    server: str | None = None
    server_key: str | None = None
    json: str | None = None
    project: str | None = None
    runs: bool = False
    limits: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def target(self) -> Target | None:
        """The server to use; None means the database of this machine."""
        return target(self.server, self.server_key)


_NOTHING = Chosen()
_chosen: ContextVar[Chosen] = ContextVar("chosen", default=_NOTHING)


def chosen() -> Chosen:
    """Values of the running command's options."""
    return _chosen.get()


def on_server(
    group: typer.Typer | None = None,
    name: str | None = None,
    *,
    json: str | None = None,
    runs: bool = False,
    limits: bool = False,
    code: int = USAGE_ERROR,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function a command on a server, with clear errors.

    Adds the options that the function has no parameters for. A function with a parameter `project`
    of its own gives it another meaning, for commands about projects.

    Args:
        group: Group that the command joins; None for a command without a group.
        name: Name in the group; by default the function's own name.
        json: Help of `--json`; None leaves the option out.
        runs: Whether it needs a worker; without a named server, this process runs one.
        limits: Whether it takes the limits of a project or a key.
        code: Exit code of a failure.
    """
    options: dict[str, object] = {
        **(LIMITS if limits else {}),
        "server": ServerOption if runs else AskServerOption,
        "server_key": ServerKeyOption,
        "json": json and Annotated[str | None, typer.Option("--json", help=json)],
        "project": _ProjectOption,
    }

    def decorate(command: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(command)
        added = {n: kind for n, kind in options.items() if kind and n not in signature.parameters}

        @functools.wraps(command)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            token = _chosen.set(_read(kwargs, added, runs=runs))
            for name in added:
                kwargs.pop(name, None)
            try:
                return command(*args, **kwargs)
            except (ValidationError, MissingFieldError) as error:
                if (server := chosen().target) is None:
                    raise  # the reply came from this version, so the fault is ours
                raise unreadable(error, server.url) from None
            finally:
                _chosen.reset(token)

        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in added.items()
        ]
        # Typer makes the options from this signature.
        vars(wrapped)["__signature__"] = signature.replace(
            parameters=[*signature.parameters.values(), *more]
        )
        wrapped.__annotations__ = command.__annotations__ | added
        clear = fail_clearly(wrapped, code=code)
        if group is not None:
            group.command(name)(clear)
        return clear

    return decorate


def _read(given: Mapping[str, Any], added: Container[str], *, runs: bool) -> Chosen:
    project = given.get("project") if "project" in added else None
    if project is not None and not project.isascii():
        raise InvalidInputError(
            "--project: expected ASCII characters, which an HTTP header can carry: give the "
            "project's id."
        )
    own = {name: given.get(name) for name in ("server", "server_key", "json")}
    limits = limits_of(**{name: given[name] for name in LIMITS if name in added})
    return Chosen(**own, project=project or None, runs=runs, limits=limits)


def also_json(document: JsonObject) -> bool:
    """Write the document to `--json`; returns whether to show it to people as well."""
    write_json(chosen().json, document)
    return chosen().json != "-"


def tell_list(kind: type[M], found: Sequence[JsonObject], columns: Columns[M]) -> None:
    """Write a list to `--json`, and print it for people, with entries parsed as `kind`."""
    if also_json({"data": found}):
        show_list(map(kind.model_validate, found), columns)
