"""`--project`: in which project a command works, where its key may work in several."""

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Annotated, ParamSpec, TypeVar

import typer

from app.errors import InvalidInputError

P = ParamSpec("P")
R = TypeVar("R")

_OPTION = "project"
_TYPE = Annotated[
    str | None,
    typer.Option(
        envvar="SEXTANT_PROJECT",
        help="Id or name of the project to work in, for keys of all projects and the database of "
        "this machine; by default the key's own, else the default one.",
    ),
]
_chosen: ContextVar[str | None] = ContextVar("chosen project", default=None)


def chosen_project() -> str | None:
    """The project that the present command works in; None where none is named."""
    return _chosen.get()


def takes_project(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command that takes the key of a server the option `--project` as well.

    One that has such a parameter of its own, about projects, stays as it is.
    """
    signature = inspect.signature(command)
    if "server_key" not in signature.parameters or _OPTION in signature.parameters:
        return command

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        named = kwargs.pop(_OPTION, None)
        if named is not None and not (isinstance(named, str) and named.isascii()):
            raise InvalidInputError("--project: name it by its id: a header takes ASCII alone.")
        token = _chosen.set(named or None)
        try:
            return command(*args, **kwargs)
        finally:
            _chosen.reset(token)

    option = inspect.Parameter(
        _OPTION, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_TYPE
    )
    parameters = [*signature.parameters.values(), option]
    # What Typer makes the options of.
    vars(wrapped)["__signature__"] = signature.replace(parameters=parameters)
    wrapped.__annotations__ = {**command.__annotations__, _OPTION: _TYPE}
    return wrapped
