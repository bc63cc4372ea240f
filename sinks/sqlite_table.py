"""Write results to tables of a SQLite database, all outputs of a batch in one transaction."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from penstock.plan.errors import PlanError
from penstock.plan.written import written_at
from penstock.sinks import ledger, refusals
from penstock.sinks.base import Changes, Owner, Rows, Sink, Target, Writer
from penstock.sinks.local_path import checked_path, local_path
from penstock.sinks.sqlite_ledger import CREATE, SqliteLedger
from penstock.sinks.sqlite_values import form_of

WAIT_S = 5.0  # for another program that is writing to the database; then the batch is tried again
NEXT_MOVE = "See that it is a SQLite database, that this user may write it, and that no program keeps it locked."
MAKE_ROOM = "Rows wait there before they are written. Make room there, or let TMPDIR name another folder."


def sqlite(path: str | os.PathLike[str], table: str) -> SqliteTable:
    """Write to a table of a SQLite database: a Stream is appended, a Table upserted by its key.

    The first batch makes the table. Outputs in one database change in one transaction, with the ledger
    ``_penstock_ledger``. Integers, floats, text and bytes are SQLite's own; booleans are 0 and 1; decimals
    are text with all digits; timestamps are text like ``2026-01-01T10:00:00.000000Z``, always with six
    digits of fraction so that they sort as text, without the Z if they are no instants; dates are text like
    ``2026-01-01``; NaN, Infinity and -Infinity are text; intervals are microseconds; arrays, structs and
    maps are JSON text. Null is a key like any other.

    >>> sqlite("out/shop.db", "ctr").describe()
    'table ctr in out/shop.db'
    """
    step = "sinks.sqlite"
    path = checked_path(step, path)
    if path == ":memory:":
        raise PlanError(f"{step}({path!r}, {table!r}): nobody could read it. Use sinks.memory(name). ({written_at()})")
    if not table or "\0" in table or table.lower().startswith(("sqlite_", "_penstock_")):
        raise PlanError(f"{step}({path!r}, {table!r}): the table cannot have this name. Give another. ({written_at()})")
    return SqliteTable(path, table)


@dataclass(frozen=True)
class SqliteTable(Sink):
    """A table of a SQLite database."""

    path: str
    table: str

    upserts: ClassVar[bool] = True
    transactional: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.table

    @property
    def place(self) -> str:
        return str(local_path(self.path))

    def describe(self) -> str:
        return f"table {self.table} in {self.path}"

    def writer(self, targets: Sequence[Target], owner: Owner) -> SqliteWriter:
        return SqliteWriter(local_path(self.path), targets, owner)


class SqliteWriter(Writer):
    """Writes all outputs that go to one database.

    Each write opens the database anew and never makes it: a file that was removed under a running job
    is noticed, where a connection that stays open would go on writing to the removed one. Rows that Spark
    has still to make are waited for outside of the transaction, which locks the database for others.
    """

    def __init__(self, database: Path, targets: Sequence[Target], owner: Owner) -> None:
        self.database = database
        self.targets = targets
        self.claims = ledger.claims(targets, owner, lambda t: f"table {table_of(t)!r} in {database}", str.lower)
        held = [t for t in targets if owner.committed_to(t.output) >= 0 and t.output not in owner.take_over]
        if held and not database.exists():
            raise refusals.gone(held[0], owner, str(database))
        with self._environment():
            database.parent.mkdir(parents=True, exist_ok=True)
            with self._transaction("rwc") as connection:
                connection.execute(CREATE)
                for target in targets:
                    self.claims[target.output].take(SqliteLedger(connection, table_of(target)))

    def write(self, batch: int, changes: Mapping[str, Changes]) -> bool:
        with self._environment(), ExitStack() as brought:
            with self._transaction("rw") as connection:
                pending = self._pending(connection, batch)
            here = {t.output: self._brought(changes[t.output], brought) for t in pending}
            with self._transaction("rw") as connection:
                # again: a newer run may have come while rows were brought
                for target in self._pending(connection, batch):
                    self._write_changes(connection, target, here[target.output])
                    if target is pending[0]:
                        self.worst_moment()
                    SqliteLedger(connection, table_of(target)).record(batch)
        for target in pending:
            self.claims[target.output].newest = batch
        return bool(pending)

    def _pending(self, connection: sqlite3.Connection, batch: int) -> list[Target]:
        """The outputs that lack the batch, once it is sure that this run may write to all of them."""
        books = [(target, SqliteLedger(connection, table_of(target))) for target in self.targets]
        return [target for target, book in books if self.claims[target.output].recorded(book) < batch]

    def _brought(self, changes: Changes, brought: ExitStack) -> Changes:
        """The changes with all their rows in this process."""
        with refusals.environment(self.targets, tempfile.gettempdir(), MAKE_ROOM):
            rows = brought.enter_context(changes.rows.brought())
            deletes = changes.deletes and brought.enter_context(changes.deletes.brought())
        return Changes(rows, deletes)

    def _write_changes(self, connection: sqlite3.Connection, target: Target, changes: Changes) -> None:
        """Apply a batch's changes to one table, which is made when it is not there."""
        table, schema = table_of(target), changes.rows.schema
        there = SqliteLedger(connection, table).columns()
        if there:
            wanted = [(field.name, form_of(field.name, field.type).declared) for field in schema]
            self.claims[target.output].check_columns(there, wanted, str.lower)
        else:
            connection.execute(create_table(table, schema, target.key))
        if changes.deletes is not None:
            delete(connection, table, target.key, changes.deletes)
        upsert(connection, table, target.key, changes.rows)

    @contextmanager
    def _transaction(self, mode: str) -> Iterator[sqlite3.Connection]:
        # isolation_level None: the module must not begin and commit transactions of its own
        address = f"{self.database.as_uri()}?mode={mode}"
        with closing(sqlite3.connect(address, uri=True, timeout=WAIT_S, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.execute("COMMIT")

    def _environment(self) -> AbstractContextManager[None]:
        return refusals.environment(self.targets, str(self.database), NEXT_MOVE)


def table_of(target: Target) -> str:
    """The table that an output goes to."""
    assert isinstance(target.sink, SqliteTable)
    return target.sink.table


def delete(connection: sqlite3.Connection, table: str, key: tuple[str, ...], rows: Rows) -> None:
    """Delete the rows that have these keys."""
    statement = delete_by(table, key)
    for batch in rows.batches():
        connection.executemany(statement, zip(*stored(batch, key), strict=True))


def upsert(connection: sqlite3.Connection, table: str, key: tuple[str, ...], rows: Rows) -> None:
    """Insert rows, in place of those that have their keys."""
    statement = insert_into(table, rows.schema.names)
    at = [rows.schema.names.index(name) for name in key]
    for batch in rows.batches():
        values = list(zip(*stored(batch, batch.schema.names), strict=True))
        if key:
            # delete and insert, not REPLACE: nulls are distinct in SQLite's keys and equal in ours
            latest = {tuple(row[i] for i in at): row for row in values}
            connection.executemany(delete_by(table, key), latest.keys())
            connection.executemany(statement, latest.values())
        else:
            connection.executemany(statement, values)


def stored(batch: pa.RecordBatch, names: Sequence[str]) -> list[list[Any]]:
    """The named columns, as SQLite is given them."""
    return [form_of(name, batch.column(name).type).stored(batch.column(name)) for name in names]


def create_table(table: str, schema: pa.Schema, key: tuple[str, ...]) -> str:
    """The statement that makes a table for these columns.

    >>> create_table("by page", pa.schema({"page": pa.string(), "n": pa.int64()}), ("page",))
    'CREATE TABLE "by page" ("page" TEXT, "n" BIGINT, PRIMARY KEY ("page"))'
    """
    parts = [f"{quoted(field.name)} {form_of(field.name, field.type).declared}" for field in schema]
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
    return f"CREATE TABLE {quoted(table)} ({', '.join(parts)})"


def insert_into(table: str, names: Sequence[str]) -> str:
    """The statement that inserts a row.

    >>> insert_into("t", ["a", "b"])
    'INSERT INTO "t" ("a", "b") VALUES (?, ?)'
    """
    marks = ", ".join("?" * len(names))
    return f"INSERT INTO {quoted(table)} ({', '.join(map(quoted, names))}) VALUES ({marks})"


def delete_by(table: str, key: Sequence[str]) -> str:
    """The statement that deletes the rows of one key, null as a value like any other.

    >>> delete_by("t", ["a", "b"])
    'DELETE FROM "t" WHERE "a" IS ? AND "b" IS ?'
    """
    return f"DELETE FROM {quoted(table)} WHERE {' AND '.join(f'{quoted(name)} IS ?' for name in key)}"


def quoted(name: str) -> str:
    """A name as SQL takes it, whatever is in it.

    >>> print(quoted('a "b" c'))
    "a ""b"" c"
    """
    return '"' + name.replace('"', '""') + '"'
