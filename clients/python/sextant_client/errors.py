"""What can go wrong.

SextantError
    ProblemError       the server refused; program against `code`
    UnreachableError   no answer came
    NotSextantError    an answer came, and not as a Sextant server answers
      MissingFieldError  a field is read that the answer does not have
"""

from pydantic import BaseModel, ConfigDict, ValidationError


class SextantError(Exception):
    """Root of everything that a client raises by itself."""


class UnreachableError(SextantError):
    """No answer came, however often it was tried."""


class NotSextantError(SextantError):
    """What answered is no Sextant server, or one whose answers have another shape."""


class MissingFieldError(NotSextantError):
    """An answer lacks a field that is read from it.

    Attributes:
        field: Name of the field.
    """

    def __init__(self, field: str) -> None:
        self.field = field
        super().__init__(f"The server's answer has no field {field!r}.")


class FieldProblem(BaseModel):
    """One fault in one place of the request: a JSON pointer, and what was expected there."""

    model_config = ConfigDict(frozen=True)

    pointer: str
    detail: str


class Problem(BaseModel):
    """What RFC 9457 calls a problem, as the server tells it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    code: str
    status: int
    detail: str
    errors: tuple[FieldProblem, ...] = ()
    instance: str = ""
    request_id: str | None = None


class ProblemError(SextantError):
    """The server refused.

    Attributes:
        code: Stable, such as `not_found` or `stale_step`: what to program against.
        status: Of HTTP.
        detail: One sentence for people.
        fields: Faults of the input by place.
        instance: Path of the request.
        request_id: Under which the server's log tells more.
    """

    def __init__(self, problem: Problem) -> None:
        self.code, self.status, self.detail = problem.code, problem.status, problem.detail
        self.fields, self.instance = problem.errors, problem.instance
        self.request_id = problem.request_id
        places = [f"{one.pointer}: {one.detail}" for one in self.fields]
        super().__init__("\n  ".join([self.detail, *(places if len(places) > 1 else [])]))


def problem_of(content: bytes) -> ProblemError | None:
    """The problem that an answer tells of; None where it tells of none."""
    try:
        return ProblemError(Problem.model_validate_json(content))
    except ValidationError:
        return None
