"""The ledger in a SQLite database: who writes each table, in which run, and up to which batch."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from penstock.plan.errors import SinkError
from penstock.sinks import refusals
from penstock.sinks.base import Owner, Target

NEXT_MOVE = "Give this output another table, or drop that one with its row in _penstock_ledger and replay."

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


class Entry(NamedTuple):
    """What the ledger says of a table."""

    job: str
    output: str
    checkpoint: str
    batch: int
    epoch: int


def claim(connection: sqlite3.Connection, target: Target, table: str, owner: Owner, place: str) -> None:
    """Take a table for this run, or refuse; the caller holds the transaction."""
    connection.execute(CREATE)
    entry = read(connection, table)
    there = columns(connection, table)
    place = f"table {table!r} in {place}"
    if entry is None:
        if owner.committed_to(target.output) >= 0:
            raise refusals.gone(target, owner, place)
        if there:
            raise SinkError(
                f"output {target.output!r}: {place} is there already and no job owns it; "
                f"it has columns {', '.join(there)}. Give this output another table, or drop that one."
            )
        connection.execute(
            "INSERT INTO _penstock_ledger (table_name, job, output, checkpoint, batch, epoch)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (table, owner.job, target.output, owner.checkpoint, -1, owner.epoch),
        )
        return
    check(entry, target, owner, place)
    if not there and max(entry.batch, owner.committed_to(target.output)) >= 0:
        raise refusals.gone(target, owner, place)
    if entry.batch < owner.committed_to(target.output):
        raise SinkError(
            f"output {target.output!r}: {place} stands at batch {entry.batch}, but job {owner.job!r} "
            f"(checkpoint {owner.checkpoint}) has written batch {owner.committed}: it is an older copy. "
            f"Bring back the newer one, or replay the job with a new checkpoint and a new or removed output."
        )
    connection.execute("UPDATE _penstock_ledger SET epoch = ? WHERE table_name = ?", (owner.epoch, table))


def recorded(connection: sqlite3.Connection, target: Target, table: str, owner: Owner, place: str) -> int:
    """The newest batch in the table, once it is sure that this run may still write there."""
    entry = read(connection, table)
    place = f"table {table!r} in {place}"
    if entry is None:
        raise refusals.gone(target, owner, place)
    check(entry, target, owner, place)
    return entry.batch


def record(connection: sqlite3.Connection, table: str, batch: int) -> None:
    """Note that the batch is in the table."""
    connection.execute("UPDATE _penstock_ledger SET batch = ? WHERE table_name = ?", (batch, table))


def check(entry: Entry, target: Target, owner: Owner, place: str) -> None:
    """Refuse a table of somebody else's, or one that a newer run has taken."""
    if entry[:3] != (owner.job, target.output, owner.checkpoint):
        raise refusals.belongs_to_another(target, owner, place, entry[:3], NEXT_MOVE)
    if entry.epoch > owner.epoch:
        raise refusals.fenced(target, owner, place, entry.epoch)


def read(connection: sqlite3.Connection, table: str) -> Entry | None:
    """The ledger's row of a table."""
    row = connection.execute(
        "SELECT job, output, checkpoint, batch, epoch FROM _penstock_ledger WHERE table_name = ?", (table,)
    ).fetchone()
    return None if row is None else Entry(*row)


def columns(connection: sqlite3.Connection, table: str) -> list[str]:
    """The names of a table's columns; none when there is no such table."""
    return [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
