import pytest


@pytest.fixture(scope="session", autouse=True)
def _helpers_stay(helpers_stay: None) -> None:
    pass
