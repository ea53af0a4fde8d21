"""Errors of the client.

SextantError
    ProblemError       the server refused; program against `code`
    UnreachableError   no answer came
    NotSextantError    an answer came, and not as a Sextant server answers
      MissingFieldError  a field is read that the answer does not have
"""

from pydantic import BaseModel, ConfigDict, ValidationError


class SextantError(Exception):
    """Base of all errors that a client raises itself."""


class UnreachableError(SextantError):
    """No answer came, in any of the attempts."""


class NotSextantError(SextantError):
    """The answer is not from a Sextant server, or from one with another format."""


class MissingFieldError(NotSextantError):
    """An answer lacks a field that is read from it.

    Attributes:
        field: Name of the field.
    """

    def __init__(self, field: str) -> None:
        self.field = field
        super().__init__(f"The server's answer has no field {field!r}.")


class FieldProblem(BaseModel):
    """One error in the request: a JSON pointer, and what was expected there."""

    model_config = ConfigDict(frozen=True)

    pointer: str
    detail: str


class Problem(BaseModel):
    """Problem details of RFC 9457, as the server sends them."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    code: str
    status: int
    detail: str
    errors: tuple[FieldProblem, ...] = ()
    instance: str = ""
    request_id: str | None = None


class ProblemError(SextantError):
    """The server refused the request.

    Attributes:
        code: Stable code to program against, such as `not_found` or `stale_step`.
        status: HTTP status.
        detail: Description in one sentence.
        fields: Errors of the input, by place.
        instance: Path of the request.
        request_id: Id of the request in the server's log.
    """

    def __init__(self, problem: Problem) -> None:
        self.code, self.status, self.detail = problem.code, problem.status, problem.detail
        self.fields, self.instance = problem.errors, problem.instance
        self.request_id = problem.request_id
        places = [f"{one.pointer}: {one.detail}" for one in self.fields]
        super().__init__("\n  ".join([self.detail, *(places if len(places) > 1 else [])]))


def problem_of(content: bytes) -> ProblemError | None:
    """The problem in an answer; None if there is none."""
    try:
        return ProblemError(Problem.model_validate_json(content))
    except ValidationError:
        return None
