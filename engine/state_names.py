"""The state of a step under the users' names: what its stored columns mean, and which are only ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import singledispatch

import pyarrow as pa
import pyarrow.compute as pc

from penstock.joins.held_side import NUMBER, WAITS
from penstock.joins.held_side import SLICE as STRETCH
from penstock.joins.interval import IntervalJoin
from penstock.joins.latest_kernel import UNTIL
from penstock.joins.table_join import TableJoin
from penstock.joins.tables import Meeting
from penstock.operators.deduplicate import Deduplicate
from penstock.plan.columns import WINDOW_COLUMNS
from penstock.plan.node import Node
from penstock.plan.step import Step
from penstock.state.edge import DELETED, PARTITION, POSITION, SEQUENCE, TIME
from penstock.windows.held import TIMER
from penstock.windows.held_sessions import LAST
from penstock.windows.kernel import TIMESTAMP
from penstock.windows.node import PANE, Window, WindowAggregate, WindowTop
from penstock.windows.partials import RESULT, SLICE
from penstock.windows.same import Same
from penstock.windows.shown import END, GONE, START
from penstock.windows.shown import PANE as STORED_PANE

KEY, ROW, CARRIED, BY = "__ps_key_", "__ps_row_", "__ps_carried_", "__ps_by_"
INTERNAL = frozenset({DELETED, NUMBER, PARTITION, POSITION, STRETCH, TIME, UNTIL, WAITS})
INSTANTS = frozenset({TIME, SLICE, LAST, START, END})  # stored as microseconds
#: The set that people mean when they name none: the first of these that is there.
MAIN = ("latest", "shown", "parts", "slices", "rows", "versions", "kept", "left")
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999, as Python has them


@dataclass(frozen=True)
class Names:
    """What a user calls the columns of a set: those of its key in order, and names by stored ones, None to hide."""

    key: tuple[str, ...] = ()
    of: Mapping[str, str | None] = field(default_factory=dict)

    def stored(self, name: str) -> str:
        """The stored column of a user's name."""
        return next((ours for ours, theirs in self.of.items() if theirs == name), name)

    def hides(self, column: str) -> bool:
        """True for a column that says nothing to users."""
        if column in self.of:
            return self.of[column] is None
        return column in INTERNAL or column.startswith(SEQUENCE)

    def shown(self, rows: pa.Table, internal: bool = False) -> pa.Table:
        """Rows of a reader, which have their bucket first, as users see them; ``internal``, all that is stored.

        >>> rows = pa.table({"bucket": [3, 5], "__ps_key_0": ["ann", "bob"], "__ps_deleted": [False, True]})
        >>> Names(("user",), {"__ps_key_0": "user"}).shown(rows).to_pylist()
        [{'user': 'ann'}]
        """
        if DELETED in rows.column_names and self.hides(DELETED) and not internal:
            rows = rows.filter(pc.invert(rows[DELETED]))
        own = rows.column_names[1:]
        columns = {rows.column_names[0]: rows.column(0)} if internal else {}
        for stored, values in zip(own, rows.columns[1:], strict=True):
            if internal or not self.hides(stored):
                theirs = self.of.get(stored)
                # a name that stands there already is a column's of the user
                named = stored if theirs is None or theirs in own else theirs
                columns[named] = _instants(values) if named != stored and stored in INSTANTS else values
        return pa.table(columns)


def main_set(sets: Mapping[str, object]) -> str | None:
    """The set that people mean, None when there is none."""
    return next((name for name in (*MAIN, *sets) if name in sets), None)


@singledispatch
def names_of(step: Step, kept: str) -> Names:
    """What the plan knows of a set of a step: a table holds its rows under their own names."""
    return Names(step.key)


@names_of.register
def names_of_deduplicate(step: Deduplicate, kept: str) -> Names:
    """Kept keys with their time, and rows that wait."""
    return Names(step.keys, {TIME: "event_time"})


@names_of.register
def names_of_window(step: Window, kept: str) -> Names:
    """Parts of keys by time, and what readers have been shown."""
    same = isinstance(step.shape, Same)
    keys = (*WINDOW_COLUMNS, *step.keys) if same else step.keys
    start, end = (None, None) if same or step.shape is None else WINDOW_COLUMNS
    sliced = None if same or step.shape is None else "slice"
    times = {SLICE: sliced, LAST: "last", START: start, END: end, GONE: None, TIMER: None, STORED_PANE: PANE}
    rows = _numbered(ROW, step.upstream.key)  # of a table whose rows are kept whole
    return Names(keys, {**_numbered(KEY, keys), **rows, **times, **_results(step)})


@names_of.register(IntervalJoin)
@names_of.register(Meeting)
@names_of.register(TableJoin)
def names_of_join(step: IntervalJoin | Meeting | TableJoin, kept: str) -> Names:
    """The rows of one side; what both meet by is held under the left's names, and the right has its own."""
    right = kept.startswith("right") or kept in ("rows", "versions", "ended")
    side: Node = step.right if right else step.left
    of: dict[str, str | None] = {pair[0]: pair[right] for pair in step.on}
    of[TIME] = None if side.time in side.columns.names else "event_time"
    if kept == "versions":
        of[DELETED] = "deleted"
    return Names(tuple(pair[right] for pair in step.on), of)


@singledispatch
def _results(step: Window) -> dict[str, str]:
    return {}


@_results.register
def _results_of_aggregates(step: WindowAggregate) -> dict[str, str]:
    calls = list(dict.fromkeys(call for a in step.aggregates for call in a.calls))
    plain = (a for a in step.aggregates if set(a.around) == {""})
    return {f"{RESULT}{calls.index(a.calls[0])}": a.name for a in plain}


@_results.register
def _results_of_top(step: WindowTop) -> dict[str, str]:
    by = {f"{BY}{i}": order.text for i, order in enumerate(step.by)}
    return {f"{RESULT}0": "rows", **_numbered(CARRIED, step.carried), **by}


def _numbered(prefix: str, names: tuple[str, ...]) -> dict[str, str]:
    return {f"{prefix}{i}": name for i, name in enumerate(names)}


def _instants(micros: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times that a calendar has; the ends of all time are null."""
    if micros.type != pa.int64():
        return micros
    there = pc.and_(pc.greater_equal(micros, FIRST_US), pc.less_equal(micros, LAST_US))
    return pc.if_else(there, micros, pa.scalar(None, pa.int64())).cast(TIMESTAMP)
