"""Options of all commands on a server, and its errors in the words of the command line."""

import functools
import inspect
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any, ParamSpec, TypeAlias, TypeVar

import typer
from pydantic import ValidationError
from typer.models import ArgumentInfo

import sextant_client
from app.cli.servers.logins import Target, target
from app.cli.terminal.console import (
    USAGE_ERROR,
    Columns,
    JsonObject,
    fail_clearly,
    show_list,
    write_json,
)
from app.cli.terminal.fields import Fields, add_options, parameters_of, with_body
from app.cli.terminal.options import output_option
from app.errors import FieldProblem, InvalidInputError, SextantError, UnauthenticatedError
from app.validation import problems_of
from sextant_client import AsyncSextant, MissingFieldError, ProblemError
from sextant_client.models import Model

P = ParamSpec("P")
R = TypeVar("R")
#: Names a field of a request, given as a pointer, for people.
Word: TypeAlias = Callable[[str], str]

ServerOption = Annotated[
    str | None,
    typer.Option(
        envvar="SEXTANT_SERVER",
        help="Sextant server to use; by default that of `sextant login`, else `local`: the "
        "database of this machine.",
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
_NO_FIELDS: Fields = MappingProxyType({})
_NO_NAMES: Mapping[str, str] = MappingProxyType({})
#: Default help of `--json`.
SAME = "Write the result as JSON; - for stdout."
#: What reading a reply raises that lacks a field, or has null or another type in it. No KeyError:
#: the client gives a missing field its own error, so that missing keys of our own are told apart.
UNREADABLE = (
    MissingFieldError,
    ValidationError,
    ArithmeticError,
    AttributeError,
    IndexError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Values of the running command's options; None for an option that is not given.

    Attributes:
        runs: Whether the command needs a worker.
        names: Pointer to a field of a request -> the option or argument that sets it.
    """

    server: str | None = None
    server_key: str | None = None
    json: str | None = None
    project: str | None = None
    runs: bool = False
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def target(self) -> Target | None:
        """The server to use; None means the database of this machine."""
        return target(self.server, self.server_key)

    def word(self, pointer: str) -> str:
        """The option that sets a field, or what is around it; the pointer where none does."""
        parts = pointer.removeprefix("/query").split("/")
        around = ("/".join(parts[:n]) for n in range(len(parts), 0, -1))
        return next((self.names[one] for one in around if one in self.names), pointer)


_chosen: ContextVar[Chosen] = ContextVar("chosen", default=Chosen())  # noqa: B039  (frozen)


def chosen() -> Chosen:
    """Values of the running command's options."""
    return _chosen.get()


def on_server(
    group: typer.Typer | None = None,
    name: str | None = None,
    *,
    json: str | None = None,
    runs: bool = False,
    fields: Fields = _NO_FIELDS,
    names: Mapping[str, str] = _NO_NAMES,
    code: int = USAGE_ERROR,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function a command on a server, with clear errors.

    Adds the options that the function has no parameters for. A function with a parameter `project`
    of its own gives it another meaning, for commands about projects. Errors of the server name the
    option or argument that sets the field: of `fields`, of `names`, or the function's own.

    Args:
        group: Group that the command joins; None for a command without a group.
        name: Name in the group; by default the function's own name.
        json: Help of `--json`; None leaves the option out.
        runs: Whether it needs a worker; without a named server, this process has one.
        fields: Options that set fields of the request's body, which is the argument `body`.
        names: Pointer to a further field -> what sets it.
        code: Exit code of a failure.
    """
    pointers = parameters_of(fields)
    of_server: dict[str, object] = {
        "server": ServerOption,
        "server_key": ServerKeyOption,
        "json": json and Annotated[str | None, output_option("--json", help=json)],
        "project": _ProjectOption,
    }

    def decorate(command: Callable[P, R]) -> Callable[P, R]:
        own = inspect.signature(command).parameters
        taken = {*own, *pointers}
        added = {name: kind for name, kind in of_server.items() if kind and name not in taken}
        known = {f"/{name}": _shown(one) for name, one in own.items() if name != "body"}
        known |= {pointer: _flag(name) for name, pointer in pointers.items()} | dict(names)
        inner = with_body(fields)(command) if fields else command

        @functools.wraps(command)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            token = _chosen.set(replace(_read(kwargs, added), runs=runs, names=known))
            for name in added:
                kwargs.pop(name, None)
            try:
                return inner(*args, **kwargs)
            except SextantError:
                raise
            except UNREADABLE as error:
                if (server := chosen().target) is None:
                    raise  # the reply came from this version, so the fault is ours
                raise unreadable(error, server.url) from None
            finally:
                _chosen.reset(token)

        add_options(wrapped, inner, added)
        clear = fail_clearly(wrapped, code=code)
        if group is not None:
            group.command(name)(clear)
        return clear

    return decorate


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _shown(parameter: inspect.Parameter) -> str:
    """How people know a parameter of a command: by its flag, or its place."""
    is_argument = any(isinstance(one, ArgumentInfo) for one in parameter.annotation.__metadata__)
    return parameter.name.upper() if is_argument else _flag(parameter.name)


def _read(given: Mapping[str, Any], added: Container[str]) -> Chosen:
    project = given.get("project") if "project" in added else None
    if project is not None and not project.isascii():
        raise InvalidInputError(
            "--project: expected ASCII characters, which an HTTP header can carry: give the "
            "project's id."
        )
    server, key, json = (given.get(name) for name in ("server", "server_key", "json"))
    return Chosen(server=server, server_key=key, json=json, project=project or None)


def also_json(document: JsonObject) -> bool:
    """Write the document to `--json`; returns whether to show it to people as well."""
    write_json(chosen().json, document)
    return chosen().json != "-"


def tell_list(
    found: Sequence[JsonObject], columns: Columns[Any], kind: type[Model] | None = None
) -> None:
    """Write a list to `--json`, and print it for people, with entries parsed as `kind`, if any."""
    if also_json({"data": found}):
        show_list(found if kind is None else map(kind.model_validate, found), columns)


@contextmanager
def in_words(client: AsyncSextant, word: Word | None = None) -> Iterator[None]:
    """Turn the client's errors in the block, except `MissingFieldError`, into `SextantError`.

    Args:
        client: Client of the server.
        word: Names a field of the request; by default after the option that sets it.
    """
    try:
        yield
    except ProblemError as problem:
        raise _worded(problem, client, word or chosen().word) from None
    except MissingFieldError:
        raise  # `on_server` knows whose fault it is
    except sextant_client.SextantError as error:
        raise SextantError(str(error)) from None


def unreadable(error: Exception, url: str) -> SextantError:
    """Error for a reply that lacks a field, or has an invalid one, for this version's client."""
    if isinstance(error, MissingFieldError):
        what = f"/{error.field}: Field required"
    elif not isinstance(error, ValidationError):
        what = f"a field is null or of another type ({type(error).__name__}: {error})"
    else:
        fault, kind = problems_of(error.errors())[0], error.title.replace("_", "")
        what = f"{fault.pointer} of {kind}" if fault.pointer else kind
        what = f"{what}: {fault.detail}"
    return SextantError(
        f"The reply of the Sextant server at {url} cannot be read: {what}. Server and command line "
        f"may be of different versions: compare {url}/healthz with `sextant --version`."
    )


def is_missing(problem: ProblemError) -> bool:
    """Whether the problem is that nothing has the name or id in the path."""
    return problem.code == "not_found" or _missing(problem) is not None


def _worded(problem: ProblemError, client: AsyncSextant, word: Word) -> SextantError:
    if (kind := _missing(problem)) is not None:
        _, _, _, name, *_ = [*problem.instance.split("/"), "", ""]
        return SextantError(f"There is no {kind} {name.partition(':')[0]!r}.")
    detail, server = problem.detail, client.server
    if problem.code == UnauthenticatedError.code:
        if "Authorization" not in server.headers:
            detail = f"The Sextant server at {server.url} asks for an API key."
        detail = f"{detail} Set SEXTANT_API_KEY, or `sextant login {server.url}`."
        if problem.instance == "/v1/api-keys":
            detail += " On the server's machine `--server local` makes keys without one."
    for place in problem.fields:
        detail = detail.replace(f"{place.pointer}:", f"{word(place.pointer)}:")
        if detail.startswith(own := f"{place.pointer[1:]}:"):  # without the slash
            detail = detail.replace(own, f"{word(place.pointer)}:", 1)
    detail = detail.replace("; see errors.", ":")
    problems = [FieldProblem(word(one.pointer), one.detail) for one in problem.fields]
    where = problems[0].pointer if len(problems) == 1 else ""
    if not where.startswith("/") and where not in detail:
        detail = f"{where}: {detail}"
    return SextantError(detail, problems=problems)


def _missing(problem: ProblemError) -> str | None:
    """Kind of the resource that the path names and that is missing; None for another problem."""
    pointers = [place.pointer for place in problem.fields]
    if len(pointers) != 1 or not pointers[0].startswith("/path/"):
        return None
    kind = pointers[0].removeprefix("/path/").removesuffix("_id").replace("_", " ")
    return "API key" if kind == "key" else kind
