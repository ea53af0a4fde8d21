"""A server with the demo bank, and a key with all scopes."""

from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import structlog

from app.cli.servers.server import serving
from app.records.api_keys import Scope
from app.services.container import Services
from app.settings import Settings


class Running(NamedTuple):
    url: str
    key: str
    services: Services


@pytest.fixture
async def server(settings: Settings) -> AsyncIterator[Running]:
    """Run a server over real HTTP, without a worker."""
    with structlog.testing.capture_logs():
        async with serving(settings.model_copy(update={"port": 0}), worker=False) as local:
            _, secret = await local.services.api_keys.create(name="test", scopes=[Scope.ADMIN])
            yield Running(local.base_url, secret, local.services)
