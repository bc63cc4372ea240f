"""Between Arrow and Spark, nothing lost: a timestamp without a zone stays without one, unlike Spark's default."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType, StructType

# from Spark 4.1 on a timestamp's zone must be named, and before that it cannot be
_ZONE: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_type).parameters else {}


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema as Spark's."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def arrow_type(kind: DataType) -> pa.DataType:
    """A type of Spark's as Arrow's, timestamps in UTC."""
    return to_arrow_type(kind, **_ZONE)


def arrow_schema(struct: StructType) -> pa.Schema:
    """A schema of Spark's as Arrow's, timestamps in UTC."""
    return pa.schema([pa.field(f.name, arrow_type(f.dataType), f.nullable) for f in struct])


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A table of this process as a frame; nothing runs to make it."""
    # Spark 4.0 takes an empty record batch for the end of the rows, and loses all that come after it
    filled = [batch for batch in table.to_batches() if batch.num_rows]
    table = pa.Table.from_batches(filled) if filled else table.schema.empty_table()
    return spark.createDataFrame(table, spark_schema(table.schema))
