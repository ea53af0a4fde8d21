import logging
from importlib.metadata import EntryPoint

import pytest

from app.adapters import registry
from app.adapters.base import EndpointConfig, Examinee
from app.adapters.registry import build, kinds
from app.adapters.transport import Transport
from app.errors import InvalidInputError, UnknownNameError
from tests.contracts.examinees import SECRET, ask


def test_every_kind_of_the_documentation_is_there() -> None:
    assert {"openai_chat", "openai_completions", "hf_tgi", "hf_endpoint", "scripted"} <= set(
        kinds()
    )


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
        (EndpointConfig(kind="hf_tgi", base_url="http://x", options={"a": 1}), "/options/a"),
        (
            EndpointConfig(kind="hf_tgi", base_url="http://x", headers={"a": "b\r\nc: d"}),
            "/headers",
        ),
        (EndpointConfig(kind="hf_tgi", base_url="http://x", headers={"a b": "c"}), "/headers"),
        (EndpointConfig(kind="hf_tgi", base_url="http://x", headers={"Host": "c"}), "/headers"),
        (EndpointConfig(kind="hf_tgi", base_url="http://x", api_key="schlüssel"), "/api_key"),
        (EndpointConfig(kind="hf_tgi", base_url="http://x", api_key="a\nb"), "/api_key"),
        (EndpointConfig(kind="hf_tgi", base_url="http://x", timeout_s=0.0), "/timeout_s"),
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
