"""The plan node of the join of two tables: a table itself, kept right as either side changes."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.joins.on import On, Pairs, check_sides, joined_columns, read_on, spoken_on
from penstock.plan.columns import Columns
from penstock.plan.errors import PlanError
from penstock.plan.node import Mode, Node, check_step_name
from penstock.plan.step import Step, row_steps
from penstock.plan.written import written_at

HOW = ("inner", "left", "right", "full")


@dataclass(frozen=True)
class TableJoin(Step):
    """Rows of two tables with equal values in ``on``."""

    left: Node
    right: Node
    on: Pairs
    how: str

    @property
    def columns(self) -> Columns:
        return joined_columns(self.left, self.right, self.on, f"the join {self.name!r} gives")

    @property
    def time(self) -> str | None:
        return None

    @property
    def mode(self) -> Mode:
        return "upsert"

    @property
    def key(self) -> tuple[str, ...]:
        if set(self.right.key) <= {other for _, other in self.on}:
            return self.left.key  # a left row meets one right row at most
        named = {other: mine for mine, other in self.on}
        return tuple(dict.fromkeys((*self.left.key, *(named.get(k, k) for k in self.right.key))))

    def describe(self) -> str:
        return f"{self.how} join of tables '{self.name}' on {spoken_on(self.on)}"

    def keeps(self) -> str | None:
        return "the rows of both tables, as long as these have them"

    def state_depends_on(self) -> dict[str, object]:
        keys = {"left key": list(self.left.key), "right key": list(self.right.key)}
        rows = {"left rows": row_steps(self.left), "right rows": row_steps(self.right)}
        return {"on": spoken_on(self.on), "how": self.how, **keys, **rows}

    @property
    def kept_whole(self) -> tuple[Node, ...]:
        return self.left, self.right


def join_tables(left: Node, right: Node, on: On | None, how: str, name: str | None) -> TableJoin:
    """The node of ``Table.join``, refused when it makes no sense."""
    step = f"join {name!r}" if name is not None else "join"
    if how not in HOW:
        raise PlanError(f"{step}: how={how!r}; there is {', '.join(HOW)}. ({written_at()})")
    pairs = read_on(right.key if on is None else on, left, right, step)
    check_sides(left, right, pairs, step)
    mine, other = ({pair[edge] for pair in pairs} for edge in (0, 1))
    by_key = other == set(right.key)
    allowed = HOW if by_key and mine == set(left.key) else HOW[:2] if by_key else HOW[:1]
    if how not in allowed:
        keys = f"the left table's key is {', '.join(left.key)}, the right one's {', '.join(right.key)}"
        why = (
            "by the right table's key alone there is inner and left"
            if by_key
            else "by columns that are no key there is only inner"
        )
        raise PlanError(f"{step}: how={how!r} on {spoken_on(pairs)}: {why} ({keys}). ({written_at()})")
    called = "join_by_" + "_".join(m for m, _ in pairs) if name is None else check_step_name(name, step)
    return TableJoin(left, right, pairs, how, name=called)
