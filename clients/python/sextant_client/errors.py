"""What can go wrong.

SextantError
    ProblemError       the server refused; program against `code`
    UnreachableError   no answer came
    NotSextantError    an answer came, and not as a Sextant server answers
"""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, ValidationError


class SextantError(Exception):
    """Root of everything that a client raises by itself."""


class UnreachableError(SextantError):
    """No answer came, however often it was tried."""


class NotSextantError(SextantError):
    """What answered is no Sextant server, or one whose answers have another shape."""


class FieldProblem(BaseModel):
    """One fault in one place of the request.

    Attributes:
        pointer: JSON pointer into the body, or `/query/...`, `/path/...`.
        detail: What was expected, and what came.
    """

    model_config = ConfigDict(frozen=True)

    pointer: str
    detail: str


class ProblemError(SextantError):
    """A problem that the server answered with (RFC 9457).

    Attributes:
        code: Stable, such as `not_found` or `stale_step`: what to program against.
        status: Of HTTP.
        detail: One sentence for people.
        fields: Faults of the input by place.
        request_id: Under which the server's log tells more.
    """

    def __init__(
        self,
        detail: str,
        *,
        code: str,
        status: int,
        fields: Sequence[FieldProblem] = (),
        request_id: str | None = None,
    ) -> None:
        places = [f"{one.pointer}: {one.detail}" for one in fields] if len(fields) > 1 else []
        super().__init__("\n  ".join([detail, *places]))
        self.code = code
        self.status = status
        self.detail = detail
        self.fields = tuple(fields)
        self.request_id = request_id


class _Body(BaseModel):
    code: str
    status: int
    detail: str
    errors: list[FieldProblem]
    request_id: str | None = None


def problem_of(content: bytes) -> ProblemError | None:
    """The problem that an answer tells of; None where it tells of none."""
    try:
        body = _Body.model_validate_json(content)
    except ValidationError:
        return None
    return ProblemError(
        body.detail,
        code=body.code,
        status=body.status,
        fields=body.errors,
        request_id=body.request_id,
    )
