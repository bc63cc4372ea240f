"""The rows of one batch: as the inputs brought them, and as the steps have made them so far."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.compile.edge import ordered_side, ordered_union
from penstock.compile.finish import timed
from penstock.compile.ingest import flagged, usable
from penstock.compile.layout import Layout
from penstock.compile.rows import HIDDEN, Frames, compile_node, visible
from penstock.compile.types import frame_of
from penstock.plan.expressions import quoted
from penstock.plan.input import Input
from penstock.plan.node import Node
from penstock.state.edge import BAD, CLOCK, INPUT, KEEP, TIME, WEIGHT
from penstock.state.pack import Facts
from penstock.state.stage import Moment


class Reading:
    """The frames and tables of a batch, by node.

    ``given`` holds the rows of each input as they were taken in; or, of a job that reads its inputs in one
    way only, the rows at the end of that way. ``small`` says that they fit in this process; of ``silent`` nodes
    it is known that they have none.
    """

    def __init__(
        self,
        layout: Layout,
        given: Mapping[Node, DataFrame],
        spark: SparkSession,
        small: bool,
        moment: Moment,
        silent: Collection[Node] = (),
    ) -> None:
        self.layout = layout
        self.spark = spark
        self.small = small
        self._batch = moment.batch
        self._silent = frozenset(silent)
        self._given = {node: _on_time(node, frame, moment.wall_us) for node, frame in given.items()}
        self._tables: dict[Node, pa.Table] = {}
        self._frames: dict[Node, DataFrame] = {}

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
        return all(b in self._silent or self._has_none(b) for b in self._begins(root))

    def _has_none(self, node: Node) -> bool:
        return node in self._tables and not self._tables[node].num_rows

    def _begins(self, root: Node) -> tuple[Node, ...]:
        return (root,) if root in self._given else self.layout.boundaries(root)

    def edge(self, root: Node) -> DataFrame:
        """The frame that feeds a stateful step: with the rows that moved time and were dropped on the way."""
        begins = self._begins(root)
        raw = any(b in self._given for b in begins)
        at: dict[Node, DataFrame] = {}
        for side, node in enumerate(begins):
            if node in self._given:
                frame = self._given[node]
                at[node] = frame if KEEP in frame.columns else flagged(frame)
                if len(self.layout.reads(node)) > 1:
                    at[node] = ordered_union(at[node], self._batch, len(self.layout.inputs))
            else:
                at[node] = self._made(node)
                if raw:
                    at[node] = at[node].selectExpr("*", f"true AS {KEEP}", f"-1 AS {INPUT}")
            if len(begins) > 1:
                # in a union each side knows its own order, or the one without would have none
                at[node] = ordered_side(at[node], self._batch, side, len(begins))
        return compile_node(root, Frames(at, raw, self.layout.numbers))

    def rows(self, root: Node) -> DataFrame:
        """The frame of an output: the users' columns of the rows that are left; of a table also their weights."""
        at = {}
        for node in self._begins(root):
            given = self._given.get(node)
            at[node] = self._made(node) if given is None else usable(given) if BAD in given.columns else given
        frame = compile_node(root, Frames(at))
        return frame.select(*map(quoted, visible(frame)), *([WEIGHT] if root.mode == "upsert" else []))

    def table(self, root: Node) -> pa.Table | None:
        """The rows at ``root`` when they are in this process as they stand, else None."""
        table = self._tables.get(root)
        if table is None:
            return None
        return table.select([c for c in table.column_names if not c.startswith(HIDDEN) or c == WEIGHT])

    def _made(self, node: Node) -> DataFrame:
        """A step's results as a frame, with their time."""
        frame = self._frames[node] if node in self._frames else frame_of(self.spark, self._tables[node])
        return timed(node, frame)

    def bad(self) -> list[pa.ChunkedArray]:
        """The bad rows of inputs that no step reads, as JSON."""
        found = [f.where(f"{BAD} IS NOT NULL").select(BAD).toArrow()[BAD] for _, f in self._untapped()]
        return [texts for texts in found if len(texts)]

    def _untapped(self) -> list[tuple[int, DataFrame]]:
        """The inputs that no step reads, by number; those that were read in one way have been judged on it."""
        return [
            (self.layout.numbers[node], frame)
            for node, frame in self._given.items()
            if isinstance(node, Input) and node not in self._silent and self.layout.taps[node] is None
            if BAD in frame.columns
        ]

    def observed(self) -> Facts:
        """How many rows came and how far the inputs have come, by their partitions, that no step reads."""
        facts = Facts()
        for number, frame in self._untapped():
            clock = f"coalesce({CLOCK}, 0)" if CLOCK in frame.columns else "0"
            told = frame.selectExpr(f"{clock} AS clock", f"CASE WHEN {BAD} IS NULL THEN {TIME} END AS time")
            if self.small:
                table = told.toArrow().group_by("clock").aggregate([([], "count_all"), ("time", "max")])
                found = [tuple(row.values()) for row in table.select(["clock", "count_all", "time_max"]).to_pylist()]
            else:
                found = [tuple(r) for r in told.groupBy("clock").agg(F.count(F.lit(1)), F.max("time")).collect()]
            newest = {number: {int(p): int(t) for p, _, t in found if t is not None}}
            facts += Facts({number: sum(rows for _, rows, _ in found)}, newest if newest[number] else {})
        return facts


def _on_time(node: Node, frame: DataFrame, wall_us: int) -> DataFrame:
    """Processing time is the batch's wall time, which never goes back, whatever the log's clock did."""
    if not isinstance(node, Input) or not node.processing:
        return frame
    return frame.withColumn(TIME, F.lit(wall_us))
