"""Temporary tables that a batch is copied into before it changes the real one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import psycopg
import pyarrow as pa
from psycopg import sql

from penstock.sinks.base import Changes, Rows, Target
from penstock.sinks.postgres_values import as_csv, declared


class Staging:
    """The rows and the deletes of one output on their way; columns are ``c0``, ``c1``, ... in the order of the rows.

    ``row`` numbers the rows as they came: of two with one key the later wins.
    """

    def __init__(
        self, connection: psycopg.Connection, target: Target, table: sql.Identifier, number: int, schema: pa.Schema
    ) -> None:
        self.connection = connection
        self.target = target
        self.table = table
        self.schema = schema
        self._rows = sql.Identifier("pg_temp", f"penstock_rows_{number}")
        self._deletes = sql.Identifier("pg_temp", f"penstock_deletes_{number}")
        self._held = {"rows": False, "deletes": False}
        self._make(self._rows, schema.names, numbered=bool(target.key))
        if target.key:
            self._make(self._deletes, target.key, numbered=False)

    def fits(self, connection: psycopg.Connection, changes: Changes) -> bool:
        """True while it stands on this connection and has the columns of these rows."""
        return connection is self.connection and self.schema.equals(changes.rows.schema)

    def fill(self, changes: Changes) -> None:
        """Copy a batch in, in place of the one before."""
        self._held["rows"] = self._copy(self._rows, self.schema.names, changes.rows)
        if self.target.key:
            self._held["deletes"] = self._copy(self._deletes, self.target.key, changes.deletes)

    def apply(self) -> None:
        """Change the table by what was copied: deletes first."""
        if self._held["deletes"]:
            self._delete()
        if self._held["rows"]:
            self._upsert() if self.target.key else self._append()

    def _make(self, name: sql.Identifier, columns: Sequence[str], *, numbered: bool) -> None:
        parts = [sql.SQL("row bigint GENERATED ALWAYS AS IDENTITY")] if numbered else []
        for i, column in enumerate(columns):
            kind = declared(self.target.output, column, self.schema.field(column).type)
            parts.append(sql.SQL(f"c{i} {kind}"))  # the kinds are ours
        self._run("DROP TABLE IF EXISTS {name}", name=name)
        self._run("CREATE TEMPORARY TABLE {name} ({parts})", name=name, parts=sql.SQL(", ").join(parts))

    def _copy(self, name: sql.Identifier, columns: Sequence[str], rows: Rows | None) -> bool:
        """Copy rows into a table that is emptied first; False when there are none."""
        self._run("TRUNCATE {name}", name=name)
        if rows is None or (rows.table is not None and not rows.table.num_rows):
            return False
        copy = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(name, staged(range(len(columns))))
        with self.connection.cursor() as cursor:
            with cursor.copy(copy) as out:
                for batch in rows.batches():
                    if batch.num_rows:
                        out.write(as_csv(self.target.output, batch, list(columns)))
            return cursor.rowcount > 0

    def _append(self) -> None:
        self._run(
            "INSERT INTO {table} ({names}) SELECT {cells} FROM {rows}",
            names=quoted(self.schema.names), cells=staged(range(len(self.schema))), rows=self._rows,
        )  # fmt: skip

    def _upsert(self) -> None:
        others = [name for name in self.schema.names if name not in self.target.key]
        sets = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others]
        self._run(
            "INSERT INTO {table} ({names}) SELECT DISTINCT ON ({key_cells}) {cells} FROM {rows}"
            " ORDER BY {key_cells}, row DESC ON CONFLICT ({key}) DO {action}",
            names=quoted(self.schema.names),
            cells=staged(range(len(self.schema))),
            rows=self._rows,
            key=quoted(self.target.key),
            key_cells=staged(self.schema.names.index(name) for name in self.target.key),
            action=sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(sets)) if sets else sql.SQL("NOTHING"),
        )

    def _delete(self) -> None:
        """Delete by key. Only ``=`` and ``IS NULL`` use an index: so there is a statement for each pattern of nulls."""
        key = self.target.key
        asked = sql.SQL(", ").join([sql.SQL(f"c{i} IS NULL") for i in range(len(key))])
        for nulls in self._run("SELECT DISTINCT {asked} FROM {deletes}", asked=asked, deletes=self._deletes).fetchall():
            same = [
                sql.SQL(f"there.{{0}} IS NULL AND gone.c{i} IS NULL" if null else f"there.{{0}} = gone.c{i}").format(
                    sql.Identifier(name)
                )
                for i, (name, null) in enumerate(zip(key, nulls, strict=True))
            ]
            self._run(
                "DELETE FROM {table} AS there USING {deletes} AS gone WHERE {same}",
                deletes=self._deletes, same=sql.SQL(" AND ").join(same),
            )  # fmt: skip

    def _run(self, statement: str, **parts: sql.Composable) -> psycopg.Cursor[tuple[bool, ...]]:
        composed = sql.SQL(statement).format(table=self.table, **parts)
        return self.connection.execute(composed)


def quoted(names: Sequence[str]) -> sql.Composed:
    """Names of the user's, as SQL takes them."""
    return sql.SQL(", ").join(map(sql.Identifier, names))


def staged(numbers: Iterable[int]) -> sql.Composed:
    """The columns of a temporary table."""
    return sql.SQL(", ").join([sql.Identifier(f"c{i}") for i in numbers])
