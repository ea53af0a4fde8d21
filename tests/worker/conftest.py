from collections.abc import Iterator
from pathlib import Path

import pytest

from app.demo.model_server import create_model_server
from app.settings import Settings
from tests.servers import serving
from tests.worker.models import Faults


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """Settings with which the work of a dead worker is soon taken up."""
    own = {"data_dir": tmp_path, "heartbeat_s": 0.4, "lease_s": 3.0}
    return settings.model_copy(update=own)


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
