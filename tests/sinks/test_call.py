from __future__ import annotations

import functools
from datetime import datetime, timezone

import pyarrow as pa
import pytest

from penstock import sinks
from penstock.plan.errors import PlanError, SinkError, TransientSinkError
from penstock.sinks import Changes, Rows, Target


def collect(seen, frame, batch_id):
    seen.append((batch_id, sorted(frame.toArrow().to_pylist(), key=str)))


def open_writer(function, owner, key=()):
    sink = sinks.call(function)
    return sink.writer([Target("hits", sink, key)], owner())


def test_a_sink_is_named_like_its_function():
    assert sinks.call(collect).name == "collect"
    assert sinks.call(lambda frame, batch_id: None).name == "lambda"
    assert sinks.call(collect) == sinks.call(collect)
    assert not sinks.call(collect).transactional
    with pytest.raises(PlanError, match="not a function"):
        sinks.call("collect")


def test_a_stream_comes_as_it_is(spark, owner):
    seen = []
    writer = open_writer(functools.partial(collect, seen), owner)
    rows = Rows(spark, table=pa.table({"n": [1]}))
    assert writer.write(3, {"hits": Changes(rows)})
    assert writer.write(4, {"hits": Changes(Rows(spark, table=rows.table.slice(0, 0)))})
    assert seen == [(3, [{"n": 1}]), (4, [])]


def test_a_table_comes_with_what_each_row_does(spark, owner):
    seen = []
    writer = open_writer(functools.partial(collect, seen), owner, key=("page",))
    rows = Rows(spark, table=pa.table({"page": ["/a"], "n": [1]}))
    deletes = Rows(spark, frame=spark.createDataFrame([("/b",)], "page string"))
    writer.write(0, {"hits": Changes(rows, deletes)})
    removed = {"page": "/b", "n": None, "op": "delete"}
    assert seen == [(0, [{"page": "/a", "n": 1, "op": "upsert"}, removed])]


def test_an_instant_and_a_local_time_stay_what_they_are(spark, owner):
    types = []
    noon = datetime(2026, 1, 1, 12)
    table = pa.Table.from_pylist(
        [{"at": noon, "local": noon}],
        pa.schema({"at": pa.timestamp("us", "UTC"), "local": pa.timestamp("us")}),
    )
    seen = []

    def look(frame, batch_id):
        types.extend(frame.dtypes)
        collect(seen, frame, batch_id)

    open_writer(look, owner).write(0, {"hits": Changes(Rows(spark, table=table))})
    assert types == [("at", "timestamp"), ("local", "timestamp_ntz")]
    assert seen == [(0, [{"at": noon.replace(tzinfo=timezone.utc), "local": noon}])]


def test_a_column_op_of_its_own_is_refused(spark, owner):
    writer = open_writer(lambda frame, batch_id: None, owner, key=("n",))
    with pytest.raises(SinkError, match="Rename it"):
        writer.write(0, {"hits": Changes(Rows(spark, table=pa.table({"n": [1], "op": ["x"]})))})


@pytest.mark.parametrize("error", [ConnectionRefusedError("nobody there"), ZeroDivisionError("nobody there")])
def test_what_the_function_raises_names_the_output_the_function_and_the_fault(spark, owner, error):
    def away(frame, batch_id):
        raise error

    writer = open_writer(away, owner)
    message = rf"output 'hits': function away failed in batch 3: {type(error).__name__}: nobody there\. .*again"
    with pytest.raises(SinkError, match=message) as caught:
        writer.write(3, {"hits": Changes(Rows(spark, table=pa.table({"n": [1]})))})
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(("error", "again"), [(TransientSinkError("busy"), True), (ConnectionError("busy"), False)])
def test_a_function_says_itself_that_it_wants_the_batch_again(spark, owner, error, again):
    def busy(frame, batch_id):
        raise error

    with pytest.raises(SinkError, match="output 'hits': function busy failed in batch 0") as caught:
        open_writer(busy, owner).write(0, {"hits": Changes(Rows(spark, table=pa.table({"n": [1]})))})
    assert isinstance(caught.value, TransientSinkError) is again
