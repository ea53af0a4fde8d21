"""Errors of a server in the words of the command line."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pydantic import ValidationError

import sextant_client
from app.errors import FieldProblem, SextantError, UnauthenticatedError
from app.validation import problems_of
from sextant_client import AsyncSextant, MissingFieldError, ProblemError


@contextmanager
def in_words(client: AsyncSextant, options: Mapping[str, str]) -> Iterator[None]:
    """Turn the client's errors in the block into errors of commands.

    Args:
        client: Client of the server.
        options: Pointer to a field of the request body -> the option that sets it.

    Raises:
        SextantError: Takes the place of each error of the client, except `MissingFieldError`.
    """
    try:
        yield
    except ProblemError as problem:
        raise _worded(problem, client, options) from None
    except MissingFieldError:
        raise  # `on_server` knows whose fault it is
    except sextant_client.SextantError as error:
        raise SextantError(str(error)) from None


def unreadable(error: ValidationError | MissingFieldError, url: str) -> SextantError:
    """Error for a reply that lacks a field, or has an invalid one, for this version's client."""
    if isinstance(error, MissingFieldError):
        what = f"/{error.field}: Field required"
    else:
        fault, kind = problems_of(error.errors())[0], error.title.replace("_", "")
        what = f"{fault.pointer} of {kind}" if fault.pointer else kind
        what = f"{what}: {fault.detail}"
    return SextantError(
        f"The reply of the Sextant server at {url} cannot be read: {what}. Server and command line "
        f"may be of different versions: compare {url}/healthz with `sextant --version`."
    )


def alike(*fields: str) -> dict[str, str]:
    """Pointer to each field -> the option with the field's name."""
    return {f"/{field}": f"--{field.replace('_', '-')}" for field in fields}


def is_missing(problem: ProblemError) -> bool:
    """Whether the problem is that nothing has the name or id in the path."""
    return problem.code == "not_found" or _missing(problem) is not None


def _worded(
    problem: ProblemError, client: AsyncSextant, options: Mapping[str, str]
) -> SextantError:
    if (kind := _missing(problem)) is not None:
        _, _, _, name, *_ = [*problem.instance.split("/"), "", ""]
        return SextantError(f"There is no {kind} {name.partition(':')[0]!r}.")
    detail, server = problem.detail, client.server
    if problem.code == UnauthenticatedError.code:
        if "Authorization" not in server.headers:
            detail = f"The Sextant server at {server.url} asks for an API key."
        detail = f"{detail} Set SEXTANT_API_KEY, or `sextant login {server.url}`."
    for place in problem.fields:
        detail = detail.replace(f"{place.pointer}:", f"{option_of(place.pointer, options)}:")
    detail = detail.replace("; see errors.", ":")
    problems = [FieldProblem(option_of(one.pointer, options), one.detail) for one in problem.fields]
    return SextantError(detail, problems=problems)


def _missing(problem: ProblemError) -> str | None:
    """Kind of the resource that the path names and that is missing; None for another problem."""
    pointers = [place.pointer for place in problem.fields]
    if len(pointers) != 1 or not pointers[0].startswith("/path/"):
        return None
    kind = pointers[0].removeprefix("/path/").removesuffix("_id").replace("_", " ")
    return "API key" if kind == "key" else kind


def option_of(pointer: str, options: Mapping[str, str]) -> str:
    """The option that sets a field, or what is around it; the pointer itself where none does."""
    around = pointer
    while around:
        if around in options:
            return options[around]
        around = around.rpartition("/")[0]
    return pointer
