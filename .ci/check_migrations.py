"""Migrations go up, match the tables in the code, go down, and go up again."""

import tempfile
from pathlib import Path

from alembic import command
from alembic.config import Config

from app.storage.embedded import EmbeddedPostgres


def _embedded(scratch: Path) -> EmbeddedPostgres:
    # As root, the server runs as a user who must be able to reach its directory.
    scratch.chmod(0o755)
    return EmbeddedPostgres(scratch / "data", durable=False)


def main() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="sextant-") as scratch,
        _embedded(Path(scratch)) as postgres,
    ):
        config = Config(toml_file="pyproject.toml")
        config.attributes["url"] = postgres.url
        command.upgrade(config, "head")
        command.check(config)
        command.downgrade(config, "base")
        command.upgrade(config, "head")


if __name__ == "__main__":
    main()
