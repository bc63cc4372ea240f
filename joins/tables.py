"""The plan nodes of a stream that meets a table: as it is now, or as it was at the event's own time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from penstock.joins.on import On, Pairs, check_sides, joined_columns, read_on, spoken_on
from penstock.joins.versions import Versions, history_of, versions_of
from penstock.plan.columns import Columns
from penstock.plan.durations import Duration, duration, spoken
from penstock.plan.errors import PlanError
from penstock.plan.input import Input
from penstock.plan.node import Node, check_step_name, walk
from penstock.plan.step import Step, check_late, check_timed, row_steps
from penstock.plan.written import written_at


@dataclass(frozen=True)
class Meeting(Step):
    """Events with the row of a table by its key."""

    left: Node
    right: Node
    on: Pairs
    how: str

    @property
    def columns(self) -> Columns:
        return joined_columns(self.left, self.right, self.on, f"the step {self.name!r} gives")

    @property
    def time(self) -> str | None:
        return self.left.time

    @property
    def timed(self) -> bool:
        return self.left.timed

    @property
    def lag(self) -> timedelta:
        return self.left.lag

    @property
    def window_closes_us(self) -> int | None:
        return self.left.window_closes_us

    @property
    def kept_whole(self) -> tuple[Node, ...]:
        return self.left, self.right


@dataclass(frozen=True)
class Lookup(Meeting):
    """Each event with the table's row as it is now; ``after_load``, not before the table was read to its end once."""

    after_load: bool = False

    @property
    def loads(self) -> tuple[str, ...]:
        return tuple(n.name for n in walk(self.right) if isinstance(n, Input)) if self.after_load else ()

    @property
    def by_wall(self) -> bool:
        return self.after_load  # that nothing more comes is told by a batch of its own

    def describe(self) -> str:
        after = ", after load" if self.after_load else ""
        return f"lookup '{self.name}' on {spoken_on(self.on)} ({self.how}{after})"

    def keeps(self) -> str | None:
        return "the table's rows" + (", and events until the table is loaded" if self.after_load else "")

    @property
    def kept_whole(self) -> tuple[Node, ...]:
        return (self.left, self.right) if self.after_load else (self.right,)

    def state_depends_on(self) -> dict[str, object]:
        depends = {"on": spoken_on(self.on), "how": self.how, "after_load": self.after_load}
        return {**depends, "table's rows": row_steps(self.right)}


@dataclass(frozen=True)
class AsOf(Meeting):
    """Each event with the table's row as it was at the event's own time."""

    tolerance: timedelta | None
    history: timedelta

    @property
    def versions(self) -> Versions:
        """The changelog behind the table, before its row steps."""
        node = self.right
        while not isinstance(node, Versions):
            (node,) = node.inputs
        return node

    @property
    def chosen_sequence(self) -> bool:
        """True when the user said what puts versions of one time in order."""
        return bool(self.versions.sequence)

    def describe(self) -> str:
        within = f", not older than {spoken(self.tolerance)}" if self.tolerance is not None else ""
        return f"as-of '{self.name}' on {spoken_on(self.on)} ({self.how}{within})"

    def keeps(self) -> str | None:
        beyond = f" and {spoken(self.history)} beyond" if self.history else ""
        return (
            "events until the watermark passes them; versions as long as an event that may still come could need "
            f"them{beyond}, and the newest of every living key"
        )

    def state_depends_on(self) -> dict[str, object]:
        return {"on": spoken_on(self.on), "how": self.how, **self.versions.depends_on()}

    def may_become(self) -> dict[str, object]:
        return {
            "tolerance": None if self.tolerance is None else spoken(self.tolerance),
            "history": spoken(self.history),
        }


def lookup(left: Node, table: Node, on: On | None, how: str, after_load: bool, name: str | None) -> Lookup:
    """The node of ``lookup``, refused when it makes no sense."""
    step = f"lookup {name!r}" if name is not None else "lookup"
    pairs = _by_key(left, table, on, how, step)
    called = "lookup_by_" + "_".join(m for m, _ in pairs) if name is None else check_step_name(name, step)
    return Lookup(left, table, pairs, how, bool(after_load), name=called)


def asof(
    left: Node,
    table: Node,
    on: On | None,
    how: str,
    tolerance: Duration | None,
    late: str,
    name: str | None,
) -> AsOf:
    """The node of ``asof``, refused when it makes no sense."""
    step = f"asof {name!r}" if name is not None else "asof"
    pairs = _by_key(left, table, on, how, step)
    check_timed(left, step)
    versions = versions_of(table, step)
    if not versions.timed:
        raise PlanError(
            f"{step}: the table has no time, so nobody knows how it was; give it time= and lateness= in job.table(). "
            f"({written_at()})"
        )
    near = None if tolerance is None else duration(tolerance, f"{step}: tolerance")
    called = "asof_by_" + "_".join(m for m, _ in pairs) if name is None else check_step_name(name, step)
    return AsOf(left, versions, pairs, how, near, history_of(versions), late=check_late(late, step), name=called)


def _by_key(left: Node, table: Node, on: On | None, how: str, step: str) -> Pairs:
    if how not in ("left", "inner"):
        raise PlanError(f"{step}: how={how!r}; there is left, inner. ({written_at()})")
    pairs = read_on(table.key if on is None else on, left, table, step)
    if {other for _, other in pairs} != set(table.key):
        raise PlanError(
            f"{step}: on= must name the table's key, {', '.join(table.key)}, and all of it; "
            f"here it names {', '.join(other for _, other in pairs)}. ({written_at()})"
        )
    check_sides(left, table, pairs, step)
    return pairs
