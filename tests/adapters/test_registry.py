"""Kinds of endpoints, their settings, and parameters of a provider that are passed on."""

import logging
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from app.adapters import registry
from app.adapters.base import EndpointConfig, Examinee
from app.adapters.registry import build, kinds
from app.adapters.transport import Transport
from app.errors import InvalidInputError, UnknownNameError
from tests.contracts.examinees import SECRET, ask

TGI = EndpointConfig(kind="hf_tgi", base_url="http://x")


async def test_an_unknown_kind_suggests_the_near_miss(transport: Transport) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'openai_chat'"):
        build(EndpointConfig(kind="openai-chat"), transport)


def clever(config: EndpointConfig, transport: Transport) -> Examinee:
    """Make an examinee, as a factory of another package would."""
    return build(EndpointConfig(kind="scripted", options={"theta": 4.0}), transport)


@pytest.fixture
def installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    points = (
        EntryPoint("clever", f"{__name__}:clever", registry.GROUP),
        EntryPoint("openai_chat", f"{__name__}:clever", registry.GROUP),
    )
    installed = {registry.GROUP: points}
    monkeypatch.setattr(registry, "entry_points", lambda group: installed[group])
    registry._installed.cache_clear()


@pytest.mark.usefixtures("installed_package")
async def test_another_package_adds_a_kind_but_replaces_none(transport: Transport) -> None:
    try:
        assert "clever" in kinds()
        assert (await build(EndpointConfig(kind="clever"), transport).complete(ask())).text == "A"
        with pytest.raises(InvalidInputError, match="base_url"):
            build(EndpointConfig(kind="openai_chat", model="m"), transport)
    finally:
        registry._installed.cache_clear()


@pytest.mark.parametrize(
    ("config", "pointer"),
    [
        (EndpointConfig(kind="openai_chat", base_url="http://x/v1"), "/model"),
        (EndpointConfig(kind="openai_completions", base_url="http://x/v1"), "/model"),
        (replace(TGI, base_url="http://me:pw@x"), "/base_url"),
        (replace(TGI, options={"a": 1}), "/options/a"),
        (replace(TGI, headers={"a": "b\r\nc: d"}), "/headers"),
        (replace(TGI, headers={"a b": "c"}), "/headers"),
        (replace(TGI, headers={"Host": "c"}), "/headers"),
        (replace(TGI, api_key="schlüssel"), "/api_key"),
        (replace(TGI, api_key="a\nb"), "/api_key"),
        (replace(TGI, timeout_s=0.0), "/timeout_s"),
        (EndpointConfig(kind="scripted", options={"theta": "high"}), "/options/theta"),
        (EndpointConfig(kind="scripted", options={"theta": float("nan")}), "/options/theta"),
        (EndpointConfig(kind="scripted", options={"seed": 1.5}), "/options/seed"),
        (EndpointConfig(kind="scripted", options={"latency_ms": -1}), "/options/latency_ms"),
        (EndpointConfig(kind="scripted", options={"ability": 1}), "/options/ability"),
    ],
)
async def test_a_configuration_that_cannot_work_names_the_field(
    transport: Transport, config: EndpointConfig, pointer: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        build(config, transport)
    assert [problem.pointer for problem in caught.value.problems] == [pointer]
    assert "pw" not in str(caught.value)


async def test_the_key_is_neither_shown_nor_logged(
    transport: Transport, caplog: pytest.LogCaptureFixture, faults_url: str
) -> None:
    caplog.set_level(logging.DEBUG)
    config = EndpointConfig(
        kind="openai_chat", base_url=f"{faults_url}/ok/v1", model="m", api_key=SECRET
    )
    examinee = build(config, transport)
    await examinee.complete(ask())
    assert SECRET not in f"{config!r} {examinee!r} {caplog.text}"


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
