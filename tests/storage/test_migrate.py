import os
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from procrastinate.schema import SchemaManager
from psycopg.types.json import Jsonb

from app.errors import DatabaseUnavailableError, InvalidStateError
from app.storage.migrate import upgrade
from tests.databases import libpq, rows
from tests.servers.forked import Forked

_ROOT = Path(__file__).parents[2]
_MIGRATIONS = _ROOT / "migrations"


def _tables(url: str) -> set[str]:
    user_schemas = "schemaname IN ('public', 'procrastinate')"
    return {row[0] for row in rows(url, f"SELECT tablename FROM pg_tables WHERE {user_schemas}")}


def _config(url: str) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["url"] = url
    return config


def test_the_migrations_make_what_the_code_declares(database_url: str) -> None:
    command.check(_config(database_url))


def test_all_migrations_can_be_undone_and_done_again(database_url: str) -> None:
    before = _tables(database_url)
    command.downgrade(_config(database_url), "base")
    assert _tables(database_url) == {"alembic_version"}
    upgrade(database_url)
    assert _tables(database_url) == before


def test_older_results_are_migrated_to_current_words(empty_database_url: str) -> None:
    command.upgrade(_config(empty_database_url), "d1f3b6a70c52")
    told = {
        "estimate": {"theta": 0.4, "ci": [-0.1, None], "ci_raw": [0.0, 0.8]},
        "accuracy": {"value": 0.6, "lo": 0.5, "hi": 0.7, "raw": None, "target": {"raw": 1.0}},
    }
    with psycopg.connect(libpq(empty_database_url)) as connection:
        connection.execute("SET session_replication_role = replica")  # the session does not exist
        connection.execute(
            "INSERT INTO session_events (session_id, seq, type, data)"
            " VALUES ('ses_1', 1, 'estimate.updated', %s)",
            [Jsonb(told)],
        )
    upgrade(empty_database_url)
    assert rows(empty_database_url, "SELECT data FROM session_events") == [
        (
            {
                "estimate": {
                    "theta": 0.4,
                    "interval": {"lo": -0.1, "hi": None, "level": 0.95},
                    "interval_raw": {"lo": 0.0, "hi": 0.8, "level": 0.95},
                },
                "score": {
                    "value": 0.6,
                    "interval": {"lo": 0.5, "hi": 0.7, "level": 0.95},
                    "interval_raw": None,
                    "target": {"raw": 1.0},
                },
            },
        )
    ]


def test_processes_may_upgrade_at_once(empty_database_url: str) -> None:
    env = {**os.environ, "DATABASE_URL": libpq(empty_database_url)}
    processes = [Forked(["sextant", "migrate"], env=env) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert {"sessions", "procrastinate_jobs"} <= _tables(empty_database_url)


@pytest.mark.parametrize("revision", ["from_the_future", "e20b6c9d41f7"])
def test_a_database_at_a_revision_that_is_unknown_is_refused(
    database_url: str, revision: str
) -> None:
    with psycopg.connect(libpq(database_url)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = %s", [revision])
    before = _tables(database_url)
    with pytest.raises(
        InvalidStateError,
        match=rf"by a newer Sextant, or by one from before the first .*{revision}.*Upgrade",
    ):
        upgrade(database_url)
    assert _tables(database_url) == before


def test_a_database_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailableError, match="cannot be reached, check DATABASE_URL: "):
        upgrade(f"postgresql+psycopg://u@/x?host={tmp_path}")


def test_the_queue_has_the_schema_of_its_installed_version(
    database_url: str, empty_database_url: str
) -> None:
    """Fails when a new version of the queue has migrations that ours lack."""
    with psycopg.connect(libpq(empty_database_url)) as connection:
        connection.execute("CREATE SCHEMA procrastinate; SET search_path TO procrastinate")
        connection.execute(SchemaManager.get_schema())
    columns = """
        SELECT table_name, column_name, data_type, column_default FROM information_schema.columns
        WHERE table_schema = 'procrastinate' ORDER BY 1, 2
    """
    functions = """
        SELECT proname, pg_get_function_arguments(oid), md5(prosrc) FROM pg_proc
        WHERE pronamespace = 'procrastinate'::regnamespace ORDER BY 1, 2
    """
    indexes = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'procrastinate' ORDER BY 1"
    for query in (columns, functions, indexes):
        assert rows(database_url, query) == rows(empty_database_url, query)
