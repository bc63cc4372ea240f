"""What a ledger decides: whose a place is, which run writes it, and from which batch on.

Each kind of place keeps its ledger in its own way; the rules are these, once. A place must hold every batch of the
manifest, and of others only the one that was begun: else it is an older copy than the checkpoint, or a newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from penstock.plan.errors import SinkError
from penstock.sinks import refusals
from penstock.sinks.base import Owner, Target

NEXT_MOVE = "Give this output another table, or drop that one with its row in _penstock_ledger and replay"
Column = tuple[str, str]  # a name, and a type in the place's own words


class Entry(NamedTuple):
    """What the ledger says of a place."""

    job: str
    output: str
    checkpoint: str
    batch: int
    epoch: int


class Ledger(Protocol):
    """The ledger of one place; in a database, on an open transaction. ``next_move`` is for what is another's."""

    next_move: str

    def read(self) -> Entry | None:
        """Who writes the place, and the newest batch in it; in a transaction nobody else changes it before the end."""

    def columns(self) -> Sequence[Column]:
        """What is there; nothing when nothing is."""

    def take(self, entry: Entry) -> int:
        """Let the place say this, whatever it says now; the number of a run that came between, -1 for none."""

    def record(self, batch: int) -> None:
        """Note that the batch is there."""


class Claim:
    """One output's place as a run holds it: taken when the run begins, looked after before each batch."""

    def __init__(self, target: Target, owner: Owner, place: str) -> None:
        self.target = target
        self.owner = owner
        self.place = place
        self.newest = -1  # the newest batch that this run knows to be there; its writer says which it wrote

    def take(self, ledger: Ledger) -> None:
        """Take the place for this run, or refuse; in a database the caller holds the transaction."""
        owner, asked = self.owner, self.target.output in self.owner.take_over
        entry = ledger.read()
        try:
            batch = self._fitting(ledger, entry)
        except SinkError:
            if not asked:
                raise
            batch = -1
        before = entry.epoch if entry is not None and self._is_mine(entry) else -1
        # of two equal numbers the other would not find out that its place was taken
        if before == owner.epoch or (before > owner.epoch and not asked):
            raise refusals.fenced(self.target, owner, self.place, before)
        rival = ledger.take(Entry(owner.job, self.target.output, owner.checkpoint, batch, owner.epoch))
        now = ledger.read()
        if now is not None:
            self._check(ledger, now)
        if rival >= owner.epoch:
            raise refusals.fenced(self.target, owner, self.place, rival)
        self.newest = batch

    def recorded(self, ledger: Ledger) -> int:
        """The newest batch in the place, once it is sure that this run may still write there."""
        entry = ledger.read()
        if entry is None:
            raise refusals.gone(self.target, self.owner, self.place)
        self._check(ledger, entry)
        if entry.batch >= 0 and not ledger.columns():
            raise refusals.gone(self.target, self.owner, self.place)
        if entry.batch < self.newest:
            raise refusals.older_copy(self.target, self.owner, self.place, entry.batch, self.newest)
        if entry.epoch < self.owner.epoch:  # of a copy of the checkpoint that was told to take over
            raise refusals.fenced(self.target, self.owner, self.place, entry.epoch)
        return entry.batch

    def check_columns(
        self, there: Sequence[Column], wanted: Sequence[Column], fold: Callable[[str], str] = str
    ) -> None:
        """Refuse other names and other types, in whatever order; ``fold`` says which names are equal."""
        if sorted((fold(name), kind) for name, kind in there) != sorted((fold(name), kind) for name, kind in wanted):
            raise refusals.other_columns(self.target, self.place, there, wanted)

    def _fitting(self, ledger: Ledger, entry: Entry | None) -> int:
        """The newest batch in the place, when it is what the checkpoint leads one to expect."""
        target, owner, place = self.target, self.owner, self.place
        there, needed = ledger.columns(), owner.committed_to(target.output)
        if entry is None:
            if needed >= 0:
                raise refusals.gone(target, owner, place)
            if there:
                raise refusals.of_nobody(target, place, there)
            return -1
        if not self._is_mine(entry):
            raise refusals.belongs_to_another(target, owner, place, entry[:3], ledger.next_move)
        if not there and max(entry.batch, needed) >= 0:
            raise refusals.gone(target, owner, place)
        if entry.batch > max(owner.committed, owner.begun):
            raise refusals.older_checkpoint(target, owner, place, entry.batch)
        if entry.batch < needed:
            raise refusals.older_copy(target, owner, place, entry.batch, needed)
        if -1 < entry.batch < owner.committed:
            raise refusals.left_out(target, owner, place, entry.batch)
        return entry.batch

    def _check(self, ledger: Ledger, entry: Entry) -> None:
        """Refuse a place of somebody else's, or one that a newer run has taken."""
        if not self._is_mine(entry):
            raise refusals.belongs_to_another(self.target, self.owner, self.place, entry[:3], ledger.next_move)
        if entry.epoch > self.owner.epoch:
            raise refusals.fenced(self.target, self.owner, self.place, entry.epoch)

    def _is_mine(self, entry: Entry) -> bool:
        return entry[:3] == (self.owner.job, self.target.output, self.owner.checkpoint)


def claims(
    targets: Sequence[Target], owner: Owner, place: Callable[[Target], str], fold: Callable[[str], str] = str
) -> dict[str, Claim]:
    """A claim for each output, by its name; two outputs in one place are refused."""
    made: dict[str, Claim] = {}
    seen: dict[str, Target] = {}
    for target in targets:
        claim = made[target.output] = Claim(target, owner, place(target))
        other = seen.setdefault(fold(claim.place), target)
        if other is not target:
            raise refusals.shared([other, target], claim.place)
    return made
