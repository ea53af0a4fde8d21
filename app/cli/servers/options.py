"""`--server`, `--server-key`, `--json` and `--project`, which all commands on a server have."""

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

P = ParamSpec("P")
R = TypeVar("R")

AskServerOption = Annotated[
    str | None,
    typer.Option(
        envvar="SEXTANT_SERVER",
        help="Ask this Sextant server; by default that of `sextant login`, else the database of "
        "this machine, which is also called `local`.",
    ),
]
ServerOption = Annotated[
    str | None,
    typer.Option(
        envvar="SEXTANT_SERVER",
        help="Use this Sextant server; by default that of `sextant login`, else one of our own, "
        "which is also called `local`.",
    ),
]
ServerKeyOption = Annotated[
    str | None, typer.Option(envvar="SEXTANT_API_KEY", help="API key for --server.")
]
_ProjectOption = Annotated[
    str | None,
    typer.Option(
        envvar="SEXTANT_PROJECT",
        help="Id or name of the project to work in, for keys of all projects and the database of "
        "this machine; by default the key's own, else the default one.",
    ),
]
#: Help of `--json`, where nothing else is said.
SAME = "Write the same as JSON; - for stdout."


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the options of the present command say; None where one is not given.

    Attributes:
        runs: It needs a worker.
        limits: Those that are named, None where as much as there is may be used.
    """

    server: str | None = None
    server_key: str | None = None
    json: str | None = None
    project: str | None = None
    runs: bool = False
    limits: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def target(self) -> Target | None:
        """The server to speak to; None: the database of this machine."""
        return target(self.server, self.server_key)


_NOTHING = Chosen()
_chosen: ContextVar[Chosen] = ContextVar("chosen", default=_NOTHING)


def chosen() -> Chosen:
    """What the present command's options say."""
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
    """Make a function a command on a server, which fails clearly.

    It gets the options that it has not itself. Of a parameter `project` of its own, which is about
    projects, it keeps the meaning.

    Args:
        group: Where it is a command, under its own name or this one; None adds it nowhere.
        name: See `group`.
        json: Help of `--json`; None leaves the option out.
        runs: It needs a server with a worker: one of our own where none is named.
        limits: It takes those of a project or a key.
        code: Exit code where it fails.
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
            except (ValidationError, KeyError) as error:
                if (server := chosen().target) is None:
                    raise  # of our own version, and a fault of ours
                raise unreadable(error, server.url) from None
            finally:
                _chosen.reset(token)

        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in added.items()
        ]
        # What Typer makes the options of.
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
        raise InvalidInputError("--project: name it by its id: a header takes ASCII alone.")
    own = {name: given.get(name) for name in ("server", "server_key", "json")}
    limits = limits_of(**{name: given[name] for name in LIMITS if name in added})
    return Chosen(**own, project=project or None, runs=runs, limits=limits)


def also_json(document: JsonObject) -> bool:
    """Write what was found where `--json` says; whether it is to be shown to people as well."""
    write_json(chosen().json, document)
    return chosen().json != "-"


def tell_list(kind: type[M], found: Sequence[JsonObject], columns: Columns[M]) -> None:
    """Write a list where `--json` says, and show it to people, read as entries of this kind."""
    if also_json({"data": found}):
        show_list(map(kind.model_validate, found), columns)
