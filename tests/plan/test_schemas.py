"""Schemas without a JVM."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from penstock import PlanError
from penstock.compile.types import spark_schema
from penstock.plan.schemas import TIMESTAMP, schema

DDL = """a boolean, b tinyint, c smallint, d int, e long, f bigint, g float, h double, i decimal(12,3), j decimal,
k string, l binary, m date, n timestamp, o timestamp_ntz, p array<int>, q map<string, array<double>>,
r struct<x: int, y: struct<z: string>>, `strange name` string not null, s varchar(10)"""


def test_every_type_of_ddl_becomes_an_arrow_type():
    found = schema(DDL, "schema")
    assert found.field("n").type == TIMESTAMP
    assert found.field("o").type == pa.timestamp("us")
    assert found.field("i").type == pa.decimal128(12, 3)
    assert found.field("j").type == pa.decimal128(10, 0)
    assert found.field("q").type == pa.map_(pa.string(), pa.list_(pa.float64()))
    assert found.field("r").type == pa.struct([("x", pa.int32()), ("y", pa.struct([("z", pa.string())]))])
    assert found.field("s").type == pa.string()
    assert [f.name for f in found if not f.nullable] == ["strange name"]


def test_spark_reads_the_same_ddl_as_the_same_types(spark):
    theirs = T.StructType.fromDDL(DDL)
    ours = spark_schema(schema(DDL, "schema"))
    told = [(f.name, f.dataType.simpleString()) for f in theirs]
    assert [(f.name, f.dataType.simpleString()) for f in ours] == [
        (name, "string" if kind.startswith("varchar") else kind) for name, kind in told
    ]


def test_a_struct_type_is_read_like_the_ddl():
    struct = T.StructType(
        [
            T.StructField("id", T.LongType(), nullable=False),
            T.StructField("price", T.DecimalType(10, 2)),
            T.StructField("at", T.TimestampType()),
            T.StructField("tags", T.ArrayType(T.StringType())),
            T.StructField("inner", T.StructType([T.StructField("x", T.IntegerType())])),
            T.StructField("counts", T.MapType(T.StringType(), T.LongType())),
        ]
    )
    ddl = """id long not null, price decimal(10,2), at timestamp, tags array<string>, inner struct<x: int>,
    counts map<string, long>"""
    assert schema(struct, "schema") == schema(ddl, "schema")


@pytest.mark.parametrize("bad", ["", "id", "id int; drop table x", 5, None, "id interval year"])
def test_what_is_no_schema_is_refused(bad):
    with pytest.raises(PlanError, match="schema"):
        schema(bad, "schema")
