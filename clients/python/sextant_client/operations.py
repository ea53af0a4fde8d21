"""Operations of the API, each as a request or a flow of requests.

Names are those of the API. Clients have methods with the same names and arguments. Further keyword
arguments are sent unchanged: any field, or filter of a list, that the API has.
"""

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import quote

import httpx2

from sextant_client.errors import MissingFieldError, ProblemError
from sextant_client.models import (
    Answer,
    Answered,
    Bank,
    Calibration,
    Comparison,
    Examinee,
    Gate,
    Item,
    Leaderboard,
    Match,
    Model,
    Ranking,
    Response,
    Session,
    Work,
)
from sextant_client.requests import Json, Param, Pause, Request, Step, no_sextant

M = TypeVar("M", bound=Model)
W = TypeVar("W", bound=Work)
T = TypeVar("T")
Steps: TypeAlias = Generator[Step, Any, T]

#: Entries of a list that are asked for at once.
_PAGE = 100
#: Seconds that one look waits for an end, less than a client for an answer; and between two looks.
_WAIT_S, _LOOK_S = 30.0, 0.2


def _path(*parts: str, action: str = "") -> str:
    return f"/v1/{'/'.join(quote(part, safe='') for part in parts)}{action}"


def _given(**values: Json) -> dict[str, Json]:
    """Only the values that were given; the server's defaults apply to the rest."""
    return {name: value for name, value in values.items() if value is not None}


def _as(kind: type[M]) -> Callable[[httpx2.Response], M]:
    return lambda answer: kind.model_validate_json(answer.content)


class _Object(dict[str, Any]):
    """An object of an answer. What it lacks is the server's fault, unlike other missing keys."""

    def __missing__(self, field: str) -> Any:
        raise MissingFieldError(field)


def _object(answer: httpx2.Response) -> dict[str, Any]:
    if answer.status_code == httpx2.codes.NO_CONTENT:
        return _Object()
    try:
        document = answer.json(object_hook=_Object)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise no_sextant(answer)
    return document


def request(
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"],
    path: str,
    *,
    json: Json = None,
    params: Mapping[str, Param] | None = None,
) -> Request[dict[str, Any]]:
    """Call any operation, such as `/v1/projects`; returns its JSON, empty if there is none."""
    return Request(method, path, _object, params=params or {}, json=json)


def download(path: str, *, params: Mapping[str, Param] | None = None) -> Request[bytes]:
    """GET a reply that is not JSON: a page or a file."""
    return Request("GET", path, lambda answer: answer.content, params=params or {})


def list_all(
    path: str, *, limit: int | None = None, params: Mapping[str, Param] | None = None
) -> Steps[list[dict[str, Any]]]:
    """All entries of a list, or the first `limit` of them, page by page."""
    found: list[dict[str, Any]] = []
    after: str | None = None
    while limit is None or len(found) < limit:
        size = _PAGE if limit is None else min(_PAGE, limit - len(found))
        asked = {**(params or {}), "limit": size, "after": after}
        page = yield from Request("GET", path, _object, params=asked)
        found += page["data"]
        if not page["has_more"]:
            break
        after = page["last_id"]
    return found


def change(
    path: str, changed: Callable[[dict[str, Any]], Mapping[str, Json]]
) -> Steps[dict[str, Any]]:
    """PATCH a resource; refused if another client changes it in the meantime.

    Args:
        path: Path of the resource.
        changed: Returns the fields to change, from the present resource.
    """
    found = yield from Request("GET", path, _object)
    headers = {"If-Match": f'"{found["revision"]}"'}  # some proxies take the ETag away
    return (yield from Request("PATCH", path, _object, json=changed(found), headers=headers))


def remove(path: str, *, erase: bool = False) -> Steps[None]:
    """DELETE a resource, if it has not changed; with `erase` permanently, or not at all."""
    found = yield from Request("GET", path, _object)
    revision = found.get("revision")
    headers = {} if revision is None else {"If-Match": f'"{revision}"'}
    params = {"erase": "true" if erase else None}
    yield from Request("DELETE", path, lambda _: None, params=params, headers=headers)


def _every(
    kind: type[M], path: str, limit: int | None, filters: Mapping[str, Param]
) -> Steps[list[M]]:
    found = yield from list_all(path, limit=limit, params=filters)
    return [kind.model_validate(one) for one in found]


def _ended(look: Request[W], timeout: float | None) -> Steps[W]:
    until = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        left = max(until - time.monotonic(), 0.0)
        found = yield from replace(look, params={"wait": math.ceil(min(left, _WAIT_S))})
        if found.ended:
            return found
        if time.monotonic() >= until:
            raise TimeoutError(f"{found.id} is {found.status} after {timeout:g} s.")
        yield Pause(_LOOK_S)


def _items(path: str, n: int) -> Request[list[Item]]:
    def read(answer: httpx2.Response) -> list[Item]:
        return [Item.model_validate(one) for one in _object(answer)["data"]]

    return Request("POST", path, read, json={"n": n})


def _cancelled(kind: type[W], path: str) -> Steps[W]:
    """A cancel request, which can be repeated: to cancel twice changes nothing."""
    try:
        return (yield from Request("POST", f"{path}:cancel", _as(kind)))
    except ProblemError as problem:
        found = yield from Request("GET", path, _as(kind))
        if problem.code != "invalid_state" or found.status != "cancelled":
            raise
        return found


def create_session(
    bank: str | None = None, *, examinee: Examinee | None = None, **fields: Json
) -> Request[Session]:
    """Start an adaptive test of an endpoint, or a manual one (`mode="manual"`).

    Args:
        bank: Id or name of the bank, whose newest version is used.
        examinee: Named examinee of a manual test.
        fields: Other fields of the API: `endpoint_id`, `stopping`, `budget`, `concurrency`, `seed`,
            ...
    """
    who = None if examinee is None else examinee.model_dump()
    body = _given(bank=bank, examinee=who, **fields)
    return Request("POST", _path("sessions"), _as(Session), json=body)


def get_session(session_id: str) -> Request[Session]:
    """State and results of a session."""
    return Request("GET", _path("sessions", session_id), _as(Session))


def list_sessions(
    *,
    metadata: Mapping[str, str] | None = None,
    limit: int | None = None,
    **filters: Param,
) -> Steps[list[Session]]:
    """Sessions, the newest first, by `status`, `bank_id`, `examinee`, your metadata, ..."""
    pairs = {f"metadata.{name}": value for name, value in (metadata or {}).items()}
    return _every(Session, _path("sessions"), limit, {**filters, **pairs})


def list_responses(session_id: str) -> Steps[list[Response]]:
    """All items of a session in order of asking, with their outcomes."""
    path, found = _path("sessions", session_id, "responses"), list[Response]()
    page: dict[str, Any] = {"has_more": True, "last_step": 0}
    while page["has_more"]:
        params = {"after": page["last_step"], "limit": 1000}
        page = yield from Request("GET", path, _object, params=params)
        found += [Response.model_validate(one) for one in page["data"]]
    return found


def wait_for_session(session_id: str, timeout: float | None = None) -> Steps[Session]:
    """Wait for a session to end and return it; raises `TimeoutError` after so many seconds."""
    return _ended(get_session(session_id), timeout)


def extend_session(session_id: str, **fields: Json) -> Request[Session]:
    """Continue an ended session in a new one; `stopping`, `budget`, ..."""
    path = _path("sessions", session_id, action=":extend")
    return Request("POST", path, _as(Session), json=fields)


def cancel_session(session_id: str) -> Steps[Session]:
    """Cancel a session; its answers so far are kept."""
    return _cancelled(Session, _path("sessions", session_id))


def get_next_items(session_id: str, n: int = 64) -> Request[list[Item]]:
    """Items that a manual test waits for, at most `n`, also those that another client fetched."""
    return _items(_path("sessions", session_id, "next-items"), n)


def answer_item(session_id: str, step_token: str, answer: Answer) -> Request[Answered]:
    """Send the answer to an item; the reply has the items that are asked next."""
    body = {"step_token": step_token, **answer.model_dump(exclude_defaults=True)}
    return Request("POST", _path("sessions", session_id, "responses"), _as(Answered), json=body)


def release_item(session_id: str, step_token: str) -> Request[Item]:
    """Give an item back: it is then pending under a new token."""
    path = _path("sessions", session_id, action=":release")
    return Request("POST", path, _as(Item), json={"step_token": step_token})


def create_ranking(
    bank: str,
    endpoints: Sequence[Mapping[str, Json]] | None = None,
    *,
    examinees: Sequence[Examinee] | None = None,
    **fields: Json,
) -> Request[Ranking]:
    """Rank endpoints, each `{"endpoint_id": ...}` or `{"endpoint": {...}}`, on one budget.

    Or rank named examinees by hand: `get_ranking_items` returns the items to ask them.
    """
    named = None if examinees is None else [one.model_dump() for one in examinees]
    body = _given(bank=bank, endpoints=endpoints, examinees=named, **fields)
    return Request("POST", _path("rankings"), _as(Ranking), json=body)


def get_ranking_items(ranking_id: str, n: int = 64) -> Request[list[Item]]:
    """Items that a manual ranking waits for, at most `n`; answer each in its session."""
    return _items(_path("rankings", ranking_id, "next-items"), n)


def get_ranking(ranking_id: str) -> Request[Ranking]:
    """State and results of a ranking."""
    return Request("GET", _path("rankings", ranking_id), _as(Ranking))


def list_rankings(*, limit: int | None = None, **filters: Param) -> Steps[list[Ranking]]:
    """Rankings, the newest first, by `status` and `bank_id`."""
    return _every(Ranking, _path("rankings"), limit, filters)


def wait_for_ranking(ranking_id: str, timeout: float | None = None) -> Steps[Ranking]:
    """Wait for a ranking to end and return it; raises `TimeoutError` after so many seconds."""
    return _ended(get_ranking(ranking_id), timeout)


def cancel_ranking(ranking_id: str) -> Steps[Ranking]:
    """Cancel a ranking."""
    return _cancelled(Ranking, _path("rankings", ranking_id))


def create_gate(threshold: float | None = None, **fields: Json) -> Request[Gate]:
    """Compare a session with a threshold: `session_id`, or `session` to start one, ..."""
    body = _given(threshold=threshold, **fields)
    return Request("POST", _path("gates"), _as(Gate), json=body)


def get_gate(gate_id: str) -> Request[Gate]:
    """One gate. It is decided if its session has ended."""
    return Request("GET", _path("gates", gate_id), _as(Gate))


def list_gates(*, limit: int | None = None, **filters: Param) -> Steps[list[Gate]]:
    """Gates, the newest first, by `session_id` and `bank_id`."""
    return _every(Gate, _path("gates"), limit, filters)


def get_leaderboard(bank: str, **filters: Param) -> Request[Leaderboard]:
    """The results on a bank; `model`, `scaffold`, `self_reported`, `metric`."""
    return Request("GET", _path("banks", bank, "leaderboard"), _as(Leaderboard), params=filters)


def compare(first: str, second: str, **fields: Json) -> Request[Comparison]:
    """Compare two ended sessions; with `response_set`, two examinees of it by name."""
    named = "examinees" if "response_set" in fields else "session_ids"
    body = {named: [first, second], **fields}
    return Request("POST", _path("comparisons"), _as(Comparison), json=body)


def list_banks(*, limit: int | None = None) -> Steps[list[Bank]]:
    """Banks, the newest first."""
    return _every(Bank, _path("banks"), limit, {})


def get_bank(bank: str) -> Request[Bank]:
    """A bank by id or name."""
    return Request("GET", _path("banks", bank), _as(Bank))


def match_items(
    bank: str, *, keys: Sequence[str] = (), content_hashes: Sequence[str] = ()
) -> Request[Match]:
    """Find which items a bank has, by key or by content hash."""
    body = {"keys": keys, "content_hashes": content_hashes}
    path = _path("banks", bank, "items", action=":match")
    return Request("POST", path, _as(Match), json=body)


def create_calibration(response_set: str, **fields: Json) -> Request[Calibration]:
    """Calibrate recorded answers; `publish={"bank": ...}` makes a bank version from them."""
    body = _given(response_set=response_set, **fields)
    return Request("POST", _path("calibrations"), _as(Calibration), json=body)


def get_calibration(calibration_id: str) -> Request[Calibration]:
    """State and results of a calibration."""
    return Request("GET", _path("calibrations", calibration_id), _as(Calibration))


def list_calibrations(*, limit: int | None = None, **filters: Param) -> Steps[list[Calibration]]:
    """Calibrations, the newest first, by `status` and `response_set_id`."""
    return _every(Calibration, _path("calibrations"), limit, filters)


def wait_for_calibration(calibration_id: str, timeout: float | None = None) -> Steps[Calibration]:
    """Wait for a calibration to end and return it; raises `TimeoutError` after so many seconds."""
    return _ended(get_calibration(calibration_id), timeout)


def cancel_calibration(calibration_id: str) -> Steps[Calibration]:
    """Cancel a calibration."""
    return _cancelled(Calibration, _path("calibrations", calibration_id))
