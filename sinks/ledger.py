"""What a ledger in a database decides: who may write a table, in which run, and from which batch on.

The SQL is each database's own; the rules are these, once.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from penstock.plan.errors import SinkError
from penstock.sinks import refusals
from penstock.sinks.base import Owner, Target

NEXT_MOVE = "Give this output another table, or drop that one with its row in _penstock_ledger and replay."


class Entry(NamedTuple):
    """What the ledger says of a table."""

    job: str
    output: str
    checkpoint: str
    batch: int
    epoch: int


class Ledger(Protocol):
    """The ledger of the database that a transaction is open on; ``next_move`` is for a table that is another's."""

    next_move: str

    def read(self, table: str) -> Entry | None:
        """The ledger's row of a table; nobody else changes it before this transaction ends."""

    def columns(self, table: str) -> list[str]:
        """The names of a table's columns; none when there is no such table."""

    def add(self, table: str, entry: Entry) -> None:
        """A row for a table that has none."""

    def take(self, table: str, epoch: int) -> None:
        """Note that this run writes the table."""

    def record(self, table: str, batch: int) -> None:
        """Note that the batch is in the table."""


def claim(ledger: Ledger, target: Target, table: str, owner: Owner, place: str) -> None:
    """Take a table for this run, or refuse; the caller holds the transaction."""
    entry = ledger.read(table)
    there = ledger.columns(table)
    if entry is None:
        if owner.committed_to(target.output) >= 0:
            raise refusals.gone(target, owner, place)
        if there:
            raise SinkError(
                f"output {target.output!r}: {place} is there already and no job owns it; "
                f"it has columns {', '.join(there)}. Give this output another table, or drop that one."
            )
        ledger.add(table, Entry(owner.job, target.output, owner.checkpoint, -1, owner.epoch))
        return
    check(ledger, entry, target, owner, place)
    if not there and max(entry.batch, owner.committed_to(target.output)) >= 0:
        raise refusals.gone(target, owner, place)
    if entry.batch < owner.committed_to(target.output):
        raise SinkError(
            f"output {target.output!r}: {place} stands at batch {entry.batch}, but job {owner.job!r} "
            f"(checkpoint {owner.checkpoint}) has written batch {owner.committed}: it is an older copy. "
            f"Bring back the newer one, or replay the job with a new checkpoint and a new or removed output."
        )
    ledger.take(table, owner.epoch)


def recorded(ledger: Ledger, target: Target, table: str, owner: Owner, place: str) -> int:
    """The newest batch in the table, once it is sure that this run may still write there."""
    entry = ledger.read(table)
    if entry is None:
        raise refusals.gone(target, owner, place)
    check(ledger, entry, target, owner, place)
    if entry.batch >= 0 and not ledger.columns(table):
        raise refusals.gone(target, owner, place)
    return entry.batch


def check(ledger: Ledger, entry: Entry, target: Target, owner: Owner, place: str) -> None:
    """Refuse a table of somebody else's, or one that a newer run has taken."""
    if entry[:3] != (owner.job, target.output, owner.checkpoint):
        raise refusals.belongs_to_another(target, owner, place, entry[:3], ledger.next_move)
    if entry.epoch > owner.epoch:
        raise refusals.fenced(target, owner, place, entry.epoch)
