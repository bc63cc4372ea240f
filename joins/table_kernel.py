"""The kernel of the join of two tables: any change on one side meets the other side's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.joins.pairing import pairs, shared_groups
from penstock.state.bucket import BucketState
from penstock.state.changelog import Touched, net, touched, weighted
from penstock.state.edge import BUCKET, WEIGHT, Outcome, StepClock, TimelessJoin
from penstock.windows.aggregates.codes import codes, first_of_each
from penstock.windows.shapes import Ints, Mask


@dataclass(frozen=True)
class TableSide:
    """One side: its columns besides the key by which both meet, their types, and how its rows are told apart.

    ``within`` are the columns that tell rows of one key apart, none where a key has one row. A side that
    ``pads`` gives its rows alone where the other has none.
    """

    carried: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    within: tuple[str, ...]
    pads: bool


@dataclass(frozen=True)
class TableJoinKernel(TimelessJoin):
    """The changes of a join of tables whose changes come along edges 0 and 1.

    State is the rows of both sides by the key that they share. Of a key that changed on one side only, the rows
    of that side are not read, but for those that the changes are about. A null in a key meets nothing; but where
    both sides pad it is a key like any other, because two rows alone would have one key.
    """

    keys: tuple[str, ...]
    key_types: tuple[pa.DataType, ...]
    left: TableSide
    right: TableSide

    def combine(self, edge: int, rows: pa.Table, previous_us: int | None) -> pa.Table:
        """The changes as they are."""
        return rows.select([*self._schema(edge).names, WEIGHT, BUCKET])

    def step(self, state: BucketState, rows: Sequence[Sequence[pa.Table]], clock: StepClock) -> Outcome:
        """Change both sides, and tell what that does to the pairs and to the rows that stand alone."""
        came = [self._gathered(edge, tables) for edge, tables in enumerate(rows)]
        if not any(table.num_rows for table in came):
            return Outcome(None, None)
        groups = self._groups(came)
        lost, gained = [], []
        for edge, (side, group) in enumerate(zip((self.left, self.right), groups, strict=True)):
            if side.pads:
                lacking = net(came[edge].filter(pa.array(group < 0)))
                signs = lacking[WEIGHT].to_numpy()
                lost.append(self._alone(edge, lacking.filter(pa.array(signs < 0))))
                gained.append(self._alone(edge, lacking.filter(pa.array(signs > 0))))
        met = [
            (table.filter(pa.array(group >= 0)), group[group >= 0]) for table, group in zip(came, groups, strict=True)
        ]
        left, right = (self._touched(edge, state, met) for edge in (0, 1))
        pair = self._pairs(left, right, (left.goes, right.was), (left.stays, right.goes))
        lost.append(self._joined(left, right, *pair))
        pair = self._pairs(left, right, (left.comes, right.now), (left.stays, right.comes))
        gained.append(self._joined(left, right, *pair))
        for edge, (own, other) in enumerate(((left, right), (right, left))):
            if (self.left, self.right)[edge].pads:
                was, now = (np.isin(own.group, other.group[mask]) for mask in (other.was, other.now))
                lost.append(self._alone(edge, own.rows.filter(pa.array(own.was & ~was & (~own.now | now)))))
                gained.append(self._alone(edge, own.rows.filter(pa.array(own.now & ~now & (~own.was | was)))))
        changes = weighted(pa.concat_tables(lost), pa.concat_tables(gained))
        return Outcome(changes if changes.num_rows else None, None)

    def _groups(self, came: Sequence[pa.Table]) -> Sequence[Ints]:
        """The numbers of the keys of both sides; negative for a key that meets nothing."""
        left, right = (table.select(self.keys) for table in came)
        if not (self.left.pads and self.right.pads):
            return shared_groups(left.columns, right.columns)
        both = codes(pa.concat_tables([left, right]).columns)
        return both[: left.num_rows], both[left.num_rows :]

    def _schema(self, edge: int) -> pa.Schema:
        """What is held of a side."""
        side = (self.left, self.right)[edge]
        return pa.schema(zip((*self.keys, *side.carried), (*self.key_types, *side.types), strict=True))

    def _gathered(self, edge: int, tables: Sequence[pa.Table]) -> pa.Table:
        """The changes of a side as one table, every column free to hold nulls: as what is held."""
        schema = self._schema(edge).append(pa.field(WEIGHT, pa.int8()))
        return pa.concat_tables([schema.empty_table(), *(table.select(schema.names).cast(schema) for table in tables)])

    def _touched(self, edge: int, state: BucketState, met: Sequence[tuple[pa.Table, Ints]]) -> Touched:
        """The rows of a side that this batch is about, and its changes in the state."""
        side, other = (self.left, self.right)[edge], (self.right, self.left)[edge]
        (own, own_group), (others, other_group) = met[edge], met[1 - edge]
        table = state.table(("left", "right")[edge], self.keys, within=side.within, schema=self._schema(edge))
        # where the other side changed, or asks whether there is a row at all, the rows of a key are needed whole
        wanted, wanted_group = others.select(self.keys), other_group
        if other.pads:
            wanted = pa.concat_tables([wanted, own.select(self.keys)])
            wanted_group = np.concatenate((wanted_group, own_group))
        first = np.sort(np.unique(wanted_group, return_index=True)[1])
        at, held = table.find(wanted.take(pa.array(first)))
        held_group = wanted_group[first][at]
        rest = np.flatnonzero(~np.isin(own_group, wanted_group))
        spoken = own.take(pa.array(rest))
        same = codes([pa.array(own_group[rest]), *(spoken[name] for name in side.within)])
        first = np.flatnonzero(first_of_each(same))
        at, more = table.find_same(spoken.take(pa.array(first)))
        held = pa.concat_tables([held, more])
        held_group = np.concatenate((held_group, own_group[rest[first]][at]))
        found = touched(held, held_group, own, own_group, side.within)
        table.delete(found.rows.filter(pa.array(found.ends)))
        table.put(found.rows.filter(pa.array(found.comes)))
        return found

    def _pairs(self, left: Touched, right: Touched, *which: tuple[Mask, Mask]) -> tuple[Ints, Ints]:
        """The row numbers of the pairs of chosen left and right rows."""
        found = []
        for lefts, rights in which:
            mine, its = np.flatnonzero(lefts), np.flatnonzero(rights)
            none = np.zeros(max(len(mine), len(its)), np.int64)
            a, b = pairs(left.group[mine], none[: len(mine)], right.group[its], none[: len(its)], 0, 0)
            found.append((mine[a], its[b]))
        return np.concatenate([a for a, _ in found]), np.concatenate([b for _, b in found])

    def _joined(self, left: Touched, right: Touched, lefts: Ints, rights: Ints) -> pa.Table:
        mine, other = left.rows.take(pa.array(lefts)), right.rows.take(pa.array(rights))
        return self._given([*mine.columns, *other.select(self.right.carried).columns])

    def _alone(self, edge: int, rows: pa.Table) -> pa.Table:
        """Rows without a partner beside them."""
        sides = (self.left, self.right)
        nulls = [pa.nulls(rows.num_rows, kind) for kind in sides[1 - edge].types]
        own = [rows[name] for name in sides[edge].carried]
        return self._given([*(rows[k] for k in self.keys), *(own + nulls if edge == 0 else nulls + own)])

    def _given(self, columns: Sequence[pa.ChunkedArray | pa.Array]) -> pa.Table:
        return pa.table(list(columns), names=[*self.keys, *self.left.carried, *self.right.carried])
