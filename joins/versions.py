"""Changelogs: rows that say what is true of a key from some time on, and the latest of them as a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from penstock.operators.rows import Drop, Filter, Rename, Select, WithColumns
from penstock.plan.columns import Columns, check_unique
from penstock.plan.durations import spoken
from penstock.plan.errors import PlanError
from penstock.plan.input import TableInput
from penstock.plan.node import Mode, Node, origin, walk
from penstock.plan.step import Step
from penstock.plan.written import written_at


@dataclass(frozen=True)
class Versions(Node):
    """Rows read as a changelog: which key they are of, what puts them in order, which of them are deletes.

    Without a ``sequence`` the order is that of event time where there is one, else that of arrival. The messages
    of a changelog's format say both themselves.
    """

    upstream: Node
    of: tuple[str, ...]
    sequence: tuple[str, ...]
    delete_when: str | None

    @property
    def columns(self) -> Columns:
        return self.upstream.columns

    @property
    def format(self) -> str | None:
        """The format whose messages say which of them are deletes and what comes after what; None for plain rows."""
        changelog = self.upstream.source.changelog if isinstance(self.upstream, TableInput) else None
        return None if changelog is None else changelog.name

    def depends_on(self) -> dict[str, object]:
        """What puts the rows in order and which are deletes: what is kept was judged by it."""
        if self.format is not None:
            return {"sequence": [self.format], "deletes": self.format}
        order: dict[str, object] = {"sequence": list(self.sequence), "deletes": str(self.delete_when)}
        made = dict.fromkeys(said for column in self.sequence for said in origin(self.upstream, column))
        return {**order, "how the sequence is made": list(made)} if made else order

    def describe(self) -> str:
        if self.format is not None:
            return f"changelog of {', '.join(self.of)} as {self.format} says"
        order = ", ".join(self.sequence) or ("event time" if self.upstream.timed else "arrival")
        deletes = f", deletes where {self.delete_when}" if self.delete_when else ""
        return f"changelog of {', '.join(self.of)} by {order}{deletes}"


@dataclass(frozen=True)
class Gap(Node):
    """Versions of which those for which ``predicate`` is not true are gaps: nothing holds from there on."""

    upstream: Node
    predicate: str

    @property
    def columns(self) -> Columns:
        return self.upstream.columns

    def describe(self) -> str:
        return f"gap unless {self.predicate}"


@dataclass(frozen=True)
class Latest(Step):
    """The latest row of each key of a changelog: a table."""

    upstream: Versions
    tombstones: timedelta | None = None  # how long a deleted key is remembered; None for ever

    @property
    def columns(self) -> Columns:
        return self.upstream.columns

    @property
    def time(self) -> str | None:
        return None

    @property
    def mode(self) -> Mode:
        return "upsert"

    @property
    def key(self) -> tuple[str, ...]:
        return self.upstream.of

    def describe(self) -> str:
        return f"table '{self.name}' by {', '.join(self.key)}"

    def keeps(self) -> str | None:
        by = "event" if self.upstream.timed else "wall"
        kept = "for ever" if self.tombstones is None else f"for {spoken(self.tombstones)} of {by} time"
        return f"the latest row of every key, and of deleted keys that they are, {kept}"

    def state_depends_on(self) -> dict[str, object]:
        tombstones = "for ever" if self.tombstones is None else "for a time"
        return {"keys": list(self.upstream.of), "tombstones": tombstones, **self.upstream.depends_on()}

    def may_become(self) -> dict[str, object]:
        return {} if self.tombstones is None else {"tombstones are kept": spoken(self.tombstones)}

    @property
    def kept_whole(self) -> tuple[Node, ...]:
        return (self.upstream,)


def latest(
    name: str,
    upstream: Node,
    key: tuple[str, ...],
    sequence: tuple[str, ...],
    deletes: str | None,
    tombstones: timedelta | None = None,
) -> Latest:
    """The node of a table over a changelog."""
    return Latest(Versions(upstream, key, sequence, deletes), tombstones, name=name)


def to_table(upstream: Node, key: str | tuple[str, ...], sequence: str | tuple[str, ...] | None) -> Latest:
    """The node of ``to_table``, refused when it makes no sense."""
    keys = names_of(key)
    step = f"to_table({key!r})"
    if not keys:
        raise PlanError(f"{step}: name the columns that tell one row from another. ({written_at()})")
    order = names_of(sequence)
    for column in (*keys, *order):
        upstream.columns.require(column, step)
    if upstream.columns.open:
        raise PlanError(f"{step}: rows are kept whole, so the source needs a schema. ({written_at()})")
    return latest("table_by_" + "_".join(keys), upstream, check_unique(keys, step), order, None)


def names_of(given: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """One name or several, as a tuple."""
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def history_of(versions: Node) -> timedelta:
    """How long an event may be late and still be answered."""
    return max((n.history for n in walk(versions) if isinstance(n, TableInput)), default=timedelta(0))


def versions_of(table: Node, step: str) -> Node:
    """The versions behind a table, after the same row steps: a row that a filter drops leaves a gap."""
    if isinstance(table, Latest):
        return table.upstream
    if isinstance(table, Filter):
        return Gap(versions_of(table.upstream, step), table.predicate, written_at=table.written_at)
    if isinstance(table, Select | WithColumns | Drop | Rename):
        return replace(table, upstream=versions_of(table.upstream, step))
    raise PlanError(
        f"{step}: a joined or aggregated table has no history; take the table as job.table(...) gives it, or after "
        f"row steps. ({written_at()})"
    )
