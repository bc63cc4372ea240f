"""The ledger in a SQLite database; ``ledger`` has its rules."""

from __future__ import annotations

import sqlite3

from penstock.sinks.ledger import NEXT_MOVE, Entry

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
    """The ledger beside the tables; the connection's transaction keeps other writers out."""

    next_move = NEXT_MOVE

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def create(self) -> None:
        """Make it when it is not there."""
        self.connection.execute(CREATE)

    def read(self, table: str) -> Entry | None:
        """The ledger's row of a table."""
        row = self.connection.execute(
            "SELECT job, output, checkpoint, batch, epoch FROM _penstock_ledger WHERE table_name = ?", (table,)
        ).fetchone()
        return None if row is None else Entry(*row)

    def columns(self, table: str) -> list[str]:
        """The names of a table's columns; none when there is no such table."""
        return [name for (name,) in self.connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]

    def add(self, table: str, entry: Entry) -> None:
        """A row for a table that has none."""
        self.connection.execute(
            "INSERT INTO _penstock_ledger (table_name, job, output, checkpoint, batch, epoch)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (table, *entry),
        )

    def take(self, table: str, epoch: int) -> None:
        """Note that this run writes the table."""
        self.connection.execute("UPDATE _penstock_ledger SET epoch = ? WHERE table_name = ?", (epoch, table))

    def record(self, table: str, batch: int) -> None:
        """Note that the batch is in the table."""
        self.connection.execute("UPDATE _penstock_ledger SET batch = ? WHERE table_name = ?", (batch, table))
