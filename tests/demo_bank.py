"""The demo bank, installed once per test process and copied afterwards."""

import asyncio

import psycopg

from app.services.banks.service import BankService
from app.storage.database import Database
from tests.databases import libpq

# The rows are kept in tables of the same names in a separate schema.
_KEEP = """
    CREATE SCHEMA kept;
    DO $$ DECLARE name text; filled bool; BEGIN
        SET LOCAL session_replication_role = replica;
        FOR name IN SELECT tablename FROM pg_tables
            WHERE schemaname = 'public' AND tablename NOT IN ('alembic_version', 'projects')
        LOOP
            EXECUTE format('SELECT EXISTS (SELECT FROM public.%I)', name) INTO filled;
            CONTINUE WHEN NOT filled;
            EXECUTE format('CREATE TABLE kept.%I AS TABLE public.%I', name, name);
            EXECUTE format('DELETE FROM public.%I', name);
        END LOOP;
    END $$
"""
_COPY = """
    DO $$ DECLARE name text; BEGIN
        SET LOCAL session_replication_role = replica;
        FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'kept'
        LOOP
            EXECUTE format('INSERT INTO public.%1$I OVERRIDING SYSTEM VALUE TABLE kept.%1$I',
                name);
        END LOOP;
    END $$
"""


def keep_demo_bank(url: str) -> None:
    """Store the demo bank in an extra schema of an empty database, for `install_demo_bank`."""

    async def install() -> None:
        database = Database(url, pool_size=1)
        await BankService(database).ensure_demo_bank()
        await database.dispose()

    asyncio.run(install())
    with psycopg.connect(libpq(url)) as connection:
        connection.execute(_KEEP)


async def install_demo_bank(database: Database) -> None:
    """Do the same as `ensure_demo_bank` of the services, in a fraction of the time."""
    async with database.unit_of_work() as uow:
        connection = await uow.driver_connection()
        kept = await connection.execute("SELECT FROM pg_namespace WHERE nspname = 'kept'")
        named = await connection.execute("SELECT FROM banks WHERE name = 'demo'")
        if kept.rowcount and not named.rowcount:
            await connection.execute(_COPY)
    await BankService(database).ensure_demo_bank()
