"""Between Arrow and Spark, nothing lost: a timestamp without a zone stays without one, unlike Spark's default."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType


def spark_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema as Spark's."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """A table of this process as a frame; nothing runs to make it."""
    # Spark 4.0 takes an empty record batch for the end of the rows, and loses all that come after it
    filled = [batch for batch in table.to_batches() if batch.num_rows]
    table = pa.Table.from_batches(filled) if filled else table.schema.empty_table()
    return spark.createDataFrame(table, spark_schema(table.schema))
