"""The ledger in a PostgreSQL database, one beside the tables of each schema; ``ledger`` has its rules."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from penstock.sinks.ledger import NEXT_MOVE, Entry

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
    """The ledger of one schema. What is read in a transaction stays so until the transaction ends."""

    next_move = NEXT_MOVE

    def __init__(self, connection: psycopg.Connection, schema: str) -> None:
        self.connection = connection
        self.schema = schema

    def create(self) -> None:
        """Make it when it is not there; runs that begin together come here one after the other."""
        self.connection.execute("SELECT pg_advisory_xact_lock(%s)", (ONE_AT_A_TIME,))
        if not self.columns(NAME):
            self._run(CREATE)

    def read(self, table: str) -> Entry | None:
        """The ledger's row of a table; nobody else changes it before this transaction ends."""
        row = self._run(
            "SELECT job, output, checkpoint, batch, epoch FROM {ledger} WHERE table_name = %s FOR UPDATE", table
        ).fetchone()
        return None if row is None else Entry(*row)

    def columns(self, table: str) -> list[str]:
        """The names of a table's columns; none when there is no such table."""
        return [name for name, _ in self.types(table)]

    def types(self, table: str) -> list[tuple[str, str]]:
        """The names and types of a table's columns."""
        return self.connection.execute(COLUMNS, (self.schema, table)).fetchall()

    def add(self, table: str, entry: Entry) -> None:
        """A row for a table that has none."""
        self._run("INSERT INTO {ledger} VALUES (%s, %s, %s, %s, %s, %s)", table, *entry)

    def take(self, table: str, epoch: int) -> None:
        """Note that this run writes the table."""
        self._run("UPDATE {ledger} SET epoch = %s WHERE table_name = %s", epoch, table)

    def record(self, table: str, batch: int) -> None:
        """Note that the batch is in the table."""
        self._run("UPDATE {ledger} SET batch = %s WHERE table_name = %s", batch, table)

    def _run(self, statement: str, *values: object) -> psycopg.Cursor[Any]:
        # beside bound values psycopg reads a percent sign as one of its own
        ledger = sql.Identifier(self.schema.replace("%", "%%"), NAME)
        return self.connection.execute(sql.SQL(statement).format(ledger=ledger), values)
