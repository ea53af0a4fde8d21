"""Every error that Sextant raises on purpose.

No HTTP here: `app/api/errors.py` maps classes to status codes.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import ClassVar, Self

from typing_extensions import override


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

    @override
    def __init_subclass__(cls, code: str | None = None) -> None:
        cls.code = code or cls.code

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


class InvalidInputError(SextantError, ValueError, code="invalid_input"):
    """The input cannot be used."""

    @classmethod
    def at(cls, pointer: str, detail: str) -> Self:
        """An error with one fault, at the place `pointer`."""
        return cls(detail, problems=[FieldProblem(pointer, detail)])

    @classmethod
    def of_field(cls, name: str, detail: str) -> Self:
        """An error with one fault, in the field `name` of the request."""
        return cls(f"{name}: {detail}.", problems=[FieldProblem(f"/{name}", detail)])


class ItemBankError(InvalidInputError, code="invalid_item_bank"):
    """Item parameters outside their legal range."""


class FileFormatError(InvalidInputError, code="invalid_file"):
    """A file is not in the format that it claims to have."""


class LimitExceededError(InvalidInputError):
    """The input takes more memory, time or space than it may."""


class UnknownNameError(InvalidInputError, code="unknown_name"):
    """No strategy of that name is registered."""

    def __init__(
        self, kind: str, name: str, known: Iterable[str], *, pointer: str | None = None
    ) -> None:
        names = sorted(known)
        detail = f"Unknown {kind} {name!r}.{did_you_mean(name, names)} Known: {', '.join(names)}."
        super().__init__(detail, problems=[FieldProblem(pointer, detail)] if pointer else ())


class NotFoundError(SextantError, code="not_found"):
    """No such resource."""

    def __init__(self, kind: str, identifier: str, known: Sequence[str] = ()) -> None:
        super().__init__(f"There is no {kind} {identifier!r}.{did_you_mean(identifier, known)}")


class ConflictError(SextantError, code="conflict"):
    """The request does not fit the resource's present state."""


class AlreadyExistsError(ConflictError, code="already_exists"):
    """A name or key is taken."""


class InvalidStateError(ConflictError, code="invalid_state"):
    """The resource is not in a state that allows this."""


class StaleStepError(ConflictError, code="stale_step"):
    """An answer to a step that is closed or was never asked."""


class IdempotencyMismatchError(ConflictError, code="idempotency_mismatch"):
    """The same Idempotency-Key came with another body."""


class IdempotencyInFlightError(ConflictError, code="idempotency_in_flight"):
    """The first request with this Idempotency-Key is still being worked on."""


class IdempotencyAnswerLostError(ConflictError, code="idempotency_answer_lost"):
    """The first request with this Idempotency-Key was carried out; its response is lost."""


class StorageFullError(ConflictError, code="storage_full"):
    """The project, or one of its keys, has reached its storage limit."""


class PreconditionFailedError(ConflictError, code="precondition_failed"):
    """If-Match names an older revision."""


class PreconditionRequiredError(ConflictError, code="precondition_required"):
    """If-Match is missing on a change of a mutable resource."""


class UnauthenticatedError(SextantError, code="unauthenticated"):
    """The key is missing, unknown, revoked or expired."""


class MissingScopeError(SextantError, code="missing_scope"):
    """The key may not do this."""


class ScaleMismatchError(SextantError, code="scale_mismatch"):
    """Thetas are on scales that are not linked."""


class EstimationError(SextantError, code="no_estimate"):
    """No estimate exists for these answers."""


class CalibrationError(SextantError, code="calibration_failed"):
    """A response matrix that cannot be calibrated."""


class ExamineeError(SextantError, code="endpoint_error"):
    """The endpoint gave no usable answer. Never a wrong answer.

    Attributes:
        retryable: Whether asking again may help.
        retry_after_s: Seconds that the endpoint asked us to wait, if it did.
        status: HTTP status of the endpoint's reply, if there was one.
        attempts: Calls made before the error was final; set by the retry loop.
        may_cost: Whether any of these calls may be charged; set by the retry loop.
    """

    retryable: ClassVar[bool] = False

    @override
    def __init_subclass__(cls, code: str | None = None, *, retryable: bool = False) -> None:
        super().__init_subclass__(code)
        cls.retryable = cls.retryable or retryable

    def __init__(
        self, detail: str, *, retry_after_s: float | None = None, status: int | None = None
    ) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s
        self.status = status
        self.attempts = 1
        self.may_cost = True


class UnreachableError(ExamineeError, code="endpoint_unreachable", retryable=True):
    """Connection refused or reset, unknown host, TLS failure."""


class ExamineeTimeoutError(ExamineeError, code="endpoint_timeout", retryable=True):
    """No complete answer in time."""


class RateLimitedError(ExamineeError, code="endpoint_rate_limited", retryable=True):
    """The endpoint answered 429."""


class ColdStartError(ExamineeError, code="endpoint_cold_start", retryable=True):
    """The endpoint answered 503 because its model is still loading."""


class EndpointFaultError(ExamineeError, code="endpoint_fault", retryable=True):
    """The endpoint answered with another 5xx."""


class EndpointUnauthorizedError(ExamineeError, code="endpoint_unauthorized"):
    """The endpoint refused our key (401 or 403)."""


class EndpointMovedError(ExamineeError, code="endpoint_moved"):
    """The endpoint has another address or kind than when the work began; no call was made."""


class EndpointRejectedError(ExamineeError, code="endpoint_rejected"):
    """The endpoint says that the request itself is wrong (400, 404, 422)."""


class NoLikelihoodsError(ExamineeError, code="endpoint_no_likelihoods"):
    """The endpoint gives no log-probabilities of a prompt."""


class MalformedAnswerError(ExamineeError, code="endpoint_malformed_answer", retryable=True):
    """The reply is not JSON, or JSON of another shape."""


class AnswerTooLargeError(ExamineeError, code="endpoint_answer_too_large"):
    """The reply is larger than the cap."""


class BlockedAddressError(ExamineeError, code="endpoint_address_blocked"):
    """The outbound guard refused the address."""


class DownloadError(SextantError, code="download_failed"):
    """A file of the catalogue could not be fetched; the message says what to do.

    Attributes:
        unreachable: Whether no server answered, most likely because there is no network.
    """

    def __init__(self, detail: str, *, unreachable: bool = False) -> None:
        super().__init__(detail)
        self.unreachable = unreachable


class ScorerBudgetError(SextantError, code="budget_exhausted"):
    """The budget in one session of a scorer that calls endpoints is spent."""


class BudgetSpentError(SextantError, code="daily_budget_spent"):
    """The daily budget of a project, an endpoint or a key is too small for another call.

    Attributes:
        retry_after_s: Seconds until the budget may have room again.
        passes: Whether only calls in progress hold the budget, which has room when they end.
    """

    def __init__(self, detail: str, *, retry_after_s: float, passes: bool = False) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s
        self.passes = passes


class BusyError(SextantError, code="busy"):
    """Too much work of this kind is waiting already."""


class TooManyStreamsError(SextantError, code="too_many_streams"):
    """One key, or its project, has as many open event streams as it may have."""


class TooManyRequestsError(SextantError, code="too_many_requests"):
    """More requests come than the limit of the project or the key allows.

    Attributes:
        retry_after_s: Seconds until the next request may come.
    """

    def __init__(self, detail: str, *, retry_after_s: float) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class TooManySessionsError(SextantError, code="too_many_sessions"):
    """The project or the key has as many open sessions as it may have."""


class DatabaseUnavailableError(SextantError, code="database_unavailable"):
    """Postgres cannot be reached."""


class LeaseLapsedError(SextantError, code="lease_lapsed"):
    """Work was started several times, and its lease ran out each time without a step."""


class LeaseLostError(SextantError, code="lease_lost"):
    """Another worker owns this session now."""


class SecretsError(SextantError, code="secrets_error"):
    """A stored secret cannot be decrypted, or no key is configured."""
