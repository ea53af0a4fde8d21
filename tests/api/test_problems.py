"""Errors: each is an RFC 9457 problem with a stable code and without secrets."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import FastAPI
from structlog.typing import EventDict

from app.api.errors import STATUS_OF, errors, status_of
from app.errors import (
    DatabaseUnavailableError,
    ExamineeError,
    IdempotencyMismatchError,
    PreconditionFailedError,
    SecretsError,
    SextantError,
    UnknownNameError,
)
from app.validation import pointer_of
from tests.api.calls import got, problem_of, refusal_of
from tests.api.conftest import Client

ENDPOINT = {"name": "a", "kind": "scripted"}


def assert_problem(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert set(body) == {
        "type", "title", "status", "detail", "instance", "code", "request_id", "errors",
    }  # fmt: skip
    assert body["status"] == status
    assert body["code"] == code
    assert body["type"] == f"urn:sextant:problem:{code}"
    assert body["request_id"] == response.headers["x-request-id"]
    assert body["instance"] == response.url.path
    return body


async def raw(client: Client, body: Any, kind: str = "application/json") -> Any:
    """Return the answer to this body of a new endpoint, as it stands."""
    return await client.post("/v1/endpoints", content=body, headers={"content-type": kind})


async def failed(app: FastAPI, client: Client, error: Exception) -> Any:
    """Return the answer of a route that fails with this error."""

    async def fail() -> None:
        raise error

    app.add_api_route("/v1/fail", fail)
    return await client.get("/v1/fail")


async def test_what_is_not_there_is_named(client: Client) -> None:
    missing = "end_" + "0" * 26
    body = assert_problem(await client.get(f"/v1/endpoints/{missing}"), 404, "not_found")
    assert missing in body["detail"]
    assert_problem(await client.get("/v1/nothing"), 404, "not_found")
    assert_problem(await client.post("/v1/endpoints/end_x:fly"), 404, "not_found")  # no verb, no id


WRONG_METHODS = [
    ("PUT", "/v1/endpoints", {"GET", "HEAD", "POST"}),
    ("POST", "/v1/endpoints/end_" + "0" * 26, {"GET", "HEAD", "PATCH", "DELETE"}),
    ("GET", "/v1/endpoints/end_" + "0" * 26 + ":probe", {"POST"}),
    ("GET", "/v1/banks/facts/items/exam/1:preview", {"POST"}),
    ("DELETE", "/banks/a:b", {"GET", "HEAD"}),
    ("DELETE", "/healthz", {"GET", "HEAD"}),
]


async def test_a_wrong_method_lists_every_method_of_the_path(client: Client) -> None:
    for method, path, allowed in WRONG_METHODS:
        response = await client.request(method, path)
        assert_problem(response, 405, "method_not_allowed")
        assert set(response.headers["allow"].split(", ")) == allowed


async def test_head_answers_with_the_head_of_get(client: Client) -> None:
    for path in ("/healthz", "/v1/scorers", "/v1/banks?limit=1", "/v1/banks/no"):
        whole, head = await client.get(path), await client.head(path)
        assert (head.status_code, head.content) == (whole.status_code, b"")
        varying = {"x-request-id", "content-length"}  # the body of a problem names its request
        assert {k: v for k, v in head.headers.items() if k not in varying} == {
            k: v for k, v in whole.headers.items() if k not in varying
        }
        assert head.headers["content-length"] == str(len(whole.content))
    assert (await client.head("/v1/comparisons")).status_code == 405  # only POST computes one


NOT_JSON = [
    b'{"name": ',
    b'{"name": "\xff\xfe"}',
    b'{"timeout_s": NaN}',
    b'{"timeout_s": ' + b"1" * 5000 + b"}",
    b"[" * 60_000,
    b'{"name": "mine", "name": "theirs"}',
]


async def test_bytes_that_are_not_json_are_a_malformed_body(client: Client) -> None:
    for body in NOT_JSON:
        assert_problem(await raw(client, body), 400, "malformed_body")
    twice = assert_problem(await raw(client, b'{"a;b": 1, "a;b": 2}'), 400, "malformed_body")
    assert twice["detail"] == "The body is not JSON: the name 'a;b' stands twice in an object."


async def test_another_media_type_than_json_is_refused(client: Client) -> None:
    for media_type in ("text/plain", "application/x-www-form-urlencoded", ""):
        response = await raw(client, json.dumps(ENDPOINT), media_type)
        body = assert_problem(response, 415, "unsupported_media_type")
        assert "application/json" in body["detail"]


async def test_types_are_not_coerced(client: Client) -> None:
    wrong = ({"timeout_s": True}, {"timeout_s": "5"}, {"limits": {"concurrency": 2.0}})
    for fields in (*wrong, {"model": 5}):
        await problem_of(client, "/v1/endpoints", ENDPOINT | fields, code="invalid_input")


MANY = {f"f{n}": n for n in range(300)}
FAULTS: list[tuple[str, Any, str]] = [
    ("/v1/sessions", {"bank": "b", "concurrency": 0}, "expected a number >= 1, got 0"),
    ("/v1/sessions", {"bank": "b", "concurrency": "x"}, "expected a whole number, got 'x'"),
    (
        "/v1/sessions",
        {"bank": "b", "preset": "fast"},
        "expected 'score', 'ability', 'atlas' or 'atlas-traces', got 'fast'",
    ),
    (
        "/v1/gates",
        {"session_id": "ses_1", "threshold": 0},
        "expected an id, ses_ and 26 lower-case letters and digits, got 'ses_1'",
    ),
    (
        "/v1/banks",
        {"name": " x"},
        "expected a name without / : or control characters, "
        "and without blanks at either end, got ' x'",
    ),
    ("/v1/sessions", {"bank": "b", "seed": True}, "expected a whole number, got true"),
    ("/v1/sessions", {"bank": "b", "metadata": {"n": 5}}, "expected a text, got a number"),
    ("/v1/sessions", {"bank": "b", "endpoint": "e"}, "expected an object, got a text"),
    ("/v1/sessions", [], "expected an object, got a list"),
    ("/v1/api-keys", {"name": "k", "scopes": []}, "expected at least 1 entry, got 0"),
    (
        "/v1/api-keys",
        {"name": "k", "scopes": ["read"], "expires_at": "tomorrow"},
        "expected a time such as 2030-01-31T12:00:00Z, got 'tomorrow'",
    ),
    ("/v1/banks", {"name": "x" * 201}, "expected at most 200 characters, got 201"),
    ("/v1/comparisons", {"session_ids": "ses_1"}, "expected a list, got a text"),
    ("/v1/banks", MANY, "expected at most 200 fields, got 300"),
    ("/v1/banks", {"name": "b", "prompt": MANY}, "expected at most 200 fields, got 300"),
    ("/v1/projects", {"name": "p", "limits": MANY}, "expected at most 200 fields, got 300"),
    (
        "/v1/banks",
        {"name": "b", "prompt": {"prefix": [{"role": "user", "content": "c", "tone": 1}]}},
        "no such field; there are role, content",
    ),
    (f"/v1/sessions/ses_{'0' * 26}/responses", MANY, "expected at most 200 fields, got 300"),
]


async def test_a_fault_says_what_was_expected_and_what_came(client: Client) -> None:
    for path, body, detail in FAULTS:
        problem = assert_problem(await client.post(path, json=body), 422, "invalid_input")
        assert [fault["detail"] for fault in problem["errors"]] == [detail]


async def test_faults_of_a_design_are_told_beside_those_of_other_fields(client: Client) -> None:
    contradictory = {"max_items": 3, "min_items": 5}
    body = {"bank": "b", "stopping": contradictory, "failures": {"max_share": 7}, "concurrency": 0}
    told = assert_problem(await client.post("/v1/sessions", json=body), 422, "invalid_input")
    assert {one["pointer"] for one in told["errors"]} == {
        "/concurrency",
        "/stopping/min_items",
        "/failures/max_share",
    }
    assert told["detail"].startswith("3 fields")
    # With the preset that was meant, this target is right.
    meant = {"preset": "scor", "stopping": {"se": 0.3}, "selection": {"target": {"law": 1.0}}}
    reply = await client.post("/v1/simulations", json={"bank": "b", **meant})
    assert [one["pointer"] for one in assert_problem(reply, 422, "invalid_input")["errors"]] == [
        "/preset"
    ]


async def test_text_that_postgres_cannot_store_is_refused(client: Client) -> None:
    for text in (r"\u0000", r"\ud800"):
        for body in (f'{{"model": "{text}"}}', f'{{"options": {{"{text}": 1}}}}'):
            assert_problem(await raw(client, body), 422, "invalid_input")
    for path in ("/v1/endpoints/%00", "/v1/endpoints?name=%00"):
        assert_problem(await client.get(path), 422, "invalid_input")


async def test_a_lone_surrogate_is_refused(client: Client) -> None:
    for padding in (0, 100_000):
        body = b'{"params": {"\xed\xa0\x80": 1}}' + b" " * padding
        kind = {"content-type": "application/json"}
        response = await client.post("/v1/scorers/exact:test", content=body, headers=kind)
        assert_problem(response, 400, "malformed_body")


async def test_a_secret_that_is_refused_is_not_sent_back(client: Client) -> None:
    response = await client.post(
        "/v1/endpoints", json=ENDPOINT | {"api_key": {"value": "sk-very-secret"}}
    )
    assert_problem(response, 422, "invalid_input")
    assert "sk-very-secret" not in response.text


async def test_a_500_hides_its_cause_and_logs_it_with_the_request_id(
    app: FastAPI, client: Client, logs: list[EventDict]
) -> None:
    error = RuntimeError("password=hunter2")
    body = assert_problem(await failed(app, client, error), 500, "internal_error")
    assert "hunter2" not in str(body)
    (entry,) = [entry for entry in logs if entry["event"] == "request_failed"]
    assert entry["request_id"] == body["request_id"]
    assert entry["exc_info"]


@pytest.mark.parametrize(
    ("error", "status", "is_told"),
    [(SextantError, 500, False), (SecretsError, 503, True), (DatabaseUnavailableError, 503, True)],
)
async def test_a_fault_of_the_server_is_told_where_it_may_be_repaired(
    app: FastAPI, client: Client, error: type[SextantError], status: int, is_told: bool
) -> None:
    response = await failed(app, client, error("/var/lib/sextant cannot be read"))
    body = assert_problem(response, status, error.code if is_told else "internal_error")
    assert ("/var/lib/sextant" in str(body)) == is_told
    if error is DatabaseUnavailableError:
        assert int(response.headers["retry-after"]) > 0


def test_every_error_has_a_status_and_subclasses_inherit_it() -> None:
    assert status_of(UnknownNameError) == 422
    assert status_of(PreconditionFailedError) == 412
    assert status_of(IdempotencyMismatchError) == 422
    assert {int(status_of(error)) for error in ExamineeError.__subclasses__()} == {424, 422}
    assert STATUS_OF[SextantError] == 500


def test_documented_problems_of_one_status_are_joined() -> None:
    entry = errors(UnknownNameError, IdempotencyMismatchError)
    assert list(entry) == [422]
    assert entry[422]["x-codes"] == ["idempotency_mismatch", "unknown_name"]


def test_pointers_escape_what_json_pointers_must_escape() -> None:
    assert pointer_of(("a/b", "c~d", 3)) == "/a~1b/c~0d/3"
    assert pointer_of(("query", "limit")) == "/query/limit"
    assert pointer_of(("headers", "a b", "[key]")) == "/headers/a b"


async def test_every_operation_documents_its_errors_as_problems(client: Client) -> None:
    schema = await got(client, "/openapi.json")
    assert schema["openapi"].startswith("3.1")
    assert "Problem" in schema["components"]["schemas"]
    assert "HTTPValidationError" not in schema["components"]["schemas"]
    for path, operations in schema["paths"].items():
        if not path.startswith("/v1"):
            continue
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert {"401", "403", "422", "500", "503"} <= set(operation["responses"]), where
            assert operation["security"], where
            for status, response in operation["responses"].items():
                if name := response.get("$ref"):
                    response = schema["components"]["responses"][name.rpartition("/")[2]]
                kinds = list(response.get("content", ()))
                if int(status) >= 400:
                    assert kinds == ["application/problem+json"], where
                else:  # generated clients read one of these, and warn where none is given
                    readable = ("application/json", "application/octet-stream", "text/")
                    assert not kinds or any(one.startswith(readable) for one in kinds), where


async def test_the_request_id_of_the_caller_is_kept_if_it_is_harmless(client: Client) -> None:
    kept = await client.get("/healthz", headers={"X-Request-Id": "job-17.step_3"})
    assert kept.headers["x-request-id"] == "job-17.step_3"
    replaced = await client.get("/healthz", headers={"X-Request-Id": "a b\tc"})
    assert replaced.headers["x-request-id"] != "a b\tc"
    assert len(replaced.headers["x-request-id"]) == 32


async def test_a_body_that_announces_too_much_is_refused_at_once(client: Client) -> None:
    response = await client.post(
        "/v1/endpoints",
        content=b"{}",
        headers={"content-length": str(10**12), "content-type": "application/json"},
    )
    assert_problem(response, 413, "body_too_large")


async def test_a_body_that_grows_too_large_is_refused_while_it_comes_in(client: Client) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 10_000:
            sent += 1
            yield b" " * 65_536

    response = await raw(client, endless())
    assert_problem(response, 413, "body_too_large")
    assert sent * 65_536 < 64 * 1024 * 1024


UNKNOWN_PARAMETERS = [
    ("/v1/banks?limt=5", "limt", "one of after, limit, order"),
    ("/v1/sessions?status=queued&state=running", "state", "after"),
    ("/v1/banks/none?verbose", "verbose", "no query parameters"),
    ("/v1/banks?limit=5&%ED%A0%80=1", "", "one of after, limit, order"),
]


async def test_an_unknown_query_parameter_is_refused(client: Client) -> None:
    for path, parameter, known in UNKNOWN_PARAMETERS:
        problem = await refusal_of(client.get(path), 422, "invalid_input", says=known)
        (error,) = problem["errors"]
        assert error["pointer"].startswith(f"/query/{parameter}")


async def test_a_misspelt_field_gets_a_suggestion(client: Client) -> None:
    body = {
        "name": "e",
        "kind": "openai_chat",
        "base_url": "http://127.0.0.1:9/v1",
        "model": "m",
        "limits": {"concurency": 3},
        "retry": {"base_s": 0},
        "zzz": 1,
    }
    problems = (await problem_of(client, "/v1/endpoints", body))["errors"]
    told = {problem["pointer"]: problem["detail"] for problem in problems}
    assert told["/limits/concurency"] == "no such field; did you mean 'concurrency'?"
    assert told["/retry/base_s"] == "expected a number > 0, got 0"
    assert told["/zzz"].startswith("no such field; there are name, kind,")
