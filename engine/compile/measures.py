"""The calls of aggregates as measures of a kernel: what Spark projects for each row, and the kernel's aggregate."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from sqlglot import exp

from penstock.compile.edge import types_of
from penstock.plan.expressions import column_of, parse
from penstock.state.edge import KEEP
from penstock.windows.aggregates.registry import Aggregate, make
from penstock.windows.calls import Call
from penstock.windows.node import WindowAggregate
from penstock.windows.partials import Measure


def measures(node: WindowAggregate, frame: DataFrame, columns: dict[str, str]) -> dict[Call, Measure] | Call | None:
    """A kernel aggregate for each distinct call; the call that has none, None when it is in no call that we know."""
    found: dict[Call, Measure] = {}
    added: dict[str, str] = {}
    for call in (c for a in node.aggregates for c in a.calls):
        if call in found:
            continue
        read = _read(call)
        if read is None:
            return call
        texts, options = read
        names = tuple(f"argument_{len(added) + i}" for i in range(len(texts)))
        aggregate: Aggregate | None = make(call.name, types_of(frame, texts), call.distinct, options)
        if aggregate is None:
            return call
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
