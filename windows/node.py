"""The plan nodes of a window: its aggregates, and the rows that it refused as late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from penstock.plan.columns import Columns, check_name
from penstock.plan.errors import PlanError
from penstock.plan.node import Node
from penstock.plan.written import written_at
from penstock.windows.calls import Aggregate, read_aggregate
from penstock.windows.shapes import Aligned

Late = Literal["drop", "capture", "dead_letter"]
WINDOW_COLUMNS = ("window_start", "window_end")


@dataclass(frozen=True)
class WindowAggregate(Node):
    """Aggregates per key and window, out once, when the watermark passes the window's end."""

    upstream: Node
    keys: tuple[str, ...]
    shape: Aligned
    aggregates: tuple[Aggregate, ...]
    late: Late
    name: str

    stateful: ClassVar[bool] = True

    @property
    def columns(self) -> Columns:
        names = (*WINDOW_COLUMNS, *self.keys, *(a.name for a in self.aggregates))
        return Columns(names, owner=f"the window {self.name!r} gives")

    @property
    def time(self) -> str | None:
        return None

    def describe(self) -> str:
        of = f" by {', '.join(self.keys)}" if self.keys else ""
        what = ", ".join(f"{a.name} = {a.text}" for a in self.aggregates)
        return f"window '{self.name}'{of}, {self.shape.describe()}: {what}"

    def keeps(self) -> str | None:
        what = "partial aggregates per key and slice" if all(a.ours for a in self.aggregates) else "the rows"
        return f"{what}, until the watermark passes their last window"


@dataclass(frozen=True)
class LateRows(Node):
    """The rows that a step refused as late, as they came to it."""

    step: WindowAggregate

    @property
    def columns(self) -> Columns:
        return self.step.upstream.columns

    @property
    def time(self) -> str | None:
        return self.step.upstream.time

    def describe(self) -> str:
        return f"late rows of '{self.step.name}'"


def check_late(late: str, step: str) -> Late:
    """The rule for late rows, refused when there is no such rule."""
    if late not in get_args(Late):
        raise PlanError(f"{step}: late={late!r}; there is 'drop', 'capture', 'dead_letter'. ({written_at()})")
    return late  # type: ignore[return-value]  # mypy does not follow get_args


def aggregate(
    upstream: Node, keys: tuple[str, ...], shape: Aligned, late: Late, texts: dict[str, str]
) -> WindowAggregate:
    """The node of ``.window(...).agg(...)``."""
    if not texts:
        raise PlanError(f"agg(): name at least one aggregate, such as n='count(*)'. ({written_at()})")
    found = []
    for name, text in texts.items():
        step = f"agg({name}={text!r})"
        if check_name(name, step) in (*keys, *WINDOW_COLUMNS):
            what = "a key" if name in keys else "a window column"
            raise PlanError(f"{step}: {name!r} is {what}; give the aggregate another name. ({written_at()})")
        found.append(read_aggregate(name, text, upstream.columns, keys, step))
    derived = "window_by_" + "_".join(keys) if keys else "window"
    return WindowAggregate(upstream, keys, shape, tuple(found), late, derived)
