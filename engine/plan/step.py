"""Steps that keep state, and the rows that they refuse as late."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from penstock.plan.columns import Columns
from penstock.plan.errors import PlanError
from penstock.plan.node import Made, Mode, Node
from penstock.plan.written import written_at

NO_FOLDER = re.compile(r"[/\0]")

Late = Literal["drop", "capture", "dead_letter"]


@dataclass(frozen=True)
class Step(Node):
    """A step that keeps state: it has a name of its own, and a rule for rows that come too late for it."""

    name: str = field(kw_only=True)
    late: Late = field(default="drop", kw_only=True)

    stateful: ClassVar[bool] = True

    def __post_init__(self) -> None:
        # a name that is made of the keys' names holds whatever stands in those, and it becomes a folder
        object.__setattr__(self, "name", NO_FOLDER.sub("_", self.name))

    @property
    def by_wall(self) -> bool:
        """True when something happens by wall time alone, also while every input is silent."""
        return False

    @property
    def loads(self) -> tuple[str, ...]:
        """The inputs that must have been read to their end once before this step's time begins."""
        return ()

    @property
    def refuses(self) -> Columns:
        """The columns of the rows that it refuses as late; of two sides, all of both."""
        first = self.inputs[0].columns
        names = dict.fromkeys(name for upstream in self.inputs for name in upstream.columns.names)
        return first if len(self.inputs) == 1 else Columns(tuple(names), owner=first.owner)

    def state_depends_on(self) -> dict[str, object]:
        """What the step's state is made for: with another of these it could not be read."""
        return {}

    def may_become(self) -> dict[str, object]:
        """What else the step goes by: with another of these its state can still be read."""
        return {}

    @property
    def kept_whole(self) -> tuple[Node, ...]:
        """The inputs whose rows the step keeps with all their columns."""
        return ()


@dataclass(frozen=True)
class LateRows(Node):
    """The rows that a step refused as late, as they came to it."""

    step: Step

    @property
    def columns(self) -> Columns:
        return self.step.refuses

    @property
    def time(self) -> str | None:
        first = self.step.inputs[0].time
        return first if all(upstream.time == first for upstream in self.step.inputs) else None

    @property
    def mode(self) -> Mode:
        return "append"

    @property
    def key(self) -> tuple[str, ...]:
        return ()

    @property
    def window_closes_us(self) -> int | None:
        return self.step.inputs[0].window_closes_us

    def makes(self, column: str) -> Made:
        return Made(None, tuple((node, column) for node in self.step.inputs if column in node.columns), plain=True)

    def describe(self) -> str:
        return f"late rows of '{self.step.name}'"


def check_late(late: str, step: str) -> Late:
    """The rule for late rows, refused when there is no such rule."""
    if late not in get_args(Late):
        raise PlanError(f"{step}: late={late!r}; there is 'drop', 'capture', 'dead_letter'. ({written_at()})")
    return late  # type: ignore[return-value]  # mypy does not follow get_args


def check_timed(upstream: Node, step: str) -> None:
    """Refuse rows that have no event time."""
    if not upstream.timed:
        raise PlanError(f"{step}: the rows have no event time, as the changes of a table have none. ({written_at()})")


def row_steps(table: Node) -> list[str]:
    """The row steps after the step that made a table, in words: what was added by them must be taken back by them."""
    found = []
    while not isinstance(table, Step) and table.inputs:
        found.append(table.describe())
        table = table.inputs[0]
    return found[::-1]


def late_rows(node: Node) -> LateRows:
    """The node of ``.late``."""
    if not isinstance(node, Step):
        raise PlanError(
            f"late: only a step that keeps state refuses rows as late; read .late right after it. ({written_at()})"
        )
    if node.late != "capture":
        raise PlanError(
            f"late: the step {node.name!r} does not keep its late rows; write late='capture' there. ({written_at()})"
        )
    return LateRows(node)
