"""The container files name what is there: settings, commands, paths."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli import COMMANDS
from app.settings import Settings

ROOT = Path(__file__).parents[1]
SETTINGS = {"DATABASE_URL", *(f"SEXTANT_{name.upper()}" for name in Settings.model_fields)}


@pytest.fixture
def services() -> dict[str, Any]:
    compose: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    found: dict[str, Any] = compose["services"]
    return found


def test_compose_runs_postgres_the_api_and_two_workers(services: dict[str, Any]) -> None:
    assert set(services) == {"postgres", "api", "worker"}
    assert services["worker"]["deploy"]["replicas"] == 2
    assert services["api"]["command"] == ["serve", "--no-worker"]


def test_compose_starts_commands_that_exist_with_settings_that_exist(
    services: dict[str, Any],
) -> None:
    for name in ("api", "worker"):
        assert services[name]["command"][0] in COMMANDS
        assert set(services[name]["environment"]) <= SETTINGS
        assert services[name]["depends_on"]["postgres"]["condition"] == "service_healthy"


def test_the_image_copies_what_is_there_and_sets_what_is_known() -> None:
    text = (ROOT / "Dockerfile").read_text()
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source
    assert set(re.findall(r"SEXTANT_[A-Z_]+", text)) <= SETTINGS
    assert re.search(r"^USER sextant$", text, re.MULTILINE)
    ignored = (ROOT / ".dockerignore").read_text()
    assert all(f"!{name}" in ignored for name in ("app", "migrations", "uv.lock"))


def test_operations_lists_every_setting() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    missing = {name for name in SETTINGS - {"SEXTANT_DATABASE_URL"} if name not in text}
    assert not missing
