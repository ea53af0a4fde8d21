"""Manual sessions, answered over HTTP."""

from typing import Any

from tests.api.conftest import Client


async def answered(client: Client, session_id: str, *answers: dict[str, Any]) -> dict[str, Any]:
    """Answer a manual session's next items one after the other; the session as it then is."""
    path = f"/v1/sessions/{session_id}"
    for answer in answers:
        awaited = (await client.get(f"{path}/next-item")).json()
        given = await client.post(
            f"{path}/responses", json={"step_token": awaited["step_token"], **answer}
        )
        assert given.status_code == 201, given.text
    session: dict[str, Any] = (await client.get(path)).json()
    return session
