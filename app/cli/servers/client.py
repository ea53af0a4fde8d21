"""The command line's own caller of the API, over real HTTP."""

import asyncio
import math
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote

import httpx2

from app.errors import (
    FieldProblem,
    InvalidInputError,
    SextantError,
    UnauthenticatedError,
    UnreachableError,
)

#: Seconds between two looks at a session's events.
_POLL_S = 0.2
#: Entries of a list that are asked for at once.
_PAGE = 100


class ApiError(SextantError):
    """The API answered with a problem.

    Args:
        detail: Of the problem.
        kind: Its code.
        problems: Faults by place.
    """

    code = "api_problem"

    def __init__(
        self, detail: str, *, kind: str = "", problems: Iterable[FieldProblem] = ()
    ) -> None:
        super().__init__(detail, problems=problems)
        self.kind = kind

    def with_options(self, options: Mapping[str, str]) -> "ApiError":
        """The same with options in the place of the fields that they set."""
        detail = self.detail
        for problem in self.problems:
            named = _named(problem.pointer, options)
            detail = detail.replace(f"{problem.pointer}:", f"{named}:")
        problems = [FieldProblem(_named(p.pointer, options), p.detail) for p in self.problems]
        return ApiError(detail, kind=self.kind, problems=problems)


class ApiClient:
    """A caller with a key.

    Redirects are not followed: the key goes to no other server.

    Args:
        base_url: Of the server, without `/v1`.
        api_key: Bearer key, or None where the server asks for none.
        transport: Brings requests to the API of this process; absent: over the network.
        project: To work in, where the key may work in several.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        *,
        transport: httpx2.AsyncBaseTransport | None = None,
        project: str | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        if project is not None:
            headers["Sextant-Project"] = project
        try:
            self._http = httpx2.AsyncClient(
                base_url=base_url,
                headers=headers,
                timeout=60.0 if transport is None else None,
                trust_env=False,
                transport=transport,
                verify=_certificates(httpx2.URL(base_url)),
            )
        except (httpx2.InvalidURL, UnicodeError) as exc:
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

    async def get(self, path: str, *, options: Mapping[str, str] | None = None) -> dict[str, Any]:
        """GET a JSON object; `options` as those of `post`."""
        return await self._send("GET", path, options=options)

    async def text(self, path: str) -> str:
        """GET a page."""
        return (await self._answer("GET", path)).text

    async def post(
        self,
        path: str,
        body: dict[str, Any] | None,
        *,
        options: Mapping[str, str] | None = None,
        patient: bool = False,
    ) -> dict[str, Any]:
        """POST a JSON object.

        Args:
            path: Where.
            body: What; None for nothing.
            options: Of a command, by pointers to the fields that they set: faults are told in
                their words.
            patient: Wait for the answer for as long as it takes.
        """
        return await self._send("POST", path, body, options=options, patient=patient)

    async def patch(
        self, path: str, change: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> dict[str, Any]:
        """PATCH what is as it was when it was last read.

        Args:
            path: Where.
            change: From what there is to what shall be different.
        """
        found = await self._answer("GET", path)
        headers = {"If-Match": found.headers["etag"]}
        changed = await self._answer("PATCH", path, change(found.json()), headers)
        document: dict[str, Any] = changed.json()
        return document

    async def change(
        self, path: str, change: dict[str, Any], *, options: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """PATCH what has no states of its own; `options` as of `post`."""
        return await self._send("PATCH", path, change, options=options)

    async def put(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """PUT a JSON object."""
        return await self._send("PUT", path, body)

    async def delete(self, path: str, *, erase: bool = False) -> None:
        """DELETE what is as it was when it was last read: what changes meanwhile stays.

        Args:
            path: Of the resource.
            erase: For good, or not at all.
        """
        found = await self._answer("GET", path)
        tag = found.headers.get("etag")
        whole = f"{path}?erase=true" if erase else path
        await self._answer("DELETE", whole, headers={} if tag is None else {"If-Match": tag})

    async def remove(self, path: str) -> None:
        """DELETE what has no states of its own."""
        await self._answer("DELETE", path)

    async def every(self, path: str, *, limit: int | None = None) -> list[dict[str, Any]]:
        """All entries of a list, or the first of them, page by page."""
        found: list[dict[str, Any]] = []
        ask, after = "&" if "?" in path else "?", ""
        while limit is None or len(found) < limit:
            size = _PAGE if limit is None else min(_PAGE, limit - len(found))
            page = await self.get(f"{path}{ask}limit={size}{after}")
            found += page["data"]
            if not page["has_more"]:
                break
            after = f"&after={page['last_id']}"
        return found

    async def blocks(self, path: str) -> AsyncIterator[bytes]:
        """GET a file, piece by piece."""
        try:
            async with self._http.stream("GET", path) as answer:
                if not answer.is_success:
                    await answer.aread()
                    self._require_success(answer, "GET", path)
                async for block in answer.aiter_bytes():
                    yield block
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from error

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
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        options: Mapping[str, str] | None = None,
        patient: bool = False,
    ) -> dict[str, Any]:
        try:
            answer = await self._answer(method, path, body, patient=patient)
        except ApiError as error:
            if not options:
                raise
            raise error.with_options(options) from None
        document = _object(answer)
        if document is None:
            raise self._no_sextant(method, path, answer.status_code)
        return document

    async def _answer(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        *,
        patient: bool = False,
    ) -> httpx2.Response:
        """The answer to a call that went well."""
        _require_finite(body, "")
        timeout = None if patient else httpx2.USE_CLIENT_DEFAULT
        try:
            answer = await self._http.request(
                method, path, json=body, headers=headers, timeout=timeout
            )
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from error
        self._require_success(answer, method, path)
        return answer

    def _require_success(self, answer: httpx2.Response, method: str, path: str) -> None:
        if answer.is_success:
            return
        document = _object(answer)
        if document is None or not {"code", "detail", "errors"} <= document.keys():
            raise self._no_sextant(method, path, answer.status_code)
        problems = [FieldProblem(entry["pointer"], entry["detail"]) for entry in document["errors"]]
        if len(problems) == 1 and problems[0].pointer.startswith("/path/"):
            raise ApiError(_no_such(problems[0].pointer, path), kind="not_found")
        detail = document["detail"]
        if document["code"] == UnauthenticatedError.code:
            detail = self._key_wanted(detail)
        raise ApiError(detail, kind=document["code"], problems=problems)

    def _key_wanted(self, detail: str) -> str:
        """In the command line's words, where a key comes from."""
        if "Authorization" not in self._http.headers:
            detail = f"The Sextant server at {self._http.base_url} asks for an API key."
        return f"{detail} Set SEXTANT_API_KEY, or `sextant login {self._http.base_url}`."

    def _unreachable(self, error: httpx2.HTTPError) -> UnreachableError:
        return UnreachableError(
            f"The Sextant server at {self._http.base_url} cannot be reached: "
            f"{str(error) or type(error).__name__}"
        )

    def _no_sextant(self, method: str, path: str, status: int) -> ApiError:
        return ApiError(
            f"{self._http.base_url} answered {method} {path.partition('?')[0]} with {status}, and "
            "not as a Sextant server does: is it one?"
        )


def _no_such(pointer: str, path: str) -> str:
    """What is wrong with a path whose id is none: nothing has it."""
    kind = pointer.removeprefix("/path/").removesuffix("_id").replace("_", " ")
    kind = "API key" if kind == "key" else kind
    _, _, _, name, *_ = [*path.partition("?")[0].split("/"), ""]
    return f"There is no {kind} {unquote(name.partition(':')[0])!r}."


def _named(pointer: str, options: Mapping[str, str]) -> str:
    """The option that sets a field, or what is around it; the pointer itself where none does."""
    around = pointer
    while around:
        if around in options:
            return options[around]
        around = around.rpartition("/")[0]
    return pointer


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
        problem = FieldProblem(pointer, f"expected a finite number, got {value}")
        raise ApiError(f"{pointer}: {problem.detail}.", problems=[problem])
    if isinstance(value, dict):
        for name, entry in value.items():
            _require_finite(entry, f"{pointer}/{name}")


def _certificates(base_url: httpx2.URL) -> ssl.SSLContext | bool:
    """Whom to trust: without TLS nobody; reading the system's store takes longer than a call."""
    return base_url.scheme != "http" or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
