"""The way into a stateful step: what Spark computes for each row before it is packed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from penstock.compile.layout import Layout
from penstock.compile.rows import visible
from penstock.compile.types import arrow_type
from penstock.plan.expressions import quoted
from penstock.plan.step import Step
from penstock.sources.base import PARTITION, PLACE, POSITION
from penstock.state.edge import BAD, CLOCK, INPUT, KEEP, LATE, TIME, WEIGHT, Kernel

#: Where a row stands in time, and the types of that.
ORDER = {TIME: pa.int64(), PARTITION: pa.int32(), POSITION: pa.int64()}


@dataclass(frozen=True)
class Way:
    """Which rows come along an edge: the inputs that are counted there, the only one if so, and whether some drop."""

    taps: frozenset[int]
    only_input: int | None
    drops_rows: bool

    @classmethod
    def to(cls, stage: Step, edge: int, layout: Layout) -> Way:
        """As the plan has it."""
        return cls(layout.tapped(stage, edge), layout.only_input(stage, edge), layout.drops_rows(stage.inputs[edge]))


@dataclass(frozen=True)
class CompiledEdge:
    """What a step asks of the rows of one edge, compiled against the frame that brings them."""

    columns: Mapping[str, str]  # what is packed: Spark SQL text by name
    reads: tuple[str, ...]  # the users' columns of the frame
    ordered: bool = True  # the kernel asks where rows stand in time
    time: str = TIME  # the rows' time at this step, as Spark SQL text


def table_edge(columns: Mapping[str, str], frame: DataFrame) -> CompiledEdge:
    """The edge of a table's changes, which have a weight, and no time and no order."""
    return CompiledEdge({**columns, WEIGHT: WEIGHT}, tuple(visible(frame)), False, "0L")


@dataclass(frozen=True)
class CompiledStep:
    """A stateful step compiled against the frames that feed it."""

    node: Step
    kernel: Kernel
    edges: tuple[CompiledEdge, ...]
    results: pa.Schema  # what the kernel gives
    kept: Mapping[str, str]  # the columns that the step keeps and their types: other state cannot be read
    finished: Callable[[DataFrame], DataFrame]  # the kernel's results as readers see them
    renamed: Callable[[pa.Table], pa.Table | None]  # the same where nothing is left to compute, else None
    parts: tuple[tuple[str, int], ...] = ()  # of partial aggregates: each call, and how many columns its state has


def hashed(texts: list[str], buckets: int) -> str:
    """The bucket of a key, as Spark SQL text."""
    return f"cast(pmod(xxhash64({', '.join(texts)}), {buckets}) as int)" if texts else "0"


def grouping(frame: DataFrame, name: str) -> str:
    """A column as a key, as Spark SQL text."""
    kind = frame.schema[name].dataType
    # 0.0 and -0.0 are one group in Spark; adding zero makes them one value
    floating = isinstance(kind, FloatType | DoubleType)
    return f"cast({quoted(name)} + 0.0D as {kind.simpleString()})" if floating else quoted(name)


def types_of(frame: DataFrame, texts: list[str]) -> tuple[pa.DataType, ...]:
    """The Arrow types that Spark gives to expressions."""
    return tuple(arrow_type(f.dataType) for f in frame.selectExpr(*texts).schema.fields) if texts else ()


def packed_frame(
    step: CompiledStep, number: int, frame: DataFrame, batch: int, previous_us: int | None, way: Way, keep_late: bool
) -> DataFrame:
    """The frame that is packed: the edge's columns, and those hidden ones that say something to the pack."""
    edge = step.edges[number]
    present = frame.columns
    taps = way.taps
    if edge.ordered:
        frame = ordered(frame, batch)
    columns = {**edge.columns, TIME: edge.time}
    if CLOCK in present:
        columns[CLOCK] = f"coalesce({CLOCK}, 0)"
    if KEEP in present and (way.drops_rows or way.only_input is None):
        columns[KEEP] = KEEP
    if edge.ordered:
        columns |= {PARTITION: PARTITION, POSITION: POSITION}
    if INPUT in present and way.only_input is None:
        tapped = f"{INPUT} IN ({', '.join(map(str, taps))})" if taps else "false"
        frame = frame.where(f"{tapped} OR {KEEP}")
        columns[INPUT] = f"CASE WHEN {tapped} THEN {INPUT} ELSE -1 END"
        if BAD in present:
            columns[BAD] = f"CASE WHEN {tapped} THEN {BAD} END"
    elif BAD in present:
        columns[BAD] = BAD
    if keep_late:
        is_late = f"{edge.time} < {step.kernel.doubtful_before(number, previous_us)}L"
        names = [*visible(frame), *(c for c in (TIME, PLACE, INPUT) if c in present)]
        # the fields are null where the struct is: Arrow cannot view a null struct whose fields may not be
        fields = ", ".join(f"CASE WHEN {is_late} THEN {quoted(c)} END AS {quoted(c)}" for c in names)
        columns[LATE] = f"CASE WHEN {is_late} THEN struct({fields}) END"
    # as text: Spark reads a line faster than we can build its tree call by call
    return frame.selectExpr(*(f"{text}\n AS {quoted(name)}" for name, text in columns.items()))


def ordered(frame: DataFrame, batch: int) -> DataFrame:
    """The order of arrival, where the source does not know it: the batch, then Spark's partition and row."""
    if POSITION in frame.columns:
        return frame
    return frame.selectExpr("*", f"{batch} AS {PARTITION}", f"monotonically_increasing_id() AS {POSITION}")


def ordered_side(frame: DataFrame, batch: int, side: int, sides: int) -> DataFrame:
    """The order of arrival on one side of a union: rows of two sides never stand at one place."""
    return ordered(frame, batch).withColumn(PARTITION, F.expr(f"{PARTITION} * {sides} + {side}"))


def ordered_union(frame: DataFrame, batch: int, inputs: int) -> DataFrame:
    """The order of arrival where inputs met in Spark's stream, and some of their sources do not know it.

    ``ingest`` has given those that do partitions above the first of each ``inputs + 1``, which is for the others.
    """
    if POSITION not in frame.columns:
        return ordered(frame, batch)
    known = {PARTITION: f"{batch} * {inputs + 1}", POSITION: "monotonically_increasing_id()"}
    return frame.withColumns({name: F.expr(f"coalesce({name}, {other})") for name, other in known.items()})
