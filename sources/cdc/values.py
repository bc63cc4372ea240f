"""The values of a row in a message, from text to the declared type; what cannot be read becomes null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.plan.expressions import literal, quoted
from penstock.sources.base import MALFORMED

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

#: How Spark is told to read text: what cannot be read, or has a wrong type, is kept as it is.
PERMISSIVE = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED}
FRAME = "__ps_frame"  # a value, and the end behind it
END = "__ps_end"


class Values:
    """Values as JSON has them: numbers, text, ISO dates and times, binary in base64, nested values as JSON.

    A row comes as a struct of texts, one for each declared column, or of JSON values where text would lose digits.
    A field that is missing or null is null.
    """

    def texts(self, schema: pa.Schema) -> str:
        """The fields of a row of texts, as Spark's DDL."""
        return ", ".join(f"{quoted(f.name)}: {kept_as(f)}" for f in schema)

    def text(self, field: pa.Field, row: str) -> str:
        """A value as text."""
        value = f"{row}.{quoted(field.name)}"
        return value if kept_as(field) == "string" else f"cast({value} AS string)"

    def known(self, field: pa.Field, text: str) -> str:
        """The text of a value, null where it says no more than that the value is not known."""
        return text

    def named(self, schema: pa.Schema) -> Mapping[str, str]:
        """What a message says of its columns, read once for all its rows."""
        return {}

    def staged(self, schema: pa.Schema, row: str) -> list[Mapping[str, str]]:
        """Columns that the reading of a value needs more than once, those that need others after them."""
        return []

    def read(self, number: int, field: pa.Field, row: str) -> Column:
        """The value of a column of the schema, null when its text is of another type."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import ArrayType, StructType

        from penstock.compile.types import spark_schema

        text = self.known(field, self.text(field, row))
        if not pa.types.is_nested(field.type):
            return F.expr(self.scalar(number, field, text))
        (declared,) = spark_schema(pa.schema([field])).fields
        # in a list: as a field it could bring others along
        listed = f"""concat('{{"v":[', {text}, '\n]}}')"""
        kind = StructType().add("v", ArrayType(declared.dataType))
        opened = F.from_json(
            F.expr(framed(listed)), framed_schema(kind), {**PERMISSIVE, "allowNonNumericNumbers": "true"}
        )
        values, end = (F.get(opened[FRAME], F.lit(i))[name] for i, name in enumerate(("v", END)))
        one = opened[MALFORMED].isNull() & (F.size(opened[FRAME]) == 2) & end & (F.size(values) == 1)
        return F.when(one, F.get(values, F.lit(0)))

    def scalar(self, number: int, field: pa.Field, text: str) -> str:
        """The value of a type that is not nested, as Spark SQL."""
        kind = field.type
        if pa.types.is_string(kind):
            return text
        if pa.types.is_decimal(kind):
            return exact_decimal(text, kind)
        if pa.types.is_binary(kind):
            return f"try_to_binary({text}, 'base64')"
        return f"try_cast({text} AS {sql_type(kind)})"


def framed(text: str) -> str:
    """A JSON value and an end behind it in one list, as Spark SQL: alone, Spark reads a value and drops what follows.

    In this list that is broken JSON, or one value more. A new line goes before the end: it may be behind a comment.
    """
    return f"""concat('{{"{FRAME}":[', {text}, '\n,{{"{END}":true}}]}}')"""


def read(text: str, fields: str) -> str:
    """A JSON object in its frame, as Spark SQL; ``fields`` are the object's, as Spark's DDL."""
    kind = f"struct<{FRAME}: array<struct<{fields}, {END}: boolean>>>"
    return f"from_json({framed(text)}, {literal(kind)})"


def framed_schema(value: StructType) -> StructType:
    """The type of an object in its frame, with what is malformed beside it."""
    from pyspark.sql.types import ArrayType, BooleanType, StringType, StructField, StructType

    inside = StructType([*value.fields, StructField(END, BooleanType())])
    return StructType().add(FRAME, ArrayType(inside)).add(MALFORMED, StringType())


def unframed(read: str) -> str:
    """The value in a frame that was read, null where that is not one value and its end."""
    return f"CASE WHEN size({read}.{FRAME}) = 2 AND get({read}.{FRAME}, 1).{END} THEN get({read}.{FRAME}, 0) END"


def kept_as(field: pa.Field) -> str:
    """How a value is kept until it is read."""
    # as text Spark would take a number with a point through a double, and lose digits
    exact = pa.types.is_decimal(field.type) or pa.types.is_nested(field.type)
    return "variant" if exact else "string"


def sql_type(kind: pa.DataType) -> str:
    """A type that is not nested, as Spark SQL has it."""
    from penstock.compile.types import spark_schema

    return spark_schema(pa.schema([("c", kind)])).fields[0].dataType.simpleString()


def exact_decimal(text: str, kind: pa.Decimal128Type) -> str:
    """A decimal from text, null when the type cannot hold it to its last digit: Spark's own cast would round it."""
    value = f"try_cast({text} AS decimal({kind.precision}, {kind.scale}))"
    plain = literal(rf"^\s*[+-]?[0-9]*[.]?[0-9]{{0,{kind.scale}}}0*\s*$")
    # with an exponent it was a floating number, and is as exact as one
    return (
        f"CASE WHEN {text} RLIKE {plain} THEN {value} "
        f"WHEN {text} RLIKE '[eE]' AND try_cast({text} AS double) = cast({value} AS double) THEN {value} END"
    )
