"""Aggregates are taken apart without touching the user's own text."""

from __future__ import annotations

import pytest

from penstock.plan.columns import Columns
from penstock.windows.calls import Call, read_aggregate

COLUMNS = Columns(("a", "b", "count", "page url"))


def read(text):
    return read_aggregate("n", text, COLUMNS, ("a",), "agg")


@pytest.mark.parametrize(
    ("text", "calls", "rebuilt"),
    [
        ("count(*)", [Call("count", ("*",))], "c0"),
        ("Sum(b) / count( * )", [Call("sum", ("b",)), Call("count", ("*",))], "c0 / c1"),
        ("round(avg(b + 1), 2)", [Call("avg", ("b + 1",))], "round(c0, 2)"),
        ("count(distinct a, b)", [Call("count", ("a", "b"), distinct=True)], "c0"),
        ("sum(b) filter (where a = 'x)')", [Call("sum", ("b",), where="a = 'x)'")], "c0"),
        ("first(b, true)", [Call("first", ("b",), ignore_nulls=True)], "c0"),
        ("first(b) ignore nulls", [Call("first", ("b",), ignore_nulls=True)], "c0"),
        ("max_by(a, struct(b, 1))", [Call("max_by", ("a", "struct(b, 1)"))], "c0"),
        ("max(greatest(a, b))", [Call("max", ("greatest(a, b)",))], "c0"),
        ("max(`page url`)", [Call("max", ("`page url`",))], "c0"),
        (
            "percentile_cont(0.5) within group (order by b)",
            [Call("percentile_cont", ("0.5",), within_group="order by b")],
            "c0",
        ),
        ("upper(a) || max(b)", [Call("max", ("b",))], "upper(a) || c0"),
        ("approx_count_distinct(b, 0.1)", [Call("approx_count_distinct", ("b", "0.1"))], "c0"),
        ("sum(count)", [Call("sum", ("count",))], "c0"),
    ],
)
def test_calls_and_what_is_around_them(text, calls, rebuilt):
    found = read(text)
    assert list(found.calls) == calls
    assert found.rebuilt(tuple(f"c{i}" for i in range(len(calls)))) == rebuilt
    assert found.text == text


def test_a_function_that_nobody_knows_may_be_a_registered_aggregate():
    found = read("my_sketch(b)")
    assert found.calls == ()
    assert not found.ours
