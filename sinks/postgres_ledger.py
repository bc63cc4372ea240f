"""The ledger in a PostgreSQL database, one beside the tables of each schema; ``ledger`` has its rules."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from penstock.sinks.ledger import NEXT_MOVE, Column, Entry

NAME = "_penstock_ledger"
ONE_AT_A_TIME = 0x70656E73746F636B  # any number that all runs agree on
CREATE = """
CREATE TABLE {ledger} (
    table_name text NOT NULL PRIMARY KEY,
    job text NOT NULL,
    output text NOT NULL,
    checkpoint text NOT NULL,
    batch bigint NOT NULL,
    epoch bigint NOT NULL
)
"""
TAKE = """
INSERT INTO {ledger} VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (table_name) DO UPDATE SET job = excluded.job, output = excluded.output,
    checkpoint = excluded.checkpoint, batch = excluded.batch, epoch = excluded.epoch
"""
COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod)
FROM pg_catalog.pg_attribute
WHERE attrelid = (
    SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s
) AND attnum > 0 AND NOT attisdropped
ORDER BY attnum
"""


class PostgresLedger:
    """The ledger's row of a table. What is read in a transaction stays so until the transaction ends."""

    next_move = NEXT_MOVE

    def __init__(self, connection: psycopg.Connection, schema: str, table: str) -> None:
        self.connection = connection
        self.schema = schema
        self.table = table

    def read(self) -> Entry | None:
        """The row; nobody else changes it before this transaction ends."""
        row = self._run(
            "SELECT job, output, checkpoint, batch, epoch FROM {ledger} WHERE table_name = %s FOR UPDATE", self.table
        ).fetchone()
        return None if row is None else Entry(*row)

    def columns(self) -> list[Column]:
        """The table's columns."""
        return columns_of(self.connection, self.schema, self.table)

    def take(self, entry: Entry) -> int:
        """Write the row, in place of the one that is there."""
        # not a row anew: a run that waits for this one's end would not find the other, and take it to have gone
        self._run(TAKE, self.table, *entry)
        return -1

    def record(self, batch: int) -> None:
        """Note that the batch is in the table."""
        self._run("UPDATE {ledger} SET batch = %s WHERE table_name = %s", batch, self.table)

    def _run(self, statement: str, *values: object) -> psycopg.Cursor[Any]:
        return run(self.connection, self.schema, statement, *values)


def create(connection: psycopg.Connection, schema: str) -> None:
    """Make a schema's ledger when it is not there; runs that begin together come here one after the other."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (ONE_AT_A_TIME,))
    if not columns_of(connection, schema, NAME):
        run(connection, schema, CREATE)


def columns_of(connection: psycopg.Connection, schema: str, table: str) -> list[Column]:
    """The names and types of a table's columns; none when there is no such table."""
    return connection.execute(COLUMNS, (schema, table)).fetchall()


def run(connection: psycopg.Connection, schema: str, statement: str, *values: object) -> psycopg.Cursor[Any]:
    """Ask a schema's ledger."""
    # beside bound values psycopg reads a percent sign as one of its own
    ledger = sql.Identifier(schema.replace("%", "%%"), NAME)
    return connection.execute(sql.SQL(statement).format(ledger=ledger), values)
