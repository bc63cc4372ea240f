"""What every step of a plan is: a frozen value that knows its inputs and states its columns."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import cached_property
from typing import ClassVar, Literal

from penstock.plan.columns import Columns
from penstock.plan.errors import PlanError
from penstock.plan.expressions import column_of, names_in, parse
from penstock.plan.written import written_at

Mode = Literal["append", "upsert"]
NO_LAG = timedelta(0)


@dataclass(frozen=True)
class Made:
    """How a step makes one of its columns: in words where it does something, and of which columns of which nodes.

    ``plain`` when the values stay as they are; ``type`` where the plan knows it.
    """

    said: str | None
    of: tuple[tuple[Node, str], ...] = ()
    plain: bool = False
    type: str | None = None


@dataclass(frozen=True)
class Node(ABC):
    """A step of a plan. Two nodes are equal when they mean the same, wherever they were written."""

    written_at: str = field(default_factory=written_at, compare=False, repr=False, kw_only=True)
    label: str | None = field(default=None, compare=False, repr=False, kw_only=True)

    stateful: ClassVar[bool] = False

    @cached_property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes that this one reads, in order."""
        return tuple(v for f in fields(self) if isinstance(v := getattr(self, f.name), Node))

    @property
    @abstractmethod
    def columns(self) -> Columns:
        """The columns of the rows that come out."""

    @property
    def time(self) -> str | None:
        """The column that shows the event time, None when it was dropped: the row keeps its time all the same."""
        return self.inputs[0].time

    @property
    def timed(self) -> bool:
        """True when every row has an event time with a bound on its lateness."""
        return all(i.timed for i in self.inputs)

    @property
    def key(self) -> tuple[str, ...]:
        """The key of the rows when they are a table; a stream has none."""
        return self.inputs[0].key if self.inputs else ()

    @property
    def mode(self) -> Mode:
        """``append`` when a row, once out, stays as it is; ``upsert`` when later rows replace it."""
        return self.inputs[0].mode if self.inputs else "append"

    @property
    def window_closes_us(self) -> int | None:
        """How long after ``window_end`` the rows' own window closes; None when they have no window."""
        return None

    @property
    def lag(self) -> timedelta:
        """How far behind the watermark this step's rows may come out, summed along its inputs."""
        return max((i.lag for i in self.inputs), default=NO_LAG)

    @abstractmethod
    def describe(self) -> str:
        """The step in one line of ``explain()``."""

    def keeps(self) -> str | None:
        """The state that the step keeps and what bounds it, None when it keeps none."""
        return None

    def makes(self, column: str) -> Made:
        """How the step makes a column: as its inputs have it, else by itself."""
        found = tuple((node, column) for node in self.inputs if column in node.columns)
        return Made(None, found, plain=True) if found else Made(f"{column} of {step_name(self) or self.describe()}")


def computed(name: str, text: str, upstream: Node) -> Made:
    """How a column is made that is an expression over the rows of a node."""
    known = {column.casefold(): column for column in upstream.columns.names}
    asked = dict.fromkeys(known.get(used.casefold(), used) for used in names_in(parse(text, name)))
    of = tuple((upstream, used) for used in asked if used in upstream.columns)
    plain = column_of(text) is not None
    return Made(None if asked.keys() == {name} and plain else f"{name} = {text}", of, plain)


def origin(node: Node, column: str) -> list[str]:
    """All that is done to make a column, and the columns of the inputs that it is made of."""
    found: dict[str, None] = {}
    seen: set[tuple[Node, str]] = set()

    def visit(node: Node, column: str) -> None:
        if (node, column) in seen:
            return
        seen.add((node, column))
        made = node.makes(column)
        if made.said is not None:
            found[made.said] = None
        for upstream, name in made.of:
            visit(upstream, name)

    visit(node, column)
    return list(found)


def type_of(node: Node, column: str) -> str | None:
    """The type of a column that comes as it is from where the plan knows it; None for what Spark must say."""
    made = node.makes(column)
    if made.type is not None or not made.plain:
        return made.type
    found = {type_of(upstream, name) for upstream, name in made.of}
    return found.pop() if len(found) == 1 else None


def walk(*roots: Node) -> Iterator[Node]:
    """Every distinct node under the roots, inputs before the steps that read them."""
    seen: set[Node] = set()

    def visit(node: Node) -> Iterator[Node]:
        if node in seen:
            return
        seen.add(node)
        for upstream in node.inputs:
            yield from visit(upstream)
        yield node

    for root in roots:
        yield from visit(root)


def step_name(node: Node) -> str | None:
    """The stable name of a step: its own, or the one that ``named`` gave it."""
    name = getattr(node, "name", node.label)
    return name if isinstance(name, str) else None


def named(node: Node, name: str) -> Node:
    """The same step under a name that state, metrics, errors and upgrades refer to."""
    check_step_name(name, f"named({name!r})")
    return replace(node, **{"name" if node.stateful else "label": name})


def check_step_name(name: str, step: str) -> str:
    """A name that may become a folder, a metric and a part of a message."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise PlanError(
            f"{step}: a name is letters, digits and underscores, and begins with a letter. ({written_at()})"
        )
    return name
