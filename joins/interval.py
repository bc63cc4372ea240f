"""The plan node of the join of two streams whose rows meet within a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from penstock.joins.on import On, Pairs, check_sides, joined_columns, read_on, spoken_on
from penstock.plan.columns import Columns
from penstock.plan.durations import Duration, duration, spoken
from penstock.plan.errors import PlanError
from penstock.plan.node import NO_LAG, Node, check_step_name
from penstock.plan.step import Step, check_late
from penstock.plan.written import written_at

HOW = ("inner", "left", "right", "full", "semi", "anti")
Within = Duration | tuple[Duration, Duration]


@dataclass(frozen=True)
class IntervalJoin(Step):
    """Rows of two streams with equal keys whose times lie within bounds of each other."""

    left: Node
    right: Node
    on: Pairs
    low: timedelta
    high: timedelta
    how: str

    @property
    def columns(self) -> Columns:
        if self.how in ("semi", "anti"):
            return self.left.columns
        return joined_columns(self.left, self.right, self.on, f"the join {self.name!r} gives")

    @property
    def time(self) -> str | None:
        return self.left.time if self.how in ("semi", "anti") else None

    @property
    def lag(self) -> timedelta:
        # a left row without a partner comes out when none can come, `high` after its own time; a right row `-low`
        left = self.high if self.how in ("left", "full", "semi", "anti") else NO_LAG
        right = -self.low if self.how in ("right", "full") else NO_LAG
        return max(self.left.lag, self.right.lag) + max(left, right, NO_LAG)

    def describe(self) -> str:
        bounds = f"{spoken(self.low)} to {spoken(self.high)}"
        return f"{self.how} join '{self.name}' on {spoken_on(self.on)}, right within {bounds} of left"

    def keeps(self) -> str | None:
        left, right = (spoken(max(length, NO_LAG)) for length in (self.high, -self.low))
        return f"left rows until the watermark is {left} past them, right rows until it is {right} past them"

    def state_depends_on(self) -> dict[str, object]:
        return {"on": spoken_on(self.on), "within": f"{spoken(self.low)} to {spoken(self.high)}", "how": self.how}

    @property
    def kept_whole(self) -> tuple[Node, ...]:
        return (self.left,) if self.how in ("semi", "anti") else (self.left, self.right)


def join(left: Node, right: Node, on: On, within: object, how: str, late: str, name: str | None) -> IntervalJoin:
    """The node of ``Stream.join``, refused when it makes no sense."""
    step = f"join {name!r}" if name is not None else "join"
    if how not in HOW:
        raise PlanError(f"{step}: how={how!r}; there is {', '.join(HOW)}. ({written_at()})")
    pairs = read_on(on, left, right, step)
    if how not in ("semi", "anti"):
        check_sides(left, right, pairs, step)
    low, high = _bounds(within, step)
    for side, node in (("left", left), ("right", right)):
        if not node.timed:
            raise PlanError(f"{step}: the {side} side has no event time with a lateness. ({written_at()})")
    called = "join_by_" + "_".join(mine for mine, _ in pairs) if name is None else check_step_name(name, step)
    return IntervalJoin(left, right, pairs, low, high, how, late=check_late(late, step), name=called)


def _bounds(within: object, step: str) -> tuple[timedelta, timedelta]:
    if within is None:
        raise PlanError(
            f"{step}: say how far apart in time two rows may be, within=('0 seconds', '1 hour'): without a bound "
            f"the state would never end. ({written_at()})"
        )
    least = -(2**62)
    if isinstance(within, tuple):
        if len(within) != 2:
            raise PlanError(f"{step}: within={within!r} is one duration, or two. ({written_at()})")
        low, high = (duration(bound, f"{step}: within", least_us=least) for bound in within)
    else:
        high = duration(within, f"{step}: within")  # type: ignore[arg-type]  # refused by duration
        low = -high
    if low > high:
        raise PlanError(f"{step}: within={within!r}: the first bound is after the second. ({written_at()})")
    return low, high
