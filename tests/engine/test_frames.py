"""Between Arrow and Spark nothing is lost."""

from __future__ import annotations

import pyarrow as pa

from penstock.compile.types import frame_of
from penstock.sinks.base import Rows


def test_rows_after_an_empty_chunk_are_not_lost(spark):
    table = pa.table({"k": pa.chunked_array([["a"], ["b"]]), "n": pa.chunked_array([[1], [], [2]], pa.int64())})
    table = pa.concat_tables([table, table.slice(0, 0), table])
    assert frame_of(spark, table).toArrow().num_rows == 4
    assert Rows(spark, table=table).to_spark().toArrow().num_rows == 4
    assert frame_of(spark, table.slice(0, 0)).toArrow().num_rows == 0
