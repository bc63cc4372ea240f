"""The rules of windows: which kernel, what is packed, how results become rows again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.compile import finish
from penstock.compile.edge import ORDER, CompiledEdge, CompiledStep, grouping, hashed, table_edge, types_of
from penstock.compile.measures import measures
from penstock.compile.rows import visible
from penstock.plan.columns import WINDOW_COLUMNS
from penstock.plan.errors import PlanError
from penstock.plan.expressions import names_in, parse, quoted
from penstock.plan.text import where_written
from penstock.state.edge import BUCKET, TIME, WEIGHT, Alone, OneEdged
from penstock.windows.aggregates.kept_rows import KeptRows
from penstock.windows.aggregates.subtraction import subtracts
from penstock.windows.aggregates.top import make_top
from penstock.windows.aligned import tumbling
from penstock.windows.firing import Final, Panes
from penstock.windows.kernel import TIMESTAMP, WINDOW_END, WINDOW_START, WindowKernel
from penstock.windows.keyed import KeyedWindowKernel
from penstock.windows.node import Window, WindowAggregate, WindowTop
from penstock.windows.partials import Measure, Partials
from penstock.windows.same import Same
from penstock.windows.sessions import Session
from penstock.windows.shown import PANE
from penstock.windows.sliding import Sliding
from penstock.windows.table_kernel import RegroupingKernel, SubtractingKernel


def aggregates(node: WindowAggregate, frame: DataFrame, buckets: int) -> CompiledStep:
    """The rule of aggregates: partial ones where kernels know all calls, else the rows for Spark to finish."""
    columns = _keys(node, frame)
    keys = tuple(columns)
    found = measures(node, frame, columns)
    if isinstance(found, dict):
        calls = tuple(found)
        kept = {c.text: _listed(m.aggregate.state_types()) for c, m in found.items()}
        ordered = any(m.aggregate.needs_order for m in found.values())
        return _compiled(
            node, frame, buckets, columns, Partials(keys, tuple(found.values()), ordered), kept, explode=False,
            finished=lambda rows: finish.aggregates(node, keys, calls, rows),
            renamed=lambda rows: finish.renamed_aggregates(node, keys, calls, rows),
            parts=tuple((c.text, len(m.aggregate.state_types())) for c, m in found.items()),
        )  # fmt: skip
    if not isinstance(node.firing, Final):
        what = "one of its aggregates" if found is None else f"{found.name} of this type"
        raise PlanError(
            f"{where_written(node)}: {what} is Spark's to do, which can be finished once and not corrected: "
            "it needs a window with emit='final'."
        )
    used = {n.casefold() for a in node.aggregates for n in names_in(parse(a.text, node.name))}
    grouped = (*node.keys, *(WINDOW_COLUMNS if isinstance(node.shape, Same) else ()))
    carried = tuple(c for c in visible(frame) if c.casefold() in used and c not in grouped)
    fields = {f"__ps_carried_{i}": quoted(c) for i, c in enumerate(carried)}
    types = types_of(frame, list(fields.values()))
    rows = KeptRows((*zip(fields, types, strict=True), *ORDER.items()))
    columns |= fields | {c: c for c in ORDER}
    return _compiled(
        node, frame, buckets, columns, Partials(keys, (Measure(rows, (*fields, *ORDER), None),)),
        dict(zip(carried, map(str, types), strict=True)), explode=True, ordered=True,
        finished=lambda frame: finish.aggregated_by_spark(node, keys, carried, frame),
        renamed=lambda table: None,
    )  # fmt: skip


def top(node: WindowTop, frame: DataFrame, buckets: int) -> CompiledStep:
    """The rule of ``top``: the first rows are an aggregate whose result is rows."""
    columns = _keys(node, frame)
    keys = tuple(columns)
    fields = {f"__ps_carried_{i}": quoted(c) for i, c in enumerate(node.carried)}
    by = {f"__ps_by_{i}": o.text for i, o in enumerate(node.by)}
    types, by_types = types_of(frame, list(fields.values())), types_of(frame, list(by.values()))
    order = tuple((kind, o.descending, o.nulls_first) for kind, o in zip(by_types, node.by, strict=True))
    first = make_top(node.n, tuple(zip(fields, types, strict=True)), order, node.ties)
    if first is None:
        raise PlanError(f"{where_written(node)}: rows cannot be put in order by values of a nested type.")
    columns |= fields | by
    kept = dict(zip((*node.carried, *(o.text for o in node.by)), map(str, (*types, *by_types)), strict=True))
    return _compiled(
        node, frame, buckets, columns, Partials(keys, (Measure(first, (*fields, *by), None),), ordered=True),
        kept, explode=True,
        finished=lambda rows: finish.top(node, keys, rows),
        renamed=lambda rows: finish.renamed_top(node, keys, rows),
    )  # fmt: skip


def _keys(node: Window, frame: DataFrame) -> dict[str, str]:
    """The key as it is packed; rows that have their window already are told apart by it too."""
    own = WINDOW_COLUMNS if isinstance(node.shape, Same) else ()
    return {f"__ps_key_{i}": grouping(frame, name) for i, name in enumerate((*own, *node.keys))}


def _compiled(
    node: Window,
    frame: DataFrame,
    buckets: int,
    columns: dict[str, str],
    partials: Partials,
    kept: Mapping[str, str],
    *,
    explode: bool,
    finished: Callable[[DataFrame], DataFrame],
    renamed: Callable[[pa.Table], pa.Table | None],
    ordered: bool = False,
    parts: tuple[tuple[str, int], ...] = (),
) -> CompiledStep:
    texts = [columns[k] for k in partials.keys]
    key_types = types_of(frame, texts)
    time = TIME
    if isinstance(node.shape, Same):
        # the last instant of the window that made the row: it closes when that one did
        time = f"(unix_micros(window_end) - 1 + {node.upstream.window_closes_us})"
    names = (*WINDOW_COLUMNS, *node.keys) if isinstance(node.shape, Same) else node.keys
    packed = {**columns, BUCKET: hashed(texts, buckets)}
    edge = CompiledEdge(packed, tuple(visible(frame)), ordered or partials.ordered, time)
    row_key: dict[str, str] = {}
    if node.over_table:
        row_key = {f"__ps_row_{i}": grouping(frame, name) for i, name in enumerate(node.upstream.key)}
        edge = table_edge({**packed, **row_key}, frame)
    return CompiledStep(
        node,
        Alone(_kernel(node, partials, tuple(row_key), explode)),
        (edge,),
        results=_results(node, partials, key_types, explode),
        kept={**dict(zip(names, map(str, key_types), strict=True)), **kept},
        finished=finished,
        renamed=renamed,
        parts=parts,
    )


def _kernel(node: Window, partials: Partials, row_key: tuple[str, ...], explode: bool) -> OneEdged:
    if node.over_table:
        if not explode and all(subtracts(m.aggregate) for m in partials.measures):
            return SubtractingKernel(partials)
        return RegroupingKernel(partials, row_key, explode)
    shape = tumbling("1 microsecond") if isinstance(node.shape, Same) else node.shape
    if isinstance(shape, Sliding | Session) or shape is None or not isinstance(node.firing, Final):
        return KeyedWindowKernel(shape, partials, node.firing, explode)
    return WindowKernel(shape, partials, explode)


def _results(node: Window, partials: Partials, key_types: tuple[pa.DataType, ...], explode: bool) -> pa.Schema:
    """The columns that the kernel gives."""
    fields = [] if node.shape is None else [(WINDOW_START, TIMESTAMP), (WINDOW_END, TIMESTAMP)]
    fields += zip(partials.keys, key_types, strict=True)
    kinds = [m.aggregate.result_type for m in partials.measures]
    if explode:
        fields += [(f.name, f.type) for f in kinds[0].value_type]
    else:
        fields += zip(partials.names(), kinds, strict=True)
    fields += [(PANE, pa.string())] if isinstance(node.firing, Panes) else []
    fields += [(WEIGHT, pa.int8())] if node.mode == "upsert" else []
    return pa.schema(fields)


def _listed(types: tuple[pa.DataType, ...]) -> str:
    return ", ".join(map(str, types))
