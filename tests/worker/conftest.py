from collections.abc import AsyncIterator, Iterator

import pytest

from app.demo.model_server import create_model_server
from app.services.container import Services
from app.settings import Settings
from app.worker.loop import running_worker
from tests.servers import serving
from tests.worker.models import Faults


@pytest.fixture
def settings(database_url: str, tmp_path: object) -> Settings:
    return Settings(database_url=database_url, data_dir=tmp_path, heartbeat_s=0.4, lease_s=3.0)


@pytest.fixture
async def working(services: Services) -> AsyncIterator[Services]:
    """Services with a running worker."""
    async with running_worker(services):
        yield services


@pytest.fixture
def faults() -> Iterator[Faults]:
    faults = Faults(slow_s=0.05, fault_rate=0.3, seed=5, url="")
    with serving(faults.app) as faults.url:
        yield faults


@pytest.fixture
def judge_url() -> Iterator[str]:
    """Serve a model that answers and judges."""
    with serving(create_model_server(theta=0, seed=1)) as url:
        yield f"{url}/v1"
