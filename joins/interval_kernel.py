"""The kernel of the join of two streams: rows with equal keys whose times lie within bounds of each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.joins.held_side import WAITS, HeldSide, Numbers, Role, Side
from penstock.joins.meeting import Meeting, useful
from penstock.plan.durations import BEGINNING_US, END_US
from penstock.state.bucket import BucketState
from penstock.state.edge import BUCKET, LATE, Outcome, StepClock
from penstock.state.pack import opened
from penstock.windows.lengths import FOR_EVER_US
from penstock.windows.shapes import Mask

__all__ = ["IntervalJoinKernel", "Side"]


@dataclass(frozen=True)
class Met:
    """How a batch's meeting went: results, which rows that came have a partner, and held rows that now have one."""

    results: list[pa.Table]
    with_partner: tuple[Mask, Mask]
    settled: tuple[pa.Table | None, pa.Table | None]


@dataclass(frozen=True)
class IntervalJoinKernel:
    """Pairs with ``left + low <= right <= left + high``; by ``how`` rows without a partner too, or left rows only.

    A row is held until the watermark says that no partner can come. A batch looks only at the keys that came, and
    only near their times. A late row meets what is there and is not held itself. A left row of a semi or anti
    join that has found a partner is done: late rows of later batches do not meet it.
    """

    left: Side
    right: Side
    low_us: int
    high_us: int
    how: str

    def late_before(self, edge: int, previous_us: int | None) -> int:
        """Without what is held no row is known to be late."""
        return BEGINNING_US

    def doubtful_before(self, edge: int, previous_us: int | None) -> int:
        """A row before the watermark is late if it finds no partner."""
        return BEGINNING_US if previous_us is None else previous_us

    def combine(self, edge: int, rows: pa.Table, previous_us: int | None) -> pa.Table:
        """The columns that are needed, of the rows that can meet another or come out alone."""
        role = self._roles[edge]
        late = [LATE] if LATE in rows.column_names else []
        return useful(role, rows.select([*role.columns, *late, BUCKET]))

    def ticks(self, clock: StepClock) -> bool:
        """Wall time has no say."""
        return False

    def step(self, state: BucketState, rows: Sequence[Sequence[pa.Table]], clock: StepClock) -> Outcome:
        """Join what came with what is held and with each other; then time moves, and lets out what waited for it."""
        now_us, roles = min(clock.now_us, END_US), self._roles
        held = [HeldSide(state, role, clock.previous_us) for role in roles]
        meeting = Meeting.of(roles, held, rows)
        late = [came.time_us < clock.previous_us for came in meeting.came]
        met = self._filtered(meeting, held[0], late[1]) if roles[0].once else self._joined(meeting)
        results, numbers = met.results, Numbers(state)
        refused: list[pa.Table | None] = [None, None]
        late_count = 0
        for edge, role in enumerate(roles):
            came, partner, settled = meeting.came[edge], met.with_partner[edge], met.settled[edge]
            if settled is not None:
                held[edge].settle(settled, now_us)
            passed = held[edge].passed(now_us, settled)
            held[edge].drop(now_us)
            if passed is not None:
                results.append(meeting.alone(edge, passed))
            if not len(came.group):
                continue
            # for a null in its key no partner can come, whatever the time
            over = (came.time_us < now_us - role.last_us) | (came.group < 0)
            too_late = late[edge] & (role.alone | ~partner) & (not role.pads)
            if role.waits:
                results.append(meeting.alone(edge, came.chosen(~partner & ~too_late & (late[edge] | over)).table))
            keep = ~late[edge] & ~over & ~(partner & role.once)
            held[edge].keep(came.chosen(keep).table, ~partner[keep], numbers.take(int(keep.sum())))
            late_count += int(too_late.sum())
            refused[edge] = _as_it_came(came.chosen(too_late).table)
        wakes = [us for us in (side.wake_us(now_us) for side in held) if us is not None]
        if wakes:
            numbers.save()
        else:
            numbers.forget()
        results = [table for table in results if table.num_rows]
        main = pa.concat_tables(results, promote_options="default") if results else None
        return Outcome(main, min(wakes, default=None), refused[0], late_count, refused[1])

    @property
    def _roles(self) -> tuple[Role, Role]:
        # beyond the ends of all time a bound says no more, and sums with it would fit no int64
        low, high = (max(-FOR_EVER_US, min(us, FOR_EVER_US)) for us in (self.low_us, self.high_us))
        how, filters = self.how, self.how in ("semi", "anti")
        left = Role("left", self.left, low, high, how in ("left", "full"), how == "anti", filters, True)
        return left, Role("right", self.right, -high, -low, how in ("right", "full"), False, False, not filters)

    def _joined(self, meeting: Meeting) -> Met:
        """All pairs."""
        chosen = meeting.pairs()
        partner, settled = [], []
        for role, came, held, rows in zip(self._roles, meeting.came, meeting.held, chosen, strict=True):
            found = np.zeros(len(came.group) + len(held.group), np.bool_)
            found[rows] = True
            partner.append(found[: len(came.group)])
            told = None
            if role.waits and len(held.group):
                told = held.table.filter(pa.array(found[len(came.group) :] & held.table[WAITS].to_numpy()))
            settled.append(told)
        results = [meeting.joined(*chosen)] if len(chosen[0]) else []
        return Met(results, (partner[0], partner[1]), (settled[0], settled[1]))

    def _filtered(self, meeting: Meeting, held: HeldSide, late_right: Mask) -> Met:
        """Left rows with a partner: the first that each finds."""
        partner, newly = meeting.left_with_a_partner()
        known = meeting.held[0]
        newly[newly] = ~held.settled(known.table.filter(pa.array(newly)))
        right = meeting.late_right_with_a_partner(late_right, newly)
        settled = known.table.filter(pa.array(newly))
        results = []
        if self.how == "semi":
            results = [meeting.alone(0, meeting.came[0].chosen(partner).table), meeting.alone(0, settled)]
        return Met(results, (partner, right), (settled, None))


def _as_it_came(rows: pa.Table) -> pa.Table | None:
    """Late rows as they came, where somebody wants them."""
    return opened(rows[LATE]) if rows.num_rows and LATE in rows.column_names else None
