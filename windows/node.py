"""The plan nodes of windows: aggregates, and the first rows by an order; without a window, running ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.plan.columns import WINDOW_COLUMNS, Columns, check_name, check_unique
from penstock.plan.errors import PlanError
from penstock.plan.expressions import check_repeatable
from penstock.plan.node import Made, Mode, Node, computed
from penstock.plan.order import OrderBy, read_order
from penstock.plan.step import Late, Step, check_timed, row_steps
from penstock.plan.written import written_at
from penstock.windows.calls import Aggregate, read_aggregate
from penstock.windows.firing import Final, Firing, Panes, Updates
from penstock.windows.same import Same
from penstock.windows.sessions import Session
from penstock.windows.shapes import Sliced
from penstock.windows.sliding import Sliding

Shape = Sliced | Sliding | Session | Same

# what is taken back by subtraction, but for sums of floats, which keep the rows
SUBTRACT = frozenset(("count", "sum", "avg", "mean"))

PANE = "pane"
RANK = "rank"


@dataclass(frozen=True)
class Window(Step):
    """Rows of a key by windows of one ``shape`` (None: all of them for ever), and when results come out."""

    upstream: Node
    keys: tuple[str, ...]
    shape: Shape | None
    firing: Firing

    @property
    def over_table(self) -> bool:
        """True when the rows are a table's, which may change and leave."""
        return self.upstream.mode == "upsert"

    @property
    def shown(self) -> tuple[str, ...]:
        """The window's own columns."""
        return () if self.shape is None else WINDOW_COLUMNS

    @property
    def panes(self) -> tuple[str, ...]:
        """The column that tells what a value is worth, where there is one."""
        return (PANE,) if isinstance(self.firing, Panes) else ()

    @property
    def time(self) -> str | None:
        return None

    @property
    def mode(self) -> Mode:
        return "append" if isinstance(self.firing, Final) else "upsert"

    @property
    def key(self) -> tuple[str, ...]:
        return () if self.mode == "append" else (*self.keys, *self.shown)

    @property
    def window_closes_us(self) -> int | None:
        if isinstance(self.shape, Same):
            return self.upstream.window_closes_us
        return None if self.shape is None else int(isinstance(self.shape, Sliding))

    @property
    def by_wall(self) -> bool:
        return isinstance(self.firing, Panes) and self.firing.early is not None

    def state_depends_on(self) -> dict[str, object]:
        window = "none" if self.shape is None else self.shape.describe()
        depends: dict[str, object] = {
            "keys": list(self.keys),
            "window": window,
            "emit": self.firing.describe(),
        }
        return {**depends, "table's rows": row_steps(self.upstream)} if self.over_table else depends

    def _where(self) -> str:
        """Key, window and firing in words."""
        by = [f"by {', '.join(self.keys)}"] if self.keys else []
        over = [] if self.shape is None else [self.shape.describe()]
        fires = [] if isinstance(self.firing, Final) or self.shape is None else [self.firing.describe()]
        return ", ".join([*by, *over, *fires])

    def _per(self) -> str:
        """For what the step keeps one part."""
        if isinstance(self.shape, Session) and self.shape.max_duration is None:
            return "per session"
        per_time = isinstance(self.shape, Session | Sliding)
        return "per key" if self.shape is None else "per key and time" if per_time else "per key and slice"

    def _until(self) -> str:
        if self.over_table:
            return "as long as the table has rows of it"
        if self.shape is None:
            return "for every key, for ever"
        passes = "their last window"
        if isinstance(self.shape, Session):
            passes = "the session"
        elif isinstance(self.shape, Sliding):
            passes = "the last window that they reach"
        until = f"until the watermark passes {passes}"
        corrected = isinstance(self.firing, Panes) and self.firing.allowed_lateness
        return until + (" and the allowed lateness" if corrected else "")


@dataclass(frozen=True)
class WindowAggregate(Window):
    """Aggregates per key and window."""

    aggregates: tuple[Aggregate, ...]

    @property
    def columns(self) -> Columns:
        names = (*self.shown, *self.keys, *(a.name for a in self.aggregates), *self.panes)
        return Columns(names, owner=f"the step {self.name!r} gives")

    def makes(self, column: str) -> Made:
        found = (computed(a.name, a.text, self.upstream) for a in self.aggregates if a.name == column)
        return next(found, None) or super().makes(column)

    def describe(self) -> str:
        what = ", ".join(f"{a.name} = {a.text}" for a in self.aggregates)
        kind = "window" if self.shape is not None else "running values"
        where = self._where()
        return f"{kind} '{self.name}'{' ' if where.startswith('by') else ', ' if where else ''}{where}: {what}"

    def keeps(self) -> str | None:
        if self.over_table:
            calls = [c for a in self.aggregates for c in a.calls]
            if not all(c.name in SUBTRACT and not c.distinct for c in calls):
                return "what the aggregates read of every row of the table"
            if any(c.name != "count" for c in calls):
                return "a part per key, as long as the table has rows of it; of floats what is read of every row"
        ours = all(a.ours for a in self.aggregates)
        what = f"partial aggregates {self._per()}" if ours else "the rows"
        return f"{what}, {self._until()}"

    def state_depends_on(self) -> dict[str, object]:
        return {**super().state_depends_on(), "aggregates": {a.name: a.text for a in self.aggregates}}


@dataclass(frozen=True)
class WindowTop(Window):
    """The ``n`` first rows of each key and window, by an order."""

    n: int
    by: tuple[OrderBy, ...]
    ties: bool

    @property
    def carried(self) -> tuple[str, ...]:
        """The rows' own columns that come out, besides key and window."""
        return tuple(c for c in self.upstream.columns.names if c not in (*self.keys, *self.shown))

    @property
    def columns(self) -> Columns:
        rows = tuple(c for c in self.upstream.columns.names if c not in self.shown)
        return Columns((*self.shown, *rows, RANK, *self.panes), owner=f"the step {self.name!r} gives")

    @property
    def key(self) -> tuple[str, ...]:
        if self.mode == "append":
            return ()
        # a table's rows are told apart by its own key: a row that changes its rank is still that row
        return tuple(dict.fromkeys((*self.keys, *self.upstream.key))) if self.over_table else (*super().key, RANK)

    def makes(self, column: str) -> Made:
        if column != RANK:
            return super().makes(column)
        of = (computed(RANK, o.text, self.upstream).of for o in self.by)
        return Made(f"rank of {self.name}", tuple(pair for one in of for pair in one))

    def describe(self) -> str:
        where = self._where()
        order = ", ".join(o.describe() for o in self.by)
        joined = " " if where.startswith("by") else ", " if where else ""
        return f"top {self.n} '{self.name}'{joined}{where}: first by {order}{' with ties' if self.ties else ''}"

    def keeps(self) -> str | None:
        if self.over_table:
            return "the rows of the table"
        return f"the {self.n} first rows {self._per()}, {self._until()}"

    def state_depends_on(self) -> dict[str, object]:
        order = [o.describe() for o in self.by]
        return {**super().state_depends_on(), "top": f"{self.n} by {', '.join(order)}, ties {self.ties}"}

    @property
    def kept_whole(self) -> tuple[Node, ...]:
        return (self.upstream,)


def firing_of(emit: object) -> Firing:
    """When results come out, as ``emit=`` says it."""
    if isinstance(emit, Panes):
        return emit
    if emit == "final":
        return Final()
    if emit == "updates":
        return Updates()
    raise PlanError(f"window: emit={emit!r}; there is 'final', 'updates' and panes(...). ({written_at()})")


def check_shape(upstream: Node, keys: tuple[str, ...], shape: object) -> None:
    """Refuse what is no window, and a window that these rows cannot have."""
    if not isinstance(shape, Sliding | Session | Same) and not hasattr(shape, "slice_of"):
        raise PlanError(f"window: {shape!r} is no window; use one of penstock.windows. ({written_at()})")
    check_timed(upstream, "window")
    if isinstance(shape, Same) and upstream.window_closes_us is None:
        raise PlanError(
            "window(same()): the rows have no window; it follows an earlier .window(...) step, and the columns "
            f"window_start and window_end must be as that step made them. ({written_at()})"
        )
    for column in WINDOW_COLUMNS:
        if column in keys:
            raise PlanError(
                f"window: the key {column!r} is named like a window column; rename it first. ({written_at()})"
            )


def aggregate(
    upstream: Node,
    keys: tuple[str, ...],
    shape: Shape | None,
    firing: Firing,
    late: Late,
    texts: Mapping[str, str],
) -> WindowAggregate:
    """The node of ``.agg(...)``, with a window or without."""
    if not texts:
        raise PlanError(f"agg(): name at least one aggregate, such as n='count(*)'. ({written_at()})")
    window = () if shape is None else WINDOW_COLUMNS
    panes = (PANE,) if isinstance(firing, Panes) else ()
    ours = {"a key": keys, "a window column": window, "the pane's column": panes}
    check_unique(texts, "agg")
    check_repeatable(texts.values(), upstream.mode, "agg")
    found = []
    for name, text in texts.items():
        step = f"agg({name}={text!r})"
        taken = {column.casefold(): what for what, columns in ours.items() for column in columns}
        if what := taken.get(check_name(name, step).casefold()):
            raise PlanError(f"{step}: {name!r} is {what}; give the aggregate another name. ({written_at()})")
        read = read_aggregate(name, text, upstream.columns, (*keys, *window), step)
        if not isinstance(firing, Final) and not read.ours:
            raise PlanError(
                f"{step}: {read.foreign} is Spark's own aggregate, which can be finished once and not corrected: "
                f"it needs a window with emit='final' over a stream. ({written_at()})"
            )
        found.append(read)
    kind = "window" if shape is not None else "agg"
    return WindowAggregate(upstream, keys, shape, firing, tuple(found), late=late, name=_derived(kind, keys))


def top(
    upstream: Node,
    keys: tuple[str, ...],
    shape: Shape | None,
    firing: Firing,
    late: Late,
    n: int,
    by: str,
    ties: bool,
) -> WindowTop:
    """The node of ``.top(...)``, with a window or without."""
    step = f"top({n!r}, by={by!r})"
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise PlanError(f"{step}: n is a whole number from 1 on. ({written_at()})")
    if upstream.columns.open:
        raise PlanError(f"{step}: the rows come out whole, so the source needs a schema. ({written_at()})")
    if ties and not isinstance(firing, Final) and upstream.mode == "append":
        raise PlanError(
            f"{step}: with ties=True ranks repeat, and rows that still change would have no key; "
            f"use emit='final', or leave ties out. ({written_at()})"
        )
    taken = {RANK, *((PANE,) if isinstance(firing, Panes) else ())}
    if shape is not None and not isinstance(shape, Same):
        taken |= set(WINDOW_COLUMNS)
    for column in upstream.columns.names:
        if column.casefold() in taken:
            raise PlanError(
                f"{step}: the rows have a column {column!r} of their own; rename it first. ({written_at()})"
            )
    order = read_order(by, upstream.columns, step)
    check_repeatable((o.text for o in order), upstream.mode, step)
    return WindowTop(upstream, keys, shape, firing, n, order, bool(ties), late=late, name=_derived("top", keys))


def _derived(kind: str, keys: tuple[str, ...]) -> str:
    return f"{kind}_by_" + "_".join(keys) if keys else kind
