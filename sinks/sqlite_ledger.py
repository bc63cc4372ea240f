"""The ledger in a SQLite database; ``ledger`` has its rules."""

from __future__ import annotations

import sqlite3

from penstock.sinks.ledger import NEXT_MOVE, Column, Entry

# names of tables are equal in SQLite when they differ in case only
CREATE = """
CREATE TABLE IF NOT EXISTS _penstock_ledger (
    table_name TEXT NOT NULL PRIMARY KEY COLLATE NOCASE,
    job TEXT NOT NULL,
    output TEXT NOT NULL,
    checkpoint TEXT NOT NULL,
    batch BIGINT NOT NULL,
    epoch BIGINT NOT NULL
)
"""


class SqliteLedger:
    """The ledger's row of a table; the connection's transaction keeps other writers out."""

    next_move = NEXT_MOVE

    def __init__(self, connection: sqlite3.Connection, table: str) -> None:
        self.connection = connection
        self.table = table

    def read(self) -> Entry | None:
        """The row."""
        row = self.connection.execute(
            "SELECT job, output, checkpoint, batch, epoch FROM _penstock_ledger WHERE table_name = ?", (self.table,)
        ).fetchone()
        return None if row is None else Entry(*row)

    def columns(self) -> list[Column]:
        """The table's columns as they were declared."""
        return self.connection.execute("SELECT name, upper(type) FROM pragma_table_info(?)", (self.table,)).fetchall()

    def take(self, entry: Entry) -> int:
        """Write the row, in place of the one that is there."""
        self.connection.execute(
            "INSERT OR REPLACE INTO _penstock_ledger (table_name, job, output, checkpoint, batch, epoch)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (self.table, *entry),
        )
        return -1

    def record(self, batch: int) -> None:
        """Note that the batch is in the table."""
        self.connection.execute("UPDATE _penstock_ledger SET batch = ? WHERE table_name = ?", (batch, self.table))
