"""By which columns two sides meet, and what the columns of the result are."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.plan.columns import Columns, check_unique
from penstock.plan.errors import PlanError
from penstock.plan.node import Node
from penstock.plan.written import written_at

On = str | tuple[str, ...] | Mapping[str, str]
Pairs = tuple[tuple[str, str], ...]


def read_on(on: On, left: Node, right: Node, step: str) -> Pairs:
    """The pairs of columns that must be equal, each checked on its side."""
    if isinstance(on, str):
        pairs: Pairs = ((on, on),)
    elif isinstance(on, Mapping):
        pairs = tuple(on.items())
    elif isinstance(on, tuple | list) and all(isinstance(name, str) for name in on):
        pairs = tuple((name, name) for name in on)
    else:
        raise PlanError(
            f"{step}: on={on!r}; it is a name, a tuple of names, or {{'left_name': 'right_name'}}. ({written_at()})"
        )
    if not pairs:
        raise PlanError(f"{step}: on= names at least one column. ({written_at()})")
    for mine, other in pairs:
        left.columns.require(mine, f"{step}: on={mine!r}")
        right.columns.require(other, f"{step}: on={other!r}")
    check_unique((mine for mine, _ in pairs), f"{step}: on")
    check_unique((other for _, other in pairs), f"{step}: on")
    return pairs


def joined_columns(left: Node, right: Node, pairs: Pairs, owner: str) -> Columns:
    """The left's columns, then the right's without those by which they meet."""
    met = {other for _, other in pairs}
    return Columns((*left.columns.names, *(c for c in right.columns.names if c not in met)), owner=owner)


def check_sides(left: Node, right: Node, pairs: Pairs, step: str) -> None:
    """Refuse sides that are known only when the job runs, and a name that stands on both."""
    for node in (left, right):
        if node.columns.open:
            raise PlanError(f"{step}: rows are kept whole, so the source needs a schema. ({written_at()})")
    met = {other for _, other in pairs}
    mine = {c.casefold() for c in left.columns.names}
    for column in right.columns.names:
        if column not in met and column.casefold() in mine:
            raise PlanError(
                f"{step}: the column {column!r} stands on both sides; rename one, for example with "
                f".rename({column}='right_{column}'). ({written_at()})"
            )


def spoken_on(pairs: Pairs) -> str:
    """The pairs in words."""
    return ", ".join(mine if mine == other else f"{mine} = {other}" for mine, other in pairs)
