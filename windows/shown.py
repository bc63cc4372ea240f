"""What readers have been shown of windows, and what they are to be told next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.state.bucket import BucketState
from penstock.state.edge import WEIGHT, StepClock
from penstock.state.keyed import KeyedTable
from penstock.state.samekeys import same_values
from penstock.windows.held import Seen, Touched, Windows
from penstock.windows.kernel import TIMESTAMP, WINDOW_END, WINDOW_START
from penstock.windows.pairs import first_pair
from penstock.windows.partials import Partials
from penstock.windows.shapes import Ints, Mask

PANE = "__ps_pane"
PANES = np.array(["early", "on_time", "late"])
START = "start_us"
END = "end_us"
GONE = "gone_us"


@dataclass(frozen=True)
class Shown:
    """The one current value of each window, as readers have it, until the window is sealed.

    Without ``panes`` a window shows each change of its value. With them an open window shows it at a tick of
    wall time, or at once where it takes the place of windows that readers have; a window shows its value when
    it closes, and each change after that.
    """

    partials: Partials
    allowed_us: int
    panes: bool

    def changes(self, state: BucketState, touched: Touched, seen: Seen, clock: StepClock, ticks: bool) -> pa.Table:
        """The rows that readers lose and those that they get, net; what they have then is remembered."""
        windows, table = seen.windows, self._table(state, touched)
        owner, had = table.find(touched.keys)
        standing = had[GONE].to_numpy() > clock.previous_us
        owner, had = owner[standing], had.filter(pa.array(standing))
        window_of, had_of = matched(windows, owner, had[START].to_numpy(), had[END].to_numpy())
        vanished = window_of < 0
        asked = seen.fresh_windows()
        if self.panes:
            replaced = chains_of(windows, owner[vanished], had[START].to_numpy()[vanished])
            asked &= windows.close_us <= clock.previous_us
            asked |= self._closing(windows, clock)
            asked |= (windows.close_us > clock.now_us) & (ticks | (replaced & (had_of < 0)))
        chosen = np.flatnonzero(asked)
        values = self._values(seen, chosen)
        told = had_of[chosen] < 0
        known = np.flatnonzero(~told)
        told[known] = ~same_values(had.take(pa.array(had_of[chosen[known]])), values.take(pa.array(known)))
        if self.panes:
            told |= self._closing(windows, clock)[chosen]
        gained = self._rows(touched, windows, chosen[told], values.filter(pa.array(told)), clock)
        lost = vanished.copy()
        lost[had_of[chosen[told & (had_of[chosen] >= 0)]]] = True
        table.delete(had.filter(pa.array(vanished)))
        table.put(gained.filter(pa.array(gained[GONE].to_numpy() > clock.now_us)))
        return pa.concat_tables([self._told(had.filter(pa.array(lost)), -1), self._told(gained, 1)])

    def drop(self, state: BucketState, now_us: int) -> None:
        """Forget the windows that are sealed: readers keep them as they are."""
        state.table("shown", self.partials.keys, within=(START, END), time=GONE).drop_before(now_us + 1)

    def _closing(self, windows: Windows, clock: StepClock) -> Mask:
        return (windows.close_us > clock.previous_us) & (windows.close_us <= clock.now_us)

    def _values(self, seen: Seen, chosen: Ints) -> pa.Table:
        results = self.partials.results(seen.parts, seen.windows.low[chosen], seen.windows.high[chosen])
        return pa.table(results, names=self.partials.names())

    def _rows(self, touched: Touched, windows: Windows, chosen: Ints, values: pa.Table, clock: StepClock) -> pa.Table:
        """Windows with their values, as they are remembered."""
        close = windows.close_us[chosen]
        columns = {START: windows.start_us[chosen], END: windows.end_us[chosen]}
        columns |= dict(zip(values.column_names, values.columns, strict=True))
        if self.panes:
            pane = (close <= clock.now_us).astype(np.int64) + (close <= clock.previous_us)
            columns[PANE] = pa.array(PANES[pane], pa.string())
        return touched.named(windows.group[chosen], pa.table({**columns, GONE: close + self.allowed_us}))

    def _told(self, rows: pa.Table, weight: int) -> pa.Table:
        """Rows as readers are told of them."""
        start, end = (rows[name].cast(TIMESTAMP) for name in (START, END))
        names = [*self.partials.keys, *self.partials.names(), *([PANE] if self.panes else [])]
        weights = pa.array(np.full(rows.num_rows, weight, np.int8))
        columns = [start, end, *rows.select(names).columns, weights]
        return pa.table(columns, names=[WINDOW_START, WINDOW_END, *names, WEIGHT])

    def _table(self, state: BucketState, touched: Touched) -> KeyedTable:
        fields = [*touched.keys.select(list(self.partials.keys)).schema, (START, pa.int64()), (END, pa.int64())]
        results = (m.aggregate.result_type for m in self.partials.measures)
        fields += zip(self.partials.names(), results, strict=True)
        fields += [*([(PANE, pa.string())] if self.panes else []), (GONE, pa.int64())]
        return state.table(
            "shown",
            self.partials.keys,
            within=(START, END),
            time=GONE,
            schema=pa.schema([pa.field(*f) if isinstance(f, tuple) else f for f in fields]),
        )


def matched(windows: Windows, group: Ints, start_us: Ints, end_us: Ints) -> tuple[Ints, Ints]:
    """For each of some windows of groups its number among the ``windows``, and the other way round; -1 for none."""
    found = first_pair(windows.group, windows.end_us, group, end_us)
    own = [np.append(column, 0)[found] for column in (windows.group, windows.end_us, windows.start_us)]
    there = (found < len(windows.group)) & (own[0] == group) & (own[1] == end_us) & (own[2] == start_us)
    other = np.full(len(windows.group), -1)
    other[found[there]] = np.flatnonzero(there)
    return np.where(there, found, -1), other


def chains_of(windows: Windows, group: Ints, start_us: Ints) -> Mask:
    """The windows of the chains that hold rows of these groups and times."""
    found = first_pair(windows.group, windows.start_us, group, start_us + 1) - 1
    return np.isin(windows.chain, windows.chain[found])
