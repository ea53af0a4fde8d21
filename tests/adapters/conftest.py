from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from app.adapters.base import EndpointConfig, Examinee
from app.adapters.guard import AddressGuard
from app.adapters.registry import build
from app.adapters.transport import Transport
from tests.contracts.examinees import SECRET, ExamineeOf
from tests.servers import serving, spawned
from tests.servers.fault_server import FaultServer


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    async with Transport(guard=AddressGuard(allow_private=True)) as transport:
        yield transport


@pytest.fixture(scope="session")
def _fault_server() -> Iterator[tuple[FaultServer, str]]:
    server = FaultServer(slow_s=0.01)
    with serving(server.app) as url:
        yield server, url


@pytest.fixture
def faults(_fault_server: tuple[FaultServer, str]) -> FaultServer:
    """The fault server, with empty records."""
    server, _ = _fault_server
    server.forget()
    return server


@pytest.fixture
def faults_url(_fault_server: tuple[FaultServer, str], faults: FaultServer) -> str:
    return _fault_server[1]


@pytest.fixture(scope="session")
def llama_url() -> Iterator[str]:
    with spawned("tests.servers.tiny_llama", SECRET) as url:
        yield url


@pytest.fixture
def examinee_of(transport: Transport, faults_url: str) -> ExamineeOf:
    """Return a function `examinee_of(kind, path)`: an examinee at the fault server's `path`."""

    def make(kind: str, path: str, **config: Any) -> Examinee:
        settings: dict[str, Any] = {"model": "m", "api_key": SECRET, "timeout_s": 30.0} | config
        return build(EndpointConfig(kind=kind, base_url=faults_url + path, **settings), transport)

    return make
