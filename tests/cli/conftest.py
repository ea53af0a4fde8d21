from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from app.settings import Settings


@pytest.fixture
def own_database(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give commands an own database, files in `tmp_path`, and wide lines."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("SEXTANT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def own_server(
    own_database: None, settings: "Settings", monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Give commands a running server with a worker, which each of them would start otherwise."""
    import structlog
    from anyio.from_thread import start_blocking_portal

    from app.cli.servers.server import serving

    own = settings.model_copy(update={"port": 0, "auth": "off"})
    with (
        structlog.testing.capture_logs(),  # of the server, which shares the commands' stdout
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serving(own)) as local,
    ):
        monkeypatch.setenv("SEXTANT_SERVER", local.base_url)
        yield
