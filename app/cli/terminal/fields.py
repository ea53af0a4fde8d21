"""Options that set fields of an object, such as the body of a request."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias, TypeVar

import typer

from app.errors import InvalidInputError

T = TypeVar("T")
#: Options that set fields of a request's body: JSON pointer to the field -> annotation for Typer.
#: A field that is not given is left out, and the server's default applies.
Fields: TypeAlias = Mapping[str, object]


def option(kind: Any, help: str, *flag: str, **more: Any) -> object:  # noqa: A002 (as Typer's)
    """An option that may be left out, for `Fields`; by default it has the field's name."""
    return Annotated[kind | None, typer.Option(*flag, help=help, **more)]


def reading(read: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """A callback of an option that replaces its value; what `read` refuses is a wrong value."""

    def callback(value: Any) -> T | None:
        try:
            return None if value is None else read(value)
        except InvalidInputError as error:
            raise typer.BadParameter(error.detail) from None

    return callback


def below(prefix: str, fields: Mapping[str, T], *names: str) -> dict[str, T]:
    """What is at the pointers that begin with `names`, or at all, moved to below `prefix`."""
    return {
        f"{prefix}{pointer}": value
        for pointer, value in fields.items()
        if pointer.startswith(names or "/")
    }


def _name_of(pointer: str, option: Any) -> str:
    """Name of the parameter for a field: that of its flag, by default of the field."""
    flag = option.__metadata__[0].default  # where Typer keeps the first name in an annotation
    name = flag if isinstance(flag, str) else pointer.rpartition("/")[2]
    return name.partition("/")[0].lstrip("-").replace("-", "_")


def _body_of(given: Mapping[str, Any], parameters: Mapping[str, str]) -> dict[str, Any]:
    """The object with the given fields, each at its pointer."""
    whole: dict[str, Any] = {}
    for name, pointer in parameters.items():
        if given[name] not in (None, []):
            *way, last = pointer[1:].split("/")
            inside = whole
            for part in way:
                inside = inside.setdefault(part, {})
            inside[last] = given[name]
    return whole


def parameters_of(fields: Fields) -> dict[str, str]:
    """Name of the parameter for each field -> pointer to the field."""
    return {_name_of(pointer, option): pointer for pointer, option in fields.items()}


def add_options(
    wrapped: Callable[..., Any], command: Callable[..., Any], added: Mapping[str, object]
) -> None:
    """Give a wrapped command, as Typer sees it, options by name, instead of a parameter `body`."""
    signature = inspect.signature(command)
    own = [one for one in signature.parameters.values() if one.name != "body"]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in added.items()
    ]
    vars(wrapped)["__signature__"] = signature.replace(parameters=[*own, *more])
    wrapped.__annotations__ = {**command.__annotations__, **added}


def with_body(fields: Fields) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Give a command the options of these fields, and their values as its argument `body`."""
    parameters = parameters_of(fields)

    def decorate(command: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(command)
        def wrapped(**given: Any) -> T:
            own = {name: value for name, value in given.items() if name not in parameters}
            return command(**own, body=_body_of(given, parameters))

        add_options(wrapped, command, {name: fields[at] for name, at in parameters.items()})
        return wrapped

    return decorate
