import asyncio
from collections.abc import Iterator

import pytest

from app.scorers import aclose


@pytest.fixture(scope="session", autouse=True)
def _no_helper_process_outlives_the_tests() -> Iterator[None]:
    yield
    asyncio.run(aclose())
