from collections.abc import AsyncIterator, Iterator

import pytest

from app.demo.model_server import create_model_server
from app.services.container import Services
from app.settings import Settings
from app.storage.database import Database
from app.worker.loop import running_worker
from tests.servers import serving
from tests.servers.fault_server import FaultServer
from tests.services.sessions import opened


@pytest.fixture(scope="session", autouse=True)
def _helpers_stay(helpers_stay: None) -> None:
    pass


@pytest.fixture
def settings(database_url: str, tmp_path: object) -> Settings:
    return Settings(database_url=database_url, data_dir=tmp_path, heartbeat_s=0.4, lease_s=3.0)


@pytest.fixture
async def services(settings: Settings, database: Database) -> AsyncIterator[Services]:
    async with opened(settings, database) as services:
        yield services


@pytest.fixture
async def working(services: Services) -> AsyncIterator[Services]:
    """Services with a running worker."""
    async with running_worker(services):
        yield services


@pytest.fixture
def faults() -> FaultServer:
    return FaultServer(slow_s=0.05, fault_rate=0.3, seed=5)


@pytest.fixture
def faults_url(faults: FaultServer) -> Iterator[str]:
    with serving(faults.app) as url:
        yield url


@pytest.fixture
def judge_url() -> Iterator[str]:
    """Serve a model that answers and judges."""
    with serving(create_model_server(theta=0, seed=1)) as url:
        yield f"{url}/v1"
