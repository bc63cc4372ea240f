"""The two sides of a join in one batch: what came, and what is held near it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from penstock.joins.held_side import NUMBER, ORDER, WAITS, HeldSide, Role
from penstock.joins.pairing import has_partner, pairs, shared_groups, without_key
from penstock.state.edge import LATE, TIME
from penstock.windows.shapes import Ints, Mask


@dataclass(frozen=True)
class Rows:
    """Rows of one side with the numbers of their keys; one that is negative has a null in its key."""

    table: pa.Table
    group: Ints

    @cached_property
    def time_us(self) -> Ints:
        """Their times."""
        return np.asarray(self.table[TIME].to_numpy(), np.int64)

    def chosen(self, which: Mask) -> Rows:
        """Some of the rows."""
        return self if which.all() else Rows(self.table.filter(pa.array(which)), self.group[which])


@dataclass(frozen=True)
class Meeting:
    """What came for each side, left and right, and what is held near that; all but held rows meet each other."""

    roles: tuple[Role, Role]
    came: tuple[Rows, Rows]
    held: tuple[Rows, Rows]

    @classmethod
    def of(cls, roles: tuple[Role, Role], held: Sequence[HeldSide], rows: Sequence[Sequence[pa.Table]]) -> Meeting:
        """The rows that came are without those that can neither meet another nor come out alone."""
        tables = [_gathered(role, tables) for role, tables in zip(roles, rows, strict=True)]
        keys = [table.select(role.side.keys) for role, table in zip(roles, tables, strict=True)]
        groups = shared_groups(keys[0].columns, keys[1].columns)
        came = Rows(tables[0], groups[0]), Rows(tables[1], groups[1])
        known = []
        for role, side, other in zip(roles, held, (1, 0), strict=True):
            asked = roles[other]
            first_us, last_us = (came[other].time_us + us for us in (asked.first_us, asked.last_us))
            group, table = side.find(keys[other], groups[other], first_us, last_us)
            known.append(Rows(_no_rows((*role.columns, NUMBER, WAITS)) if table is None else table, group))
        return cls(roles, came, (known[0], known[1]))

    def pairs(self) -> tuple[Ints, Ints]:
        """The left and the right row of each pair; on either side what came is numbered first, then what is held."""
        (left, right), (held_left, held_right) = self.came, self.held
        bounds = self.roles[0].first_us, self.roles[0].last_us
        group, time_us = _parts(right, held_right)
        came_left, with_right = pairs(left.group, left.time_us, group, time_us, *bounds)
        was_left, came_right = pairs(held_left.group, held_left.time_us, right.group, right.time_us, *bounds)
        was_left += len(left.group)
        return np.concatenate((came_left, was_left)), np.concatenate((with_right, came_right))

    def left_with_a_partner(self) -> tuple[Mask, Mask]:
        """Which left rows have a partner, of those that came and of those that are held."""
        (left, right), (held_left, held_right) = self.came, self.held
        bounds = self.roles[0].first_us, self.roles[0].last_us
        others = _parts(right, held_right)
        found = has_partner(left.group, left.time_us, *others, *bounds)
        return found, has_partner(held_left.group, held_left.time_us, right.group, right.time_us, *bounds)

    def late_right_with_a_partner(self, late: Mask, open_held: Mask) -> Mask:
        """Which of the right rows that came are late and have a partner, of held ones only among ``open_held``."""
        left, right, found = self.came[0], self.came[1].chosen(late), late.copy()
        others = _parts(left, self.held[0].chosen(open_held))
        bounds = self.roles[1].first_us, self.roles[1].last_us
        found[late] = has_partner(right.group, right.time_us, *others, *bounds)
        return found

    def joined(self, lefts: Ints, rights: Ints) -> pa.Table:
        """The pairs as results: their time, and order of arrival, is that of the later row."""
        left, right = (self._taken(edge, chosen) for edge, chosen in enumerate((lefts, rights)))
        later = right[TIME].to_numpy() > left[TIME].to_numpy()
        order = [pa.array(np.where(later, right[name].to_numpy(), left[name].to_numpy())) for name in ORDER]
        first, second = (role.side for role in self.roles)
        columns = [*(left[name] for name in (*first.keys, *first.carried)), *(right[name] for name in second.carried)]
        return pa.table([*columns, *order], names=self._names)

    def alone(self, edge: int, rows: pa.Table) -> pa.Table:
        """Rows without a partner, or without it beside them, as results."""
        own, other = self.roles[edge].side, self.roles[1 - edge].side
        carried = [rows[name] for name in own.carried]
        if self.roles[edge].pads:
            nulls = [pa.nulls(rows.num_rows, kind) for kind in other.types or [pa.null()] * len(other.carried)]
            carried = [*carried, *nulls] if edge == 0 else [*nulls, *carried]
        columns = [*(rows[name] for name in own.keys), *carried, *(rows[name] for name in ORDER)]
        return pa.table(columns, names=self._names)

    @property
    def _names(self) -> list[str]:
        shown = [name for role in self.roles if role.shown for name in role.side.carried]
        return [*self.roles[0].side.keys, *shown, *ORDER]

    def _taken(self, edge: int, chosen: Ints) -> pa.Table:
        """Rows by number, with the columns that results need of them."""
        role = self.roles[edge]
        parts = [rows.table.select(role.columns) for rows in (self.came[edge], self.held[edge]) if len(rows.group)]
        return pa.concat_tables(parts).take(pa.array(chosen))


def useful(role: Role, rows: pa.Table) -> pa.Table:
    """The rows that can meet another, or come out alone."""
    if role.waits:
        return rows
    lacking = without_key(rows.select(role.side.keys).columns)
    return rows.filter(pa.array(~lacking)) if lacking.any() else rows


def _gathered(role: Role, tables: Sequence[pa.Table]) -> pa.Table:
    """The tables of a side as one, every column free to hold nulls: as what is held, and what is padded."""
    names = [*role.columns, *([LATE] if tables and LATE in tables[0].column_names else [])]
    if not tables:
        return _no_rows(names)
    return useful(role, pa.concat_tables(pa.table([table[n] for n in names], names=names) for table in tables))


def _no_rows(names: Sequence[str]) -> pa.Table:
    return pa.table({name: pa.nulls(0) for name in names})


def _parts(came: Rows, held: Rows) -> tuple[Ints, Ints]:
    """The groups and the times of what came, then of what is held."""
    return np.concatenate((came.group, held.group)), np.concatenate((came.time_us, held.time_us))
