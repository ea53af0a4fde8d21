"""Operations of the API, each as the request or the flow of requests that it is.

Their names are the API's. Clients have them as methods of the same names and arguments.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

import httpx2
from pydantic import TypeAdapter

from sextant_client.models import Answer, Answered, Examinee, Item, Session
from sextant_client.requests import Json, Param, Request

Section: TypeAlias = Mapping[str, Json] | None


def _path(*parts: str, action: str = "") -> str:
    named = "/".join(quote(part, safe="") for part in parts)
    return f"/v1/{named}{action}"


def _given(**values: Json) -> dict[str, Json]:
    """Only what was given: the server's defaults hold for the rest."""
    return {name: value for name, value in values.items() if value is not None}


def _content(answer: httpx2.Response) -> Any:
    """JSON as Python values, other text as text, nothing as None."""
    if not answer.content:
        return None
    kind = answer.headers.get("content-type", "").partition(";")[0]
    return answer.json() if kind.endswith("json") else answer.text


def request(
    method: Literal["GET", "POST", "PATCH", "DELETE"],
    path: str,
    *,
    json: Json = None,
    params: Mapping[str, Param] | None = None,
) -> Request[Any]:
    """Call any operation.

    Args:
        method: Of HTTP.
        path: Such as `/v1/projects`.
        json: The body.
        params: Of the query.

    Returns:
        The answer: JSON as Python values, other text as text, None where there is none.
    """
    return Request(method, path, _content, params=params or {}, json=json)


def _session(answer: httpx2.Response) -> Session:
    return Session.model_validate_json(answer.content)


def create_session(
    bank: str | None = None,
    *,
    mode: Literal["live", "manual"] = "live",
    endpoint_id: str | None = None,
    endpoint: Section = None,
    examinee: Examinee | None = None,
    bank_version_id: str | None = None,
    stopping: Section = None,
    budget: Section = None,
    concurrency: int | None = None,
    answer_within: float | None = None,
    idle_timeout: float | None = None,
    seed: int | None = None,
    metadata: Mapping[str, str] | None = None,
    **design: Json,
) -> Request[Session]:
    """Start one adaptive test: of an endpoint, or by hand (`mode="manual"`).

    Args:
        bank: The newest version of this bank, by id or name.
        mode: By hand you ask your examinee yourself, and tell its answers.
        endpoint_id: A saved endpoint.
        endpoint: Or an endpoint in place.
        examinee: Who answers by hand.
        bank_version_id: Instead of `bank`, a certain version.
        stopping: When the test ends.
        budget: What it may take: `usd`, `tokens`, `seconds`.
        concurrency: Items in flight.
        answer_within: By hand: seconds after which an item is closed as `error`.
        idle_timeout: By hand: seconds of silence after which the test is cancelled.
        seed: Of all that is random.
        metadata: Up to 16 string pairs.
        design: Any other field of the API, such as `preset` and `selection`.
    """
    body = _given(
        bank=bank,
        mode=mode,
        endpoint_id=endpoint_id,
        endpoint=endpoint,
        examinee=None if examinee is None else examinee.model_dump(),
        bank_version_id=bank_version_id,
        stopping=stopping,
        budget=budget,
        concurrency=concurrency,
        answer_within=answer_within,
        idle_timeout=idle_timeout,
        seed=seed,
        metadata=metadata,
        **design,
    )
    return Request("POST", _path("sessions"), _session, json=body)


def get_session(session_id: str) -> Request[Session]:
    """Where a session stands."""
    return Request("GET", _path("sessions", session_id), _session)


def cancel_session(session_id: str) -> Request[Session]:
    """End a session where it stands; its answers so far are kept."""
    return Request("POST", _path("sessions", session_id, action=":cancel"), _session)


_ITEMS = TypeAdapter(list[Item])


def get_next_items(session_id: str, n: int = 64) -> Request[list[Item]]:
    """The items that a test by hand waits for, at most `n` of them.

    A program that begins anew finds here what it had not answered.
    """
    return Request(
        "POST",
        _path("sessions", session_id, "next-items"),
        lambda answer: _ITEMS.validate_python(answer.json()["data"]),
        json={"n": n},
    )


def answer_item(session_id: str, step_token: str, answer: Answer) -> Request[Answered]:
    """Tell the answer to an item; the reply has the items that are asked next."""
    return Request(
        "POST",
        _path("sessions", session_id, "responses"),
        lambda reply: Answered.model_validate_json(reply.content),
        json={"step_token": step_token, **answer.model_dump(exclude_defaults=True)},
    )


def release_item(session_id: str, step_token: str) -> Request[Item]:
    """Give an item back: it is awaited under another token."""
    return Request(
        "POST",
        _path("sessions", session_id, action=":release"),
        lambda answer: Item.model_validate_json(answer.content),
        json={"step_token": step_token},
    )
