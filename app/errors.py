"""Every error that Sextant raises on purpose.

No HTTP here: `app/api/errors.py` maps classes to status codes.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import ClassVar, Self


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One fault at one place in an input."""

    pointer: str
    """JSON pointer (`/items/3/a`) or `file:row:column`."""
    detail: str

    def __post_init__(self) -> None:
        # A field of a file may have half a surrogate pair in its name; a reply cannot.
        pointer = self.pointer.encode(errors="backslashreplace").decode()
        object.__setattr__(self, "pointer", pointer)


class SextantError(Exception):
    """Root of all errors. `code` is stable and part of the API."""

    code: ClassVar[str] = "internal_error"

    def __init__(self, detail: str, *, problems: Iterable[FieldProblem] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.problems = tuple(problems)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A question that suggests the name most like `name`; empty where none is like it."""
    close = get_close_matches(name[:100], known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


@contextmanager
def faults_within(place: str) -> Iterator[None]:
    """Prefix the pointers of faults in a part of an input with the place of that part.

    Args:
        place: JSON pointer of the part, such as `/endpoint`.
    """
    try:
        yield
    except SextantError as error:
        for problem in error.problems:
            named = rf"(?<!\S){re.escape(problem.pointer)}:"
            error.detail = re.sub(named, lambda at: place + at[0], error.detail)
        error.problems = tuple(
            replace(problem, pointer=place + problem.pointer) for problem in error.problems
        )
        raise


class InvalidInputError(SextantError, ValueError):
    """The input cannot be used."""

    code = "invalid_input"

    @classmethod
    def at(cls, pointer: str, detail: str) -> Self:
        """An error with one fault, at the place `pointer`."""
        return cls(detail, problems=[FieldProblem(pointer, detail)])

    @classmethod
    def of_field(cls, name: str, detail: str) -> Self:
        """An error with one fault, in the field `name` of the request."""
        return cls(f"{name}: {detail}.", problems=[FieldProblem(f"/{name}", detail)])


class ItemBankError(InvalidInputError):
    """Item parameters outside their legal range."""

    code = "invalid_item_bank"


class FileFormatError(InvalidInputError):
    """A file is not in the format that it claims to have."""

    code = "invalid_file"


class LimitExceededError(InvalidInputError):
    """The input takes more memory, time or space than it may."""


class UnknownNameError(InvalidInputError):
    """No strategy of that name is registered."""

    code = "unknown_name"

    def __init__(
        self, kind: str, name: str, known: Iterable[str], *, pointer: str | None = None
    ) -> None:
        names = sorted(known)
        detail = f"Unknown {kind} {name!r}.{did_you_mean(name, names)} Known: {', '.join(names)}."
        super().__init__(detail, problems=[FieldProblem(pointer, detail)] if pointer else ())


class NotFoundError(SextantError):
    """No such resource."""

    code = "not_found"

    def __init__(self, kind: str, identifier: str, known: Sequence[str] = ()) -> None:
        super().__init__(f"There is no {kind} {identifier!r}.{did_you_mean(identifier, known)}")


class ConflictError(SextantError):
    """The request does not fit the resource's present state."""

    code = "conflict"


class AlreadyExistsError(ConflictError):
    """A name or key is taken."""

    code = "already_exists"


class InvalidStateError(ConflictError):
    """The resource is not in a state that allows this."""

    code = "invalid_state"


class StaleStepError(ConflictError):
    """An answer to a step that is closed or was never asked."""

    code = "stale_step"


class IdempotencyMismatchError(ConflictError):
    """The same Idempotency-Key came with another body."""

    code = "idempotency_mismatch"


class IdempotencyInFlightError(ConflictError):
    """The first request with this Idempotency-Key is still being worked on."""

    code = "idempotency_in_flight"


class IdempotencyAnswerLostError(ConflictError):
    """The first request with this Idempotency-Key was carried out; its response is lost."""

    code = "idempotency_answer_lost"


class StorageFullError(ConflictError):
    """The project, or one of its keys, has reached its storage limit."""

    code = "storage_full"


class PreconditionFailedError(ConflictError):
    """If-Match names an older revision."""

    code = "precondition_failed"


class PreconditionRequiredError(ConflictError):
    """If-Match is missing on a change of a mutable resource."""

    code = "precondition_required"


class UnauthenticatedError(SextantError):
    """The key is missing, unknown, revoked or expired."""

    code = "unauthenticated"


class MissingScopeError(SextantError):
    """The key may not do this."""

    code = "missing_scope"


class ScaleMismatchError(SextantError):
    """Thetas are on scales that are not linked."""

    code = "scale_mismatch"


class EstimationError(SextantError):
    """No estimate exists for these answers."""

    code = "no_estimate"


class CalibrationError(SextantError):
    """A response matrix that cannot be calibrated."""

    code = "calibration_failed"


class ExamineeError(SextantError):
    """The endpoint gave no usable answer. Never a wrong answer.

    Attributes:
        retryable: Whether asking again may help.
        retry_after_s: Seconds that the endpoint asked us to wait, if it did.
        status: HTTP status of the endpoint's reply, if there was one.
        attempts: Calls made before the error was final; set by the retry loop.
    """

    code = "endpoint_error"
    retryable: ClassVar[bool] = False

    def __init__(
        self, detail: str, *, retry_after_s: float | None = None, status: int | None = None
    ) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s
        self.status = status
        self.attempts = 1


class UnreachableError(ExamineeError):
    """Connection refused or reset, unknown host, TLS failure."""

    code = "endpoint_unreachable"
    retryable = True


class ExamineeTimeoutError(ExamineeError):
    """No complete answer in time."""

    code = "endpoint_timeout"
    retryable = True


class RateLimitedError(ExamineeError):
    """The endpoint answered 429."""

    code = "endpoint_rate_limited"
    retryable = True


class ColdStartError(ExamineeError):
    """The endpoint answered 503 because its model is still loading."""

    code = "endpoint_cold_start"
    retryable = True


class EndpointFaultError(ExamineeError):
    """The endpoint answered with another 5xx."""

    code = "endpoint_fault"
    retryable = True


class EndpointUnauthorizedError(ExamineeError):
    """The endpoint refused our key (401 or 403)."""

    code = "endpoint_unauthorized"


class EndpointMovedError(ExamineeError):
    """The endpoint has another address or kind than when the work began; no call was made."""

    code = "endpoint_moved"


class EndpointRejectedError(ExamineeError):
    """The endpoint says that the request itself is wrong (400, 404, 422)."""

    code = "endpoint_rejected"


class NoLikelihoodsError(ExamineeError):
    """The endpoint gives no log-probabilities of a prompt."""

    code = "endpoint_no_likelihoods"


class MalformedAnswerError(ExamineeError):
    """The reply is not JSON, or JSON of another shape."""

    code = "endpoint_malformed_answer"
    retryable = True


class AnswerTooLargeError(ExamineeError):
    """The reply is larger than the cap."""

    code = "endpoint_answer_too_large"


class BlockedAddressError(ExamineeError):
    """The outbound guard refused the address."""

    code = "endpoint_address_blocked"


class DownloadError(SextantError):
    """A file of the catalogue could not be fetched; the message says what to do.

    Attributes:
        unreachable: Whether no server answered, most likely because there is no network.
    """

    code = "download_failed"

    def __init__(self, detail: str, *, unreachable: bool = False) -> None:
        super().__init__(detail)
        self.unreachable = unreachable


class ScorerBudgetError(SextantError):
    """The budget in one session of a scorer that calls endpoints is spent."""

    code = "budget_exhausted"


class BudgetSpentError(SextantError):
    """The daily budget of a project, an endpoint or a key is too small for another call.

    Attributes:
        retry_after_s: Seconds until the budget may have room again.
        passes: Whether only calls in progress hold the budget, which has room when they end.
    """

    code = "daily_budget_spent"

    def __init__(self, detail: str, *, retry_after_s: float, passes: bool = False) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s
        self.passes = passes


class BusyError(SextantError):
    """Too much work of this kind is waiting already."""

    code = "busy"


class TooManyStreamsError(SextantError):
    """One key, or its project, has as many open event streams as it may have."""

    code = "too_many_streams"


class TooManyRequestsError(SextantError):
    """More requests come than the limit of the project or the key allows.

    Attributes:
        retry_after_s: Seconds until the next request may come.
    """

    code = "too_many_requests"

    def __init__(self, detail: str, *, retry_after_s: float) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class TooManySessionsError(SextantError):
    """The project or the key has as many open sessions as it may have."""

    code = "too_many_sessions"


class DatabaseUnavailableError(SextantError):
    """Postgres cannot be reached."""

    code = "database_unavailable"


class LeaseLapsedError(SextantError):
    """Work was started several times, and its lease ran out each time without a step."""

    code = "lease_lapsed"


class LeaseLostError(SextantError):
    """Another worker owns this session now."""

    code = "lease_lost"


class SecretsError(SextantError):
    """A stored secret cannot be decrypted, or no key is configured."""

    code = "secrets_error"
