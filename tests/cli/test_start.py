"""What commands load before they do anything."""

import subprocess
import sys

import pytest

#: Each takes longer to load than a client needs for all of its work.
HEAVY = ("sqlalchemy", "fastapi", "pydantic", "numpy", "scipy", "pyarrow")


@pytest.mark.parametrize("module", ["", ".run", ".gate", ".rank", ".sessions"])
def test_whoever_only_talks_to_a_server_does_not_load_one(module: str) -> None:
    code = f"import sys, app.cli{module}; print([name for name in {HEAVY} if name in sys.modules])"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert loaded.strip() == "[]"
