"""Helpers for calls of the API: create resources, answer by hand, wait for the end of work."""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import httpx2

from app.services.container import Services
from app.storage.database import Database
from tests.api.conftest import Client
from tests.databases import executed
from tests.services.sessions import until
from tests.waiting import waiting


async def posted(
    client: Client, path: str, body: object, status: int | None = None
) -> dict[str, Any]:
    """Return the JSON of a call that succeeds, with this status if one is given."""
    answer = await client.post(path, json=body)
    assert answer.is_success, answer.text
    assert status in (None, answer.status_code)
    made: dict[str, Any] = answer.json()
    return made


async def edited(client: Client, path: str, **fields: Any) -> None:
    """Change a resource in its present state."""
    head = {"If-Match": (await client.get(path)).headers["etag"]}
    answer = await client.patch(path, json=fields, headers=head)
    assert answer.is_success, answer.text


async def deleted(client: Client, path: str, *, erase: bool = False) -> httpx2.Response:
    """Return the answer to the deletion of a resource in its present state."""
    tag = (await client.get(path)).headers.get("etag")
    headers = {} if tag is None else {"If-Match": tag}
    return await client.delete(f"{path}?erase=true" if erase else path, headers=headers)


async def bank_of(
    client: Client, name: str, items: Iterable[Mapping[str, Any]], numbers: str, **fields: Any
) -> dict[str, Any]:
    """Create a bank with these items and, where given, these lines as parameters."""
    bank = await posted(client, "/v1/banks", {"name": name, **fields}, 201)
    given = {
        "items": {"content": "\n".join(map(json.dumps, items))},
        "parameters": {"content": f"item,a,b,c,d\n{numbers}"},
    }
    await posted(client, f"/v1/banks/{bank['id']}/imports", given, 201)
    return bank


async def answered(client: Client, session_id: str, *answers: dict[str, Any]) -> dict[str, Any]:
    """Answer the next items of a manual session until it ends; return the session afterwards."""
    path = f"/v1/sessions/{session_id}"
    session: dict[str, Any] = (await client.get(path)).json()
    for answer in answers:
        if session["status"] != "awaiting_response":
            break
        awaited = (await client.get(f"{path}/next-item")).json()
        body = {"step_token": awaited["step_token"], **answer}
        session = await posted(client, f"{path}/responses", body, 201)
    found: dict[str, Any] = (await client.get(path)).json()
    return found


async def answered_by(
    client: Client, session_id: str, answer: Callable[[str], dict[str, Any]]
) -> dict[str, Any]:
    """Answer a manual session to its end, each item by its key; return the session."""
    path = f"/v1/sessions/{session_id}"
    session: dict[str, Any] = await got(client, path)
    while session["status"] == "awaiting_response":
        awaited = await got(client, f"{path}/next-item")
        body = {"step_token": awaited["step_token"], **answer(awaited["item"]["id"])}
        session = await posted(client, f"{path}/responses", body, 201)
    return session


async def measured(
    client: Client, services: Services, name: str, options: dict[str, Any], **session: Any
) -> dict[str, Any]:
    """Return a finished session of the simulated model of this name, which is saved once."""
    found = (await client.get("/v1/endpoints", params={"name": name})).json()["data"]
    if not found:
        body = {"name": name, "kind": "scripted", "model": name, "options": {**options, "seed": 3}}
        found = [await posted(client, "/v1/endpoints", body, 201)]
    asked = {"endpoint_id": found[0]["id"], "seed": 5, **session}
    created = await posted(client, "/v1/sessions", asked, 202)
    await until(services, created["id"])
    ended: dict[str, Any] = (await client.get(f"/v1/sessions/{created['id']}")).json()
    return ended


async def ended(client: Client, path: str, *states: str) -> dict[str, Any]:
    """Return the resource once its work has ended, or has reached one of these states."""
    async with waiting() as pause:
        while True:
            found: dict[str, Any] = (await client.get(path)).json()
            if found["status"] in (states or ("completed", "failed", "cancelled")):
                return found
            await pause()


async def an_hour_passed(database: Database) -> None:
    """Move the time at which pending items were asked back by one hour."""
    await executed(database, "UPDATE administrations SET asked_at = asked_at - interval '1 h'")


async def got(client: Client, path: str, **options: Any) -> Any:
    """Return the JSON of a resource that can be read."""
    answer = await client.get(path, **options)
    assert answer.is_success, answer.text
    return answer.json()


async def listing(client: Client, path: str, **options: Any) -> list[dict[str, Any]]:
    """Return the entries of a list, or of its first page."""
    found: list[dict[str, Any]] = (await got(client, path, **options))["data"]
    return found


async def refusal_of(
    call: Awaitable[httpx2.Response],
    status: int = 422,
    code: str | None = None,
    *,
    says: str = "",
    at: str | None = None,
) -> dict[str, Any]:
    """Return the problem of a refused call.

    Args:
        call: The call.
        status: Its status.
        code: Its code, where given.
        says: Part of its sentence.
        at: Pointer of its only error, where given.
    """
    answer = await call
    assert answer.status_code == status, answer.text
    problem: dict[str, Any] = answer.json()
    assert code in (None, problem["code"])
    assert says in problem["detail"]
    assert at is None or [error["pointer"] for error in problem["errors"]] == [at]
    return problem


async def problem_of(
    client: Client, path: str, body: object, status: int = 422, code: str | None = None, **more: str
) -> dict[str, Any]:
    """Return the problem of a refused POST; the other arguments are those of `refusal_of`."""
    return await refusal_of(client.post(path, json=body), status, code, **more)
