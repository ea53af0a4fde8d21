"""The command line's own caller of the API, over real HTTP."""

import asyncio
import math
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

import httpx2

from app.errors import FieldProblem, InvalidInputError, SextantError, UnreachableError

#: Seconds between two looks at a session's events.
_POLL_S = 0.2


class ApiError(SextantError):
    """The API answered with a problem."""

    code = "api_problem"


class ApiClient:
    """A caller with a key.

    Args:
        base_url: Of the server, without `/v1`.
        api_key: Bearer key, or None where the server asks for none.
    """

    def __init__(self, base_url: str, api_key: str | None) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            self._http = httpx2.AsyncClient(
                base_url=base_url, headers=headers, timeout=60.0, trust_env=False
            )
        except httpx2.InvalidURL as exc:
            raise InvalidInputError(f"--server: {base_url!r} is not a URL: {exc}.") from exc

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def get(self, path: str) -> dict[str, Any]:
        """GET a JSON object."""
        return await self._send("GET", path)

    async def text(self, path: str) -> str:
        """GET a page."""
        return (await self._answer("GET", path)).text

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST a JSON object."""
        return await self._send("POST", path, body)

    async def events(self, path: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Type and data of each event of a resource, until the last one."""
        after, ended = 0, False
        while not ended:
            page = await self.get(f"{path}?after={after}")
            for event in page["data"]:
                yield event["type"], event["data"]
            after, ended = page["last_seq"], page["ended"]
            if not ended and not page["data"]:
                await asyncio.sleep(_POLL_S)

    async def _send(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        answer = await self._answer(method, path, body)
        document = _object(answer)
        if document is None:
            raise self._no_sextant(method, path, answer.status_code)
        return document

    async def _answer(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> httpx2.Response:
        """The answer to a call that went well."""
        _require_finite(body, "")
        try:
            answer = await self._http.request(method, path, json=body)
        except httpx2.HTTPError as error:
            raise UnreachableError(
                f"The Sextant server at {self._http.base_url} cannot be reached: {error}"
            ) from error
        if answer.is_success:
            return answer
        document = _object(answer)
        if document is None or not {"code", "detail", "errors"} <= document.keys():
            raise self._no_sextant(method, path, answer.status_code)
        problems = [FieldProblem(entry["pointer"], entry["detail"]) for entry in document["errors"]]
        raise ApiError(document["detail"], problems=problems)

    def _no_sextant(self, method: str, path: str, status: int) -> ApiError:
        return ApiError(
            f"{self._http.base_url} answered {method} {path} with {status}, and not as a Sextant "
            "server does: is it one?"
        )


def _object(answer: httpx2.Response) -> dict[str, Any] | None:
    """The JSON object of an answer; None where it is none."""
    try:
        document = answer.json()
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _require_finite(value: object, pointer: str) -> None:
    """JSON has neither nan nor inf, which the shell's options take for numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInputError(f"{pointer}: expected a finite number, got {value}.")
    if isinstance(value, dict):
        for name, entry in value.items():
            _require_finite(entry, f"{pointer}/{name}")
