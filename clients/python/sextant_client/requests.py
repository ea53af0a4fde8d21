"""Requests as values, and the retries of failed ones; nothing here waits or sends.

An operation is a `Flow`: it yields requests and pauses, receives their outcomes, and returns its
result. `client.py` runs flows, synchronously or with asyncio.
"""

import math
import os
import random
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, Protocol, Self, TypeAlias, TypeVar

import httpx2
from pydantic import ValidationError

from sextant_client.errors import (
    FieldProblem,
    NotSextantError,
    Problem,
    ProblemError,
    UnreachableError,
    problem_of,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
Param: TypeAlias = str | int | float | bool | None

#: Statuses after which the same request may succeed; 502 and 504 are a proxy's.
_AGAIN: Final = frozenset({429, 502, 503, 504})
_NO_ANSWER = "a proxy in front of it got no answer in time."
#: Meaning of statuses that a proxy sends in the server's place.
_PROXY_FAULTS: Final = {
    413: "a proxy in front of it refuses a request of this size.",
    502: _NO_ANSWER,
    503: _NO_ANSWER,
    504: _NO_ANSWER,
}
#: The first call with this Idempotency-Key is still being worked on.
_IN_FLIGHT: Final = "idempotency_in_flight"
#: Seconds before the second attempt, doubled for each further one up to the last; and the most that
#: a server may ask to be waited for.
_FIRST_PAUSE_S: Final = 0.25
_LAST_PAUSE_S: Final = 8.0
_LONGEST_PAUSE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """One call of the API, and how its answer is read.

    A POST has an Idempotency-Key, so that it can be sent again and still creates only once.

    Attributes:
        method: HTTP method.
        path: Path after the server's address, with `/v1`.
        read: Reads the result from a successful answer.
        params: Query parameters; those that are None are left out.
        json: Body of the request.
        headers: Headers in addition to those of every request.
        key: Idempotency-Key, new for each operation.
    """

    method: str
    path: str
    read: Callable[[httpx2.Response], T]
    params: Mapping[str, Param] = field(default_factory=dict)
    json: Json = None
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __iter__(self) -> Generator["Step", Any, T]:
        """The request as a flow, which returns what `read` reads."""
        return self.read((yield self))


@dataclass(frozen=True, slots=True)
class Pause:
    """Seconds to wait."""

    seconds: float


Step: TypeAlias = Request[Any] | Pause


class Flow(Protocol[T_co]):
    """Requests and pauses that end with a result."""

    def __iter__(self) -> Generator[Step, Any, T_co]:
        """Begin it."""


@dataclass(frozen=True, slots=True)
class Server:
    """The server that is called, and the number of retries.

    Attributes:
        url: Address of the server, without `/v1`.
        headers: Headers of each request.
        retries: Number of further attempts after failures that may be temporary.
    """

    url: str
    headers: Mapping[str, str] = field(repr=False)
    retries: int

    @classmethod
    def named(cls, url: str | None, api_key: str | None, project: str | None, retries: int) -> Self:
        """The server by the arguments, or else by the environment.

        Raises:
            ValueError: The address is missing or not HTTP, or key or project cannot be a header.
        """
        url = os.environ.get("SEXTANT_SERVER") if url is None else url
        api_key = os.environ.get("SEXTANT_API_KEY") if api_key is None else api_key
        project = os.environ.get("SEXTANT_PROJECT") if project is None else project
        for name, header in (("api_key", api_key), ("project", project)):
            if header and not (header.isascii() and header.isprintable()):
                raise ValueError(f"{name}: expected printable ASCII characters, as headers take.")
        if not url or not _is_address(url):
            raise ValueError(
                "url, or the variable SEXTANT_SERVER: expected the address of a Sextant server "
                f"such as http://127.0.0.1:8000, got {url!r}."
            )
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        if project:
            headers["Sextant-Project"] = project
        return cls(url.rstrip("/").removesuffix("/v1"), headers, retries)

    def build(
        self, http: httpx2.Client | httpx2.AsyncClient, request: Request[Any]
    ) -> httpx2.Request:
        """The request as it is sent.

        Raises:
            ProblemError: The body has a number that JSON does not allow.
        """
        _require_finite(request.json, "")
        keyed = {"Idempotency-Key": request.key} if request.method == "POST" else {}
        given = {name: value for name, value in request.params.items() if value is not None}
        return http.build_request(
            request.method,
            httpx2.URL(f"{self.url}{request.path}").copy_merge_params(given),
            json=request.json,
            headers={**self.headers, **keyed, **request.headers},
        )

    def attempts(self, flow: Flow[T]) -> Generator[Step, Any, T]:
        """The same flow with retries: yields each attempt, and receives its outcome.

        Raises:
            SextantError: An error that the flow does not handle.
        """
        steps = iter(flow)
        try:
            step = next(steps)
            while True:
                if isinstance(step, Pause):
                    yield step
                    step = next(steps)
                    continue
                try:
                    answer = yield from self._exchange(step)
                except (ProblemError, UnreachableError, NotSextantError) as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        except ValidationError as error:
            raise NotSextantError(
                f"{self.url} sent an answer that this client cannot read: {error}"
            ) from error

    def _exchange(self, request: Request[Any]) -> Generator[Step, Any, httpx2.Response]:
        attempt = 0
        while True:
            outcome: httpx2.Response | httpx2.HTTPError = yield request
            if isinstance(outcome, httpx2.Response) and outcome.is_success:
                return outcome
            yield Pause(self.pause_after(outcome, request.method, attempt))
            attempt += 1
            if wait := request.params.get("wait"):  # the cause may be a proxy's limit
                request = replace(request, params={**request.params, "wait": int(wait) // 2})

    def pause_after(
        self, outcome: httpx2.Response | httpx2.HTTPError, method: str, attempt: int
    ) -> float:
        """Seconds until a failed request is sent again.

        Raises:
            UnreachableError: It is not sent again, and there was no answer.
            ProblemError: It is not sent again, and this was the answer.
            NotSextantError: It is not sent again, and the answer is not a problem from Sextant.
        """
        patient = attempt < self.retries
        # Up to twice as long, so that clients that were refused together do not return together.
        pause = min(_FIRST_PAUSE_S * (1 << attempt), _LAST_PAUSE_S) * random.uniform(1, 2)
        if isinstance(outcome, httpx2.HTTPError):
            sent = not isinstance(outcome, httpx2.ConnectError)
            if patient and not (sent and method in {"PATCH", "DELETE"}):
                return pause
            raise UnreachableError(
                f"The Sextant server at {self.url} cannot be reached: "
                f"{str(outcome) or type(outcome).__name__}. Check its address, and that it runs."
            ) from outcome
        problem = problem_of(outcome.content)
        in_flight = problem is not None and problem.code == _IN_FLIGHT
        patient = patient and (outcome.status_code in _AGAIN or in_flight)
        asked_for = str(outcome.headers.get("retry-after", ""))
        least = float(asked_for) if asked_for.isdecimal() else 0.0
        if patient and least <= _LONGEST_PAUSE_S:
            return max(pause, least)
        raise problem or no_sextant(outcome)


def _is_address(url: str) -> bool:
    try:
        parts = httpx2.URL(url)
    except httpx2.InvalidURL:
        return False
    return parts.scheme in ("http", "https") and bool(parts.host)


def no_sextant(answer: httpx2.Response) -> NotSextantError:
    """Error for an answer that does not come from a Sextant server."""
    where = answer.request.url.copy_with(query=None)
    return NotSextantError(
        f"{where} answered {answer.request.method} with {answer.status_code}, and not like a "
        f"Sextant server: {_PROXY_FAULTS.get(answer.status_code, 'is it one?')}"
    )


def _require_finite(value: Json, pointer: str) -> None:
    """Refuse NaN and infinity, which JSON does not have, as the server would."""
    if isinstance(value, float) and not math.isfinite(value):
        fault = FieldProblem(pointer=pointer, detail=f"expected a finite number, got {value}")
        detail = f"{pointer}: {fault.detail}."
        raise ProblemError(
            Problem(code="invalid_input", status=422, detail=detail, errors=(fault,))
        )
    if isinstance(value, Mapping):
        for name, entry in value.items():
            _require_finite(entry, f"{pointer}/{name}")
