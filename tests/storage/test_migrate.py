import os
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from procrastinate.schema import SchemaManager
from psycopg.types.json import Jsonb

from app.errors import DatabaseUnavailableError, InvalidStateError
from app.storage.migrate import upgrade
from tests.databases import libpq
from tests.servers.forked import Forked

_ROOT = Path(__file__).parents[2]
_MIGRATIONS = _ROOT / "migrations"


def _rows(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        return connection.execute(query.encode()).fetchall()


def _tables(url: str) -> set[str]:
    user_schemas = "schemaname IN ('public', 'procrastinate')"
    return {row[0] for row in _rows(url, f"SELECT tablename FROM pg_tables WHERE {user_schemas}")}


def _config(url: str) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["url"] = url
    return config


def test_an_upgrade_makes_the_tables_of_sextant_and_of_its_queue(empty_database_url: str) -> None:
    revision = upgrade(empty_database_url)
    assert {"api_keys", "banks", "sessions", "procrastinate_jobs"} <= _tables(empty_database_url)
    assert _rows(empty_database_url, "SELECT version_num FROM alembic_version") == [(revision,)]


def test_a_second_upgrade_changes_nothing(database_url: str) -> None:
    before = _tables(database_url)
    upgrade(database_url)
    assert _tables(database_url) == before


def test_the_migrations_make_what_the_code_declares(database_url: str) -> None:
    command.check(_config(database_url))


def test_all_migrations_can_be_undone_and_done_again(database_url: str) -> None:
    before = _tables(database_url)
    command.downgrade(_config(database_url), "base")
    assert _tables(database_url) == {"alembic_version"}
    upgrade(database_url)
    assert _tables(database_url) == before


def test_processes_that_upgrade_at_once_do_not_get_in_each_others_way(
    empty_database_url: str,
) -> None:
    env = {**os.environ, "DATABASE_URL": libpq(empty_database_url)}
    processes = [Forked(["sextant", "migrate"], env=env) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert "sessions" in _tables(empty_database_url)


def test_a_database_of_a_newer_sextant_is_refused(database_url: str) -> None:
    with psycopg.connect(database_url.replace("+psycopg", "")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'from_the_future'")
    with pytest.raises(
        InvalidStateError, match=r"written by a newer Sextant .*from_the_future.*Upgrade"
    ):
        upgrade(database_url)


def test_a_database_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailableError, match="could not be migrated"):
        upgrade(f"postgresql+psycopg://u@/x?host={tmp_path}")


def test_the_queue_has_the_schema_that_its_installed_version_wants(
    database_url: str, empty_database_url: str
) -> None:
    """Fails when a new version of the queue brings migrations that ours do not apply yet."""
    with psycopg.connect(empty_database_url.replace("+psycopg", "")) as connection:
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
        assert _rows(database_url, query) == _rows(empty_database_url, query)


def test_results_of_few_answers_that_are_stored_are_told_no_more(database_url: str) -> None:
    config = _config(database_url)
    command.downgrade(config, "4f7a1c93d2e8")
    estimate = {"theta": 8.65e-17, "se": 1.0, "ci": [-1.96, 1.96], "ci_raw": None}
    estimate |= {"method": "eap", "at_bound": False}
    entry = {"rank_lo": 1, "rank_hi": 1, "group": 1, "theta": 0.3, "se": 0.5}
    with psycopg.connect(database_url.replace("+psycopg", "")) as connection:
        connection.execute("SET session_replication_role = replica")  # no foreign keys
        for n, scored in enumerate((2, 5)):
            summary = {
                "estimate": estimate,
                "accuracy": {"value": 0.36, "lo": 0.3, "hi": 0.4},
                "progress": {"items": 40, "scored": scored},
            }
            _insert(connection, "sessions", n, summary, status="completed", mode="manual")
        order = [{**entry, "scored": scored} for scored in (9, 3)]
        _insert(connection, "rankings", 2, {"order": order}, status="completed")

    upgrade(database_url)

    few, enough = (
        row[0] for row in _rows(database_url, "SELECT summary FROM sessions ORDER BY id")
    )
    assert few["accuracy"] is few["estimate"]["theta"] is few["estimate"]["se"] is None
    assert few["estimate"]["ci"] == [None, None]
    assert few["estimate"]["reason"].startswith("Fewer than 5 answers")
    assert few["progress"] == {"items": 40, "scored": 2}
    assert enough["estimate"] == estimate
    ((ranked,),) = _rows(database_url, "SELECT summary -> 'order' FROM rankings")
    assert [one["theta"] for one in ranked] == [0.3, None]
    assert [(one["rank_lo"], one["rank_hi"]) for one in ranked] == [(1, 1), (1, 2)]


def test_what_is_stored_already_is_counted_for_the_key_that_made_it(database_url: str) -> None:
    command.downgrade(_config(database_url), "4b9e2d70c6a1")
    with psycopg.connect(database_url.replace("+psycopg", "")) as connection:
        connection.execute("SET session_replication_role = replica")  # no foreign keys, no counts
        for n, made_by in enumerate(("key_a", "key_b")):
            given = {"status": "completed", "mode": "manual", "created_by": made_by}
            _insert(connection, "sessions", n, {}, **given)
        for made in ("row_0", "row_1", "gone"):
            connection.execute("INSERT INTO stored_bytes VALUES (%s, 'prj', 7)", [made])

    upgrade(database_url)

    counted = "SELECT resource_id, created_by, bytes FROM stored_bytes ORDER BY 1"
    assert _rows(database_url, counted) == [
        ("gone", None, 7),
        ("row_0", "key_a", 7),
        ("row_1", "key_b", 7),
    ]


def test_stored_designs_ask_for_margins_of_the_score(database_url: str) -> None:
    command.downgrade(_config(database_url), "7d4a19c8e2f6")
    rule = {"prediction_width": 0.2, "any_of": [], "all_of": []}
    stopping = {"se": None, "prediction_width": 0.1, "any_of": [rule, {"se": 0.3}], "all_of": []}
    design = {"preset": "default", "stopping": stopping, "concurrency": 1}
    plan = {"rules": {}, "asking": {"preset": "atlas", "stopping": rule}}
    result = {"accuracy": {"value": 0.36, "lo": 0.3, "hi": 0.4}}
    with psycopg.connect(database_url.replace("+psycopg", "")) as connection:
        connection.execute("SET session_replication_role = replica")  # no foreign keys
        given = {"status": "completed", "stop_reason": "prediction_width"}
        _insert(connection, "sessions", 0, result, mode="manual", design=Jsonb(design), **given)
        _insert(connection, "rankings", 1, {}, settings=Jsonb(plan), **given)

    upgrade(database_url)

    of_session = "SELECT design, summary, stop_reason FROM sessions"
    ((read, summary, reason),) = _rows(database_url, of_session)
    margin = {"score_margin": 0.1, "any_of": [], "all_of": []}
    kept = {"se": None, "score_margin": 0.05, "any_of": [margin, {"se": 0.3}], "all_of": []}
    assert read == {"preset": "ability", "stopping": kept, "concurrency": 1}
    assert (summary, reason) == (result, "score_margin")
    asked = {"preset": "atlas", "stopping": margin}
    assert _rows(database_url, "SELECT settings -> 'asking' FROM rankings") == [(asked,)]


def _insert(
    connection: psycopg.Connection[Any], table: str, n: int, summary: dict[str, Any], **given: Any
) -> None:
    """A row with `summary`, and something of the right type in every other column that needs it."""
    needed = connection.execute(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = %s "
        "AND table_schema = 'public' AND is_nullable = 'NO' AND column_default IS NULL "
        "AND is_identity = 'NO'",
        [table],
    ).fetchall()
    filler: dict[str, Any] = {"jsonb": Jsonb({}), "timestamp with time zone": "now", "text": "x"}
    values = {name: filler.get(kind, 1) for name, kind in needed}
    values |= {"id": f"row_{n}", "summary": Jsonb(summary), **given}
    columns, marks = ", ".join(values), ", ".join(["%s"] * len(values))
    connection.execute(
        f"INSERT INTO {table} ({columns}) VALUES ({marks})".encode(), list(values.values())
    )
