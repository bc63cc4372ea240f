"""The rows of one batch: as the inputs brought them, and as the steps have made them so far."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from penstock.compile.finish import timed
from penstock.compile.ingest import flagged, usable
from penstock.compile.layout import Layout
from penstock.compile.rows import Frames, compile_node, visible
from penstock.compile.types import frame_of
from penstock.plan.input import Input
from penstock.plan.node import Node
from penstock.state.edge import BAD, INPUT, KEEP, TIME
from penstock.state.pack import Facts
from penstock.windows.node import WindowAggregate


class Reading:
    """The frames and tables of a batch, by node.

    ``given`` holds the rows of each input as they were taken in; or, of a job that reads its inputs in one
    way only, the rows at the end of that way. ``small`` says that they fit in this process.
    """

    def __init__(self, layout: Layout, given: Mapping[Node, DataFrame], spark: SparkSession, small: bool) -> None:
        self.layout = layout
        self.spark = spark
        self.small = small
        self._given = given
        self._tables: dict[Node, pa.Table] = {}
        self._frames: dict[Node, DataFrame] = {}
        self._observations: dict[Input, Observation] = {}
        self._plain: dict[Node, DataFrame] = {}

    def _usable(self, node: Node) -> DataFrame:
        """Without the bad rows; an input that no step reads is watched for its time on the way out."""
        if node not in self._plain:
            self._plain[node] = self._watched(node, self._given[node])
        return self._plain[node]

    def _watched(self, node: Node, frame: DataFrame) -> DataFrame:
        read = self.layout.reads(node)
        if len(read) == 1 and self.layout.taps[read[0]] is None and TIME in frame.columns:
            seen = self._observations[read[0]] = Observation()
            good = F.col(BAD).isNull() if BAD in frame.columns else F.lit(True)
            newest = F.max(F.when(good, F.col(TIME)))
            frame = frame.observe(seen, F.count(F.lit(1)).alias("rows"), newest.alias("newest"))
        return usable(frame) if BAD in frame.columns else frame

    def put(self, node: Node, result: pa.Table | DataFrame) -> None:
        """What a step has made: as a table of this process, or still in Spark."""
        if isinstance(result, DataFrame):
            self._frames[node] = result
        else:
            self._tables[node] = result

    def is_here(self, root: Node) -> bool:
        """True when all rows that lead to ``root`` are in this process, or are few."""
        return all(b in self._tables or (self.small and b not in self._frames) for b in self._begins(root))

    def is_empty(self, root: Node) -> bool:
        """True when it is known that no row leads to ``root``."""
        return all(b in self._tables and not self._tables[b].num_rows for b in self._begins(root))

    def _begins(self, root: Node) -> tuple[Node, ...]:
        return (root,) if root in self._given else self.layout.boundaries(root)

    def edge(self, root: Node) -> DataFrame:
        """The frame that feeds a stateful step: with the rows that moved time and were dropped on the way."""
        begins = self._begins(root)
        raw = any(b in self._given for b in begins)
        at: dict[Node, DataFrame] = {}
        for node in begins:
            if node in self._given:
                frame = self._given[node]
                at[node] = frame if KEEP in frame.columns else flagged(frame)
            else:
                at[node] = self._made(node)
                if raw:
                    at[node] = at[node].selectExpr("*", f"true AS {KEEP}", f"-1 AS {INPUT}")
        return compile_node(root, Frames(at, flagged=raw))

    def rows(self, root: Node) -> DataFrame:
        """The frame of an output: the users' columns of the rows that are left."""
        at = {b: self._usable(b) if b in self._given else self._made(b) for b in self._begins(root)}
        frame = compile_node(root, Frames(at))
        return frame.select(*(f"`{c}`" for c in visible(frame)))

    def table(self, root: Node) -> pa.Table | None:
        """The rows at ``root`` when they are in this process as they stand, else None."""
        table = self._tables.get(root)
        return None if table is None else table.select([c for c in table.column_names if not c.startswith("__ps_")])

    def _made(self, node: Node) -> DataFrame:
        """A step's results as a frame, with their time; what was late has its own, and came from an input once."""
        frame = self._frames[node] if node in self._frames else frame_of(self.spark, self._tables[node])
        return timed(node, frame) if isinstance(node, WindowAggregate) else frame.drop(INPUT)

    def bad(self) -> list[pa.ChunkedArray]:
        """The bad rows of inputs that no step reads, as JSON."""
        found = []
        for node, frame in self._given.items():
            if isinstance(node, Input) and self.layout.taps[node] is None and BAD in frame.columns:
                found.append(frame.where(f"{BAD} IS NOT NULL").select(BAD).toArrow()[BAD])
        return [texts for texts in found if len(texts)]

    def observed(self, read: Collection[str]) -> Facts:
        """How far the inputs have come that no step reads; ``read`` are the outputs whose rows all went by."""
        facts = Facts()
        for node, seen in self._observations.items():
            number = self.layout.inputs.index(node)
            if any(o.name in read and node in self.layout.reads(o.node) for o in self.layout.outputs):
                told = seen.get
            else:
                # the sinks had the batch already, or looked at none or some of it: read the rows for their time alone
                frame = next(f for n, f in self._plain.items() if node in self.layout.reads(n))
                told = frame.agg(F.count(F.lit(1)).alias("rows"), F.max(TIME).alias("newest")).collect()[0].asDict()
            newest = {} if told["newest"] is None else {number: {0: told["newest"]}}
            facts += Facts({number: told["rows"]}, newest)
        return facts
