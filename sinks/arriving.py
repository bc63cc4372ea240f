"""Rows from a Spark frame to this process, a few thousand at a time, and back."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def arriving(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    """The frame's rows as Arrow batches; the driver holds two partitions at most.

    ``toArrow`` holds all rows at once, and ``toLocalIterator`` makes a Python object of each row.
    So each Arrow batch travels as the one value of one row.
    """
    packed = frame.mapInArrow(pack, "batch binary")
    for row in packed.toLocalIterator(prefetchPartitions=True):
        yield from pa.ipc.open_stream(row.batch)


def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch as a batch of one row, which holds it as an Arrow stream.

    >>> rows = pa.RecordBatch.from_pydict({"n": [1, 2]})
    >>> (packed,) = pack([rows])
    >>> pa.ipc.open_stream(packed["batch"][0].as_py()).read_all().to_pylist()
    [{'n': 1}, {'n': 2}]
    """
    for batch in batches:
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, batch.schema) as out:
            out.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"batch": [stream.getvalue().to_pybytes()]})


@contextmanager
def spooled(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """The batches as one table that may be larger than memory: its bytes are in a file without a name.

    ``schema`` is for a table without rows.

    >>> with spooled(iter([pa.RecordBatch.from_pydict({"n": [1, 2]})]), pa.schema({"n": pa.int64()})) as table:
    ...     table.to_pylist()
    [{'n': 1}, {'n': 2}]
    """
    come = iter(batches)
    first = next(come, None)
    if first is None:
        yield schema.empty_table()
        return
    with tempfile.TemporaryFile() as file:
        with pa.ipc.new_file(file, first.schema) as out:
            out.write_batch(first)
            for batch in come:
                out.write_batch(batch)
        file.flush()
        yield pa.ipc.open_file(pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))).read_all()


def arrived(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The table as a frame."""
    # imported late: a job is built and checked without Spark
    from penstock.compile.types import frame_of

    return frame_of(spark, table)


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """The frame's columns as Arrow types, timestamps in UTC."""
    # imported late: a job is built and checked without Spark
    from penstock.compile import types

    return types.arrow_schema(frame.schema)
