"""The plan node of ``deduplicate``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from penstock.plan.columns import Columns, check_unique
from penstock.plan.durations import Duration, duration, spoken
from penstock.plan.errors import PlanError
from penstock.plan.node import Node, check_step_name
from penstock.plan.step import Step, check_late, check_timed
from penstock.plan.written import written_at


@dataclass(frozen=True)
class Deduplicate(Step):
    """Drop a row whose key was kept within that time of it."""

    upstream: Node
    keys: tuple[str, ...]
    within: timedelta
    ordered: bool

    @property
    def columns(self) -> Columns:
        return self.upstream.columns

    @property
    def window_closes_us(self) -> int | None:
        return self.upstream.window_closes_us

    def describe(self) -> str:
        first = ", the first by event time stays" if self.ordered else ""
        return f"deduplicate '{self.name}' by {', '.join(self.keys)} within {spoken(self.within)}{first}"

    def keeps(self) -> str | None:
        waiting = "rows until the watermark passes them, and " if self.ordered else ""
        return f"{waiting}the key and time of kept rows, until the watermark is {spoken(self.within)} past them"

    def state_depends_on(self) -> dict[str, object]:
        return {"keys": list(self.keys), "within": spoken(self.within), "ordered": self.ordered}

    @property
    def kept_whole(self) -> tuple[Node, ...]:
        return (self.upstream,) if self.ordered else ()


def deduplicate(
    upstream: Node, keys: tuple[str, ...], within: Duration, ordered: bool, late: str, name: str | None
) -> Deduplicate:
    """The node of ``deduplicate``, refused when it makes no sense."""
    if not keys:
        raise PlanError(f"deduplicate(): name the columns that make two rows the same. ({written_at()})")
    for key in keys:
        upstream.columns.require(key, f"deduplicate({key!r})")
    if upstream.columns.open:
        raise PlanError(f"deduplicate: rows are kept whole, so the source needs a schema. ({written_at()})")
    check_timed(upstream, "deduplicate")
    length = duration(within, "deduplicate: within")
    called = f"deduplicate_by_{'_'.join(keys)}" if name is None else check_step_name(name, "deduplicate")
    rule = check_late(late, "deduplicate")
    return Deduplicate(upstream, check_unique(keys, "deduplicate"), length, bool(ordered), late=rule, name=called)
