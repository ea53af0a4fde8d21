"""Parameters of a provider that are passed on with every call."""

from typing import Any

import pytest

from app.adapters.base import EndpointConfig
from app.adapters.registry import build
from app.adapters.transport import Transport
from app.errors import InvalidInputError

KEY = "my-own-secret!"


def config(options: dict[str, Any]) -> EndpointConfig:
    return EndpointConfig(
        kind="openai_chat",
        base_url="http://127.0.0.1:9/v1",
        model="m",
        api_key=KEY,
        options=options,
    )


@pytest.mark.parametrize(
    ("options", "pointer", "words"),
    [
        ({"extra_body": {"temperature": 1}}, "/options/extra_body/temperature", "sampling"),
        ({"extra_body": [1]}, "/options/extra_body", "JSON object"),
        ({"extra_body": {"api_key": "x"}}, "/options/extra_body", "looks like a secret"),
        ({"extra_body": {"a": {"auth_token": 1}}}, "/options/extra_body", "looks like a secret"),
        ({"extra_body": {"a": ["Bearer abcdefgh1"]}}, "/options/extra_body", "looks like a key"),
        ({"extra_body": {"note": "my-own-secret!"}}, "/options/extra_body", "looks like a key"),
        ({"extra_headers": {"X-Api-Key": "x"}}, "/options/extra_headers/X-Api-Key", "secret"),
        ({"extra_headers": {"Host": "x"}}, "/options/extra_headers", "cannot be set"),
        (
            {"extra_headers": {"x-a": "b\nc"}},
            "/options/extra_headers/x-a",
            "printable ASCII characters",
        ),
        ({"extra_headers": {"x-a": 1}}, "/options/extra_headers/x-a", "printable ASCII characters"),
        ({"extra_body": {"a": "x" * 20_000}}, "/options/extra_body", "at most 16384 bytes"),
    ],
)
async def test_secrets_and_known_settings_cannot_be_passed_on(
    transport: Transport, options: dict[str, Any], pointer: str, words: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        build(config(options), transport)
    (problem,) = refused.value.problems
    assert problem.pointer == pointer
    assert words in problem.detail
    assert KEY not in refused.value.detail


@pytest.mark.parametrize("name", ["min_tokens", "eos_token", "skip_special_tokens", "top_k"])
async def test_names_about_tokens_of_a_vocabulary_are_no_secrets(
    transport: Transport, name: str
) -> None:
    build(config({"extra_body": {name: 1}}), transport)


async def test_a_deeply_nested_body_is_refused(transport: Transport) -> None:
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"a": deep}
    with pytest.raises(InvalidInputError, match="at most 8 levels"):
        build(config({"extra_body": deep}), transport)
