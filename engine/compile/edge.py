"""The way into a window: what Spark computes for each row before it is packed, and the kernel behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DoubleType, FloatType
from sqlglot import exp

from penstock.compile.failures import root_cause
from penstock.compile.layout import Layout
from penstock.compile.rows import visible
from penstock.plan.errors import PlanError
from penstock.plan.expressions import column_of, names_in, parse, quoted
from penstock.plan.text import where_written
from penstock.sources.base import PARTITION, PLACE, POSITION
from penstock.state.edge import BAD, BUCKET, CLOCK, INPUT, KEEP, LATE, TIME
from penstock.windows.aggregates.registry import Aggregate, make
from penstock.windows.calls import Call
from penstock.windows.kernel import WINDOW_END, WINDOW_START, Measure, WindowKernel
from penstock.windows.node import WindowAggregate

# where a row stands in time, and the types of that
ORDER = {TIME: pa.int64(), PARTITION: pa.int32(), POSITION: pa.int64()}


@dataclass(frozen=True)
class Way:
    """Which rows come to a step: the inputs that are counted there, the only one if it is so, and whether some drop."""

    taps: frozenset[int]
    only_input: int | None
    drops_rows: bool

    @classmethod
    def to(cls, stage: WindowAggregate, layout: Layout) -> Way:
        """As the plan has it."""
        return cls(layout.tapped(stage), layout.only_input(stage), layout.drops_rows(stage))


@dataclass(frozen=True)
class Edge:
    """A window compiled against the frame that feeds it."""

    node: WindowAggregate
    kernel: WindowKernel
    columns: Mapping[str, str]  # what is packed: Spark SQL text by name
    calls: tuple[Call, ...]  # the call behind each measure, in order
    key_types: tuple[pa.DataType, ...]
    carried_types: tuple[pa.DataType, ...]
    reads: tuple[str, ...]  # the users' columns of the frame that feeds it

    def layout(self) -> dict[str, str]:
        """The columns that the step keeps and their types: state of another layout cannot be read."""
        kept = dict(zip(self.node.keys, map(str, self.key_types), strict=True))
        for call, measure in zip(self.calls, self.kernel.measures, strict=True):
            types = ", ".join(map(str, measure.aggregate.state_types()))
            kept[f"{call.name}({', '.join(call.arguments)})"] = types
        carried = carried_names(self.node, list(self.reads)) if self.kernel.carried else []
        return kept | dict(zip(carried, map(str, self.carried_types), strict=False))

    @property
    def results(self) -> pa.Schema:
        """The columns that the kernel gives."""
        stamp = pa.timestamp("us", tz="UTC")
        fields = [
            (WINDOW_START, stamp),
            (WINDOW_END, stamp),
            *zip(self.kernel.keys, self.key_types, strict=True),
        ]
        if self.kernel.partial:
            fields += [(f"__ps_result_{i}", m.aggregate.result_type) for i, m in enumerate(self.kernel.measures)]
        else:
            fields += zip(self.kernel.carried, self.carried_types, strict=True)
        return pa.schema([pa.field(name, kind) for name, kind in fields])


def compile_edge(node: WindowAggregate, frame: DataFrame, buckets: int) -> Edge:
    """Choose the kernel by the types that Spark gives, and say what each row must bring."""
    try:
        return _compile_edge(node, frame, buckets)
    except (AnalysisException, ParseException) as error:
        raise PlanError(f"{where_written(node)}: {root_cause(error)}") from None


def _compile_edge(node: WindowAggregate, frame: DataFrame, buckets: int) -> Edge:
    columns: dict[str, str] = {}
    keys = tuple(f"__ps_key_{i}" for i in range(len(node.keys)))
    for key, name in zip(keys, node.keys, strict=True):
        columns[key] = _grouping(frame, name)
    hashed = f"cast(pmod(xxhash64({', '.join(columns.values())}), {buckets}) as int)" if keys else "0"
    key_types = _types(frame, list(columns.values()))
    measures = _measures(node, frame, columns)
    carried: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    if measures is None:
        measures = {}
        carried = _carry_rows(node, frame, columns)
    else:
        calls = tuple(measures)
    carried_types = (*_types(frame, [columns[c] for c in carried if c not in ORDER]), *ORDER.values())
    ordered = any(m.aggregate.needs_order for m in measures.values())
    kernel = WindowKernel(node.shape, keys, tuple(measures.values()), carried, ordered)
    columns[BUCKET] = hashed
    return Edge(node, kernel, columns, calls, key_types, carried_types, tuple(visible(frame)))


def _grouping(frame: DataFrame, name: str) -> str:
    kind = frame.schema[name].dataType
    # 0.0 and -0.0 are one group in Spark; adding zero makes them one value
    floating = isinstance(kind, FloatType | DoubleType)
    return f"cast({quoted(name)} + 0.0D as {kind.simpleString()})" if floating else quoted(name)


def _types(frame: DataFrame, texts: list[str]) -> tuple[pa.DataType, ...]:
    return tuple(to_arrow_type(f.dataType) for f in frame.selectExpr(*texts).schema.fields) if texts else ()


def _measures(node: WindowAggregate, frame: DataFrame, columns: dict[str, str]) -> dict[Call, Measure] | None:
    """A kernel aggregate for each distinct call; None when one of them is Spark's to do."""
    found: dict[Call, Measure] = {}
    added: dict[str, str] = {}
    for call in (c for a in node.aggregates for c in a.calls):
        if call in found:
            continue
        read = _read(call)
        if read is None:
            return None
        texts, options = read
        names = tuple(f"argument_{len(added) + i}" for i in range(len(texts)))
        aggregate: Aggregate | None = make(call.name, _types(frame, texts), call.distinct, options)
        if aggregate is None:
            return None
        asked = [c for c in (KEEP if KEEP in frame.columns else None, call.where and f"({call.where}\n)") if c]
        added.update(zip(names, (_only_where(text, asked) for text in texts), strict=True))
        mask = None
        if call.where is not None:
            mask = f"argument_{len(added)}"
            added[mask] = f"coalesce({_only_where(call.where, asked[:-1])}\n, false)"
        found[call] = Measure(aggregate, names, mask)
    if not all(a.ours for a in node.aggregates):
        return None
    columns.update(added)
    return found


def _only_where(text: str, conditions: list[str]) -> str:
    """The text, looked at only where the conditions hold: an argument that is not asked for must not fail."""
    if not conditions or column_of(text) is not None:
        return text
    return f"CASE WHEN {' AND '.join(conditions)} THEN {text}\n END"  # a new line: the text may end in a comment


def _read(call: Call) -> tuple[list[str], dict[str, Any]] | None:
    """What a call reads as columns, and what it is told as constants; None when it is Spark's to do."""
    texts = list(call.arguments)
    options: dict[str, Any] = {"ignore_nulls": call.ignore_nulls} if call.ignore_nulls else {}
    if call.name == "count":
        if texts and (texts[0] == "*" or isinstance(parse(texts[0], "count"), exp.Literal)):
            texts = texts[1:]
        if call.distinct and len(texts) > 1:
            there = " AND ".join(f"({t}) IS NOT NULL" for t in texts)
            texts = [f"CASE WHEN {there} THEN struct({', '.join(texts)}) END"]
    elif call.name in ("percentile", "percentile_cont", "median"):
        constant = "0.5" if call.name == "median" else texts[0 if call.name == "percentile_cont" else -1]
        if call.name == "percentile_cont":
            texts = _ascending(call.within_group)
        elif call.name == "percentile":
            texts = texts[:-1]
        fractions = _fractions(constant)
        if fractions is None or len(texts) != 1:
            return None
        options |= {"percentages": fractions[0], "array": fractions[1]}
    if call.within_group is not None and call.name != "percentile_cont":
        return None
    return texts, options


def _ascending(within_group: str | None) -> list[str]:
    words = (within_group or "").split()
    if [w.lower() for w in words[:2]] != ["order", "by"] or words[-1].lower() == "desc":
        return []
    body = words[2:-1] if words[-1].lower() == "asc" else words[2:]
    return [" ".join(body)]


def _fractions(text: str) -> tuple[tuple[float, ...], bool] | None:
    tree = parse(text, "percentile")
    listed = isinstance(tree, exp.Array)
    items = tree.expressions if listed else [tree]
    if not all(isinstance(i, exp.Literal) and i.is_number for i in items):
        return None
    return tuple(float(i.name) for i in items), listed


def _carry_rows(node: WindowAggregate, frame: DataFrame, columns: dict[str, str]) -> tuple[str, ...]:
    """Carry what the aggregates read, for Spark to finish when the window closes."""
    carried = {f"__ps_carried_{i}": quoted(c) for i, c in enumerate(carried_names(node, visible(frame)))}
    carried |= {c: c for c in ORDER}
    columns.update(carried)
    return tuple(carried)


def carried_names(node: WindowAggregate, columns: list[str]) -> list[str]:
    """The users' names of the carried columns, in order; keys come along anyhow."""
    used = {n.casefold() for a in node.aggregates for n in names_in(parse(a.text, node.name))}
    return [c for c in columns if c.casefold() in used and c not in node.keys]


def packed_frame(
    edge: Edge, frame: DataFrame, batch: int, previous_us: int | None, way: Way, keep_late: bool
) -> DataFrame:
    """The frame that is packed: the edge's columns, and those hidden ones that say something to the pack."""
    present = frame.columns
    taps = way.taps
    if edge.kernel.ordered or not edge.kernel.partial:
        frame = ordered(frame, batch)
    columns = {**edge.columns, TIME: TIME}
    if CLOCK in present:
        columns[CLOCK] = f"coalesce({CLOCK}, 0)"
    if KEEP in present and (way.drops_rows or way.only_input is None):
        columns[KEEP] = KEEP
    if edge.kernel.ordered:
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
        is_late = f"{TIME} < {edge.kernel.late_before(previous_us)}L"
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
