"""The streaming part of a job: every input read once, in one frame."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.compile.ingest import flagged, ingest, usable_or_stop
from penstock.compile.layout import Layout
from penstock.compile.rows import Frames, compile_node, visible
from penstock.plan.expressions import quoted
from penstock.plan.node import Node
from penstock.state.edge import INPUT

TICK = -1


class Streams:
    """The one frame that the query reads, and how a batch of it is taken apart again.

    Where the inputs are read in one way only, row steps are part of the frame, so that Spark reads no more
    than they need. Else the inputs stand side by side in it, each with its own columns.
    """

    def __init__(self, layout: Layout, spark: SparkSession) -> None:
        self._layout = layout
        wall = "unix_micros(current_timestamp())"
        taken = {node: ingest(layout, node, node.source.read(spark), wall) for node in layout.inputs}
        self.one_way = layout.direct is not None
        self._columns: dict[Node, list[str]] = {node: frame.columns for node, frame in taken.items()}
        if layout.direct is not None:
            into_a_step = any(layout.taps.values())
            at: dict[Node, DataFrame] = {
                node: flagged(frame) if into_a_step else usable_or_stop(frame) for node, frame in taken.items()
            }
            self.frame = compile_node(layout.direct, Frames(at, into_a_step, layout.numbers))
            if not into_a_step:
                # no step needs their time or their place: what nobody asks for is not computed
                self.frame = self.frame.select(*map(quoted, visible(self.frame)))
            return
        frames = [
            frame.select(F.lit(number).alias(INPUT), *(F.col(quoted(c)).alias(f"{number}:{c}") for c in frame.columns))
            for number, frame in enumerate(taken.values())
        ]
        if layout.needs_ticks:
            # a batch is planned only when there are rows: a slow clock makes some when nothing else does
            ticks = spark.readStream.format("rate").option("rowsPerSecond", 1).load()
            frames.append(ticks.select(F.lit(TICK).alias(INPUT)))
        self.frame = frames[0]
        for other in frames[1:]:
            self.frame = self.frame.unionByName(other, allowMissingColumns=True)

    def silent(self, batch: DataFrame) -> tuple[Node, ...]:
        """The inputs that bring nothing, in a batch of few rows; not asked where there is but one."""
        if self._layout.direct is not None or len(self._layout.inputs) == 1:
            return ()
        spoke = set(batch.select(INPUT).toArrow()[INPUT].to_pylist())
        return tuple(node for number, node in enumerate(self._layout.inputs) if number not in spoke)

    def given(self, batch: DataFrame) -> Mapping[Node, DataFrame]:
        """The rows of a batch by the node at which they stand."""
        if self._layout.direct is not None:
            return {self._layout.direct: batch}
        return {
            node: batch.where(F.col(INPUT) == number).select(
                *(F.col(quoted(f"{number}:{c}")).alias(c) for c in self._columns[node])
            )
            for number, node in enumerate(self._layout.inputs)
        }
