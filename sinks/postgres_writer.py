"""Writes the outputs that go to one PostgreSQL database: copied aside, then all of a batch in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import psycopg
from psycopg import sql

from penstock.plan.errors import SinkError
from penstock.sinks import ledger
from penstock.sinks.base import Changes, Owner, Target, Writer
from penstock.sinks.postgres_database import Database
from penstock.sinks.postgres_ledger import PostgresLedger, columns_of, create
from penstock.sinks.postgres_staging import Staging, quoted
from penstock.sinks.postgres_table import LONGEST_NAME, PostgresTable
from penstock.sinks.postgres_values import declared

# the keys of a table in which these columns stand once at most, null or not
KEYS = """
SELECT 1 FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND i.indisunique AND (i.indnullsnotdistinct OR i.indisprimary)
AND i.indpred IS NULL AND i.indexprs IS NULL AND %s = (
    SELECT array_agg(a.attname::text ORDER BY a.attname::text COLLATE "C") FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
)
"""


class PostgresWriter(Writer):
    """Writes all outputs that go to one database.

    Rows that Spark has still to make are waited for outside of the transaction, which holds the ledger's row: so
    the transaction is short, and a run that takes over is not kept waiting.
    """

    def __init__(self, database: Database, targets: Sequence[Target], owner: Owner) -> None:
        self.database = database
        self.targets = targets
        self.owner = owner
        self._staging: dict[str, Staging] = {}
        with self._session() as connection:
            self._schemas = {target.output: schema_of(connection, target) for target in targets}
            self._claims = ledger.claims(targets, owner, self._place)
            with connection.transaction():
                for schema in sorted(set(self._schemas.values())):
                    create(connection, schema)
                for target in self._in_order(targets):
                    self._claims[target.output].take(self._book(connection, target))
                    if target.output in owner.take_over:
                        self._check_key(connection, target)

    def write(self, batch: int, changes: Mapping[str, Changes]) -> bool:
        with self._session() as connection:
            pending = [target for target in self.targets if self._recorded(connection, target) < batch]
            if not pending:
                return False
            staged = {t.output: self._staged(connection, t, changes[t.output]) for t in pending}
            with connection.transaction():
                for target in self._in_order(pending):
                    self._recorded(connection, target)  # again: a newer run may have come while rows were copied
                for target in pending:
                    self._make_table(connection, target, changes[target.output])
                    staged[target.output].apply()
                    if target is pending[0]:
                        self.worst_moment()
                    self._book(connection, target).record(batch)
        for target in pending:
            self._claims[target.output].newest = batch
        return True

    def close(self) -> None:
        self.database.close()

    def _staged(self, connection: psycopg.Connection, target: Target, changes: Changes) -> Staging:
        """The changes in temporary tables, which are kept from batch to batch."""
        staging = self._staging.get(target.output)
        if staging is None or not staging.fits(connection, changes):
            table = sql.Identifier(self._schemas[target.output], table_of(target))
            staging = Staging(connection, target, table, self.targets.index(target), changes.rows.schema)
            self._staging[target.output] = staging
        staging.fill(changes)
        return staging

    def _make_table(self, connection: psycopg.Connection, target: Target, changes: Changes) -> None:
        """Make the table when it is not there, and refuse one that has other columns."""
        wanted = [(f.name, declared(target.output, f.name, f.type)) for f in changes.rows.schema]
        there = self._book(connection, target).columns()
        if there:
            self._claims[target.output].check_columns(there, wanted)
        else:
            connection.execute(create_table(self._schemas[target.output], target, wanted))

    def _check_key(self, connection: psycopg.Connection, target: Target) -> None:
        """Refuse a table that was made by somebody else, and in which a key may stand twice."""
        schema, table = self._schemas[target.output], table_of(target)
        if not target.key or not columns_of(connection, schema, table):
            return
        if not connection.execute(KEYS, (schema, table, sorted(target.key))).fetchone():
            key = quoted(target.key).as_string(connection)
            raise SinkError(
                f"output {target.output!r}: {self._place(target)} can hold its key {', '.join(target.key)} twice. "
                f"ALTER TABLE it to ADD UNIQUE NULLS NOT DISTINCT ({key}), and take it over then."
            )

    def _in_order(self, targets: Sequence[Target]) -> list[Target]:
        """In an order that all runs agree on: who waits for whom is then never a circle."""
        return sorted(targets, key=lambda target: (self._schemas[target.output], table_of(target)))

    def _recorded(self, connection: psycopg.Connection, target: Target) -> int:
        return self._claims[target.output].recorded(self._book(connection, target))

    def _book(self, connection: psycopg.Connection, target: Target) -> PostgresLedger:
        return PostgresLedger(connection, self._schemas[target.output], table_of(target))

    def _place(self, target: Target) -> str:
        return f"table {self._schemas[target.output] + '.' + table_of(target)!r} in {self.database.place}"

    def _session(self) -> AbstractContextManager[psycopg.Connection]:
        return self.database.session(self.targets, self.owner.job)


def table_of(target: Target) -> str:
    """The table that an output goes to."""
    assert isinstance(target.sink, PostgresTable)
    return target.sink.table


def schema_of(connection: psycopg.Connection, target: Target) -> str:
    """The schema that an output's table is in; it must be there."""
    assert isinstance(target.sink, PostgresTable)
    asked = target.sink.schema
    query = "SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname = coalesce(%s, current_schema())"
    row = connection.execute(query, (asked,)).fetchone()
    if row is None:
        which = "the user's search path names no schema" if asked is None else f"there is no schema {asked!r}"
        raise SinkError(f"output {target.output!r}: {which}. Make it, or give another with schema=.")
    return str(row[0])


def create_table(schema: str, target: Target, columns: Sequence[tuple[str, str]]) -> sql.Composed:
    """The statement that makes a table; in its key nulls are equal."""
    for name, _ in columns:
        if len(name.encode()) > LONGEST_NAME:
            raise SinkError(
                f"output {target.output!r}, column {name!r}: PostgreSQL takes no name longer than {LONGEST_NAME} "
                f"bytes. Rename it before to()."
            )
    parts = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind)) for name, kind in columns]
    if target.key:
        key = sql.SQL(", ").join(map(sql.Identifier, target.key))
        parts.append(sql.SQL("UNIQUE NULLS NOT DISTINCT ({})").format(key))
    table = sql.Identifier(schema, table_of(target))
    return sql.SQL("CREATE TABLE {} ({})").format(table, sql.SQL(", ").join(parts))
