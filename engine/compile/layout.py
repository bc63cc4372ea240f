"""How a plan is read: its stateful steps in order, and which rows of which input go where."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from penstock.job import Job
from penstock.joins.versions import Versions
from penstock.operators.clock import corrections
from penstock.operators.rows import Explode, Filter, MapPandas, Union
from penstock.plan.input import Input
from penstock.plan.node import Node, walk
from penstock.plan.output import Output
from penstock.plan.step import LateRows, Step

Boundary = Input | Step | LateRows


@dataclass(frozen=True)
class Layout:
    """A job's plan, cut at its stateful steps."""

    job: Job

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """The inputs that something reads; their place here is their number on the way."""
        used = set(walk(*(o.node for o in self.outputs)))
        return tuple(i for i in self.job.inputs if i in used)

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The outputs."""
        return self.job.outputs

    @cached_property
    def stages(self) -> tuple[Step, ...]:
        """The stateful steps, each after those that feed it."""
        found = walk(*(o.node for o in self.outputs))
        return tuple(n for n in found if isinstance(n, Step))

    @cached_property
    def corrected(self) -> dict[Input, tuple[str, str]]:
        """The inputs whose clock is corrected, and the columns by which."""
        return corrections(o.node for o in self.outputs)

    @cached_property
    def roots(self) -> tuple[Node, ...]:
        """The nodes whose frames are asked for: what feeds a stateful step, and what goes out."""
        return (*(u for s in self.stages for u in s.inputs), *(o.node for o in self.outputs))

    def boundaries(self, root: Node) -> tuple[Boundary, ...]:
        """Where the row steps that lead to ``root`` begin."""
        if isinstance(root, Input | Step | LateRows):
            return (root,)
        return tuple(dict.fromkeys(b for upstream in root.inputs for b in self.boundaries(upstream)))

    def reads(self, root: Node) -> tuple[Input, ...]:
        """The inputs that ``root`` reads by row steps alone."""
        return tuple(b for b in self.boundaries(root) if isinstance(b, Input))

    @cached_property
    def taps(self) -> dict[Input, tuple[Step, int] | None]:
        """For each input the step and edge on whose way its rows are counted and judged; None when no step reads it."""
        taps: dict[Input, tuple[Step, int] | None] = dict.fromkeys(self.inputs)
        for stage in reversed(self.stages):
            for edge, upstream in reversed(list(enumerate(stage.inputs))):
                for node in self.reads(upstream):
                    taps[node] = stage, edge
        return taps

    @cached_property
    def numbers(self) -> dict[Node, int]:
        """The number by which rows on the way name their input."""
        return {node: number for number, node in enumerate(self.inputs)}

    @property
    def sources(self) -> tuple[str, ...]:
        """What Spark reads, in the order in which its log keeps the offsets."""
        read = self.inputs if self.direct is None else self.reads(self.direct)
        return (*(i.name for i in read), *(["(ticks)"] if self.needs_ticks else []))

    def tapped(self, stage: Step, edge: int) -> frozenset[int]:
        """The numbers of the inputs whose rows are counted and judged on an edge."""
        return frozenset(i for i, node in enumerate(self.inputs) if self.taps[node] == (stage, edge))

    def only_input(self, stage: Step, edge: int) -> int | None:
        """The number of the one input whose rows all come along an edge, and are counted there; else None."""
        upstream = stage.inputs[edge]
        taps = self.tapped(stage, edge)
        remade = self._has(upstream, (MapPandas, Explode, Union))
        if len(self.boundaries(upstream)) != 1 or len(taps) != 1 or remade:
            return None
        return next(iter(taps))

    def drops_rows(self, root: Node) -> bool:
        """True when a row step on the way may drop rows that have been seen."""
        return self._has(root, (Filter, Explode, MapPandas, Versions))

    def _has(self, root: Node, kinds: type[Node] | tuple[type[Node], ...]) -> bool:
        if isinstance(root, Input | Step | LateRows):
            return False
        return isinstance(root, kinds) or any(self._has(upstream, kinds) for upstream in root.inputs)

    @cached_property
    def direct(self) -> Node | None:
        """The one root that reads all inputs, if there is one: Spark then sees the way from source to there whole."""
        reading = [root for root in self.roots if self.reads(root)]
        if len(reading) != 1 or set(self.reads(reading[0])) != set(self.inputs):
            return None
        if self.needs_ticks:
            return None  # the ticks are rows of their own
        into_a_step = any(reading[0] in s.inputs for s in self.stages)
        if not into_a_step and (self.job.dead_letter_sink is not None or len(self.inputs) > 1):
            return None
        return reading[0] if self.boundaries(reading[0]) == self.reads(reading[0]) else None

    @cached_property
    def needs_ticks(self) -> bool:
        """True when something happens by wall time alone, also while every input is silent."""
        by_wall = any(s.by_wall for s in self.stages)
        return by_wall or any(i.idle_after is not None or i.processing for i in self.inputs)
