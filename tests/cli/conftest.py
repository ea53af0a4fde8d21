from pathlib import Path

import pytest


@pytest.fixture
def own_database(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give commands an own database, files in `tmp_path`, and wide lines."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("SEXTANT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")
