from collections.abc import AsyncIterator

import pytest

from app.services.container import Services
from app.settings import Settings
from app.storage.database import Database
from tests.services.sessions import opened


@pytest.fixture(scope="session", autouse=True)
def _helpers_stay(helpers_stay: None) -> None:
    pass


@pytest.fixture
async def services(settings: Settings, database: Database) -> AsyncIterator[Services]:
    """Services with the demo bank installed."""
    async with opened(settings, database) as services:
        yield services
