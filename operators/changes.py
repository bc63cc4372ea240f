"""The changes of a table as a stream: what was inserted, updated and deleted, net per batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.plan.columns import Columns
from penstock.plan.errors import PlanError
from penstock.plan.node import Mode, Node, step_name
from penstock.plan.step import Step
from penstock.plan.written import written_at
from penstock.state.bucket import BucketState
from penstock.state.changelog import net, settled
from penstock.state.edge import BUCKET, WEIGHT, Outcome, StepClock, Timeless
from penstock.windows.aggregates.codes import codes

OP = "op"


@dataclass(frozen=True)
class Changes(Step):
    """A row for each key that changed in a batch: the one that it has now, or of a deleted key the last one."""

    upstream: Node

    @property
    def columns(self) -> Columns:
        return Columns((OP, *self.upstream.columns.names), owner="the changes have")

    @property
    def time(self) -> str | None:
        return None

    @property
    def timed(self) -> bool:
        return False  # a change has no event time: the row that caused it may be of another table

    @property
    def mode(self) -> Mode:
        return "append"

    @property
    def key(self) -> tuple[str, ...]:
        return ()

    def describe(self) -> str:
        return f"changes '{self.name}' by {', '.join(self.upstream.key)}"


def changes(upstream: Node) -> Changes:
    """The node of ``changes()``."""
    if OP in {c.casefold() for c in upstream.columns.names}:
        raise PlanError(f"changes(): the table has a column {OP!r} of its own; rename it first. ({written_at()})")
    return Changes(upstream, name=f"changes_of_{step_name(upstream) or '_'.join(upstream.key)}")


@dataclass(frozen=True)
class ChangesKernel(Timeless):
    """Pairs of a row that goes and one that comes, by key; nothing is kept."""

    keys: tuple[str, ...]
    carried: tuple[str, ...]

    def combine(self, rows: pa.Table, previous_us: int | None) -> pa.Table:
        """The changes as they are."""
        return rows.select([*self.keys, *self.carried, WEIGHT, BUCKET])

    def step(self, state: BucketState, rows: Sequence[pa.Table], clock: StepClock) -> Outcome:
        """Say of each key what became of it."""
        if not rows:
            return Outcome(None, None)
        came = net(pa.concat_tables(rows).drop_columns([BUCKET]))
        if not came.num_rows:
            return Outcome(None, None)
        now, gone = settled(came, self.keys)
        group = codes([came[key] for key in self.keys])
        weights = came[WEIGHT].to_numpy()
        was_there = np.isin(group[weights > 0], group[weights < 0])
        ops = np.concatenate((np.where(was_there, "update", "insert"), np.full(gone.num_rows, "delete")))
        return Outcome(pa.concat_tables([now, gone]).add_column(0, OP, pa.array(ops, pa.string())), None)
