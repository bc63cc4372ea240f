"""The values of a row in a message, from text to the declared type; what cannot be read becomes null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.plan.expressions import literal, quoted
from penstock.sources.base import MALFORMED

if TYPE_CHECKING:
    from pyspark.sql import Column


class Values:
    """Values as JSON has them: numbers, text, ISO dates and times, binary in base64, nested values as JSON.

    A row comes as a struct of texts, one for each declared column, or of JSON values where text would lose digits.
    A field that is missing or null is null.
    """

    def row(self, schema: pa.Schema) -> str:
        """The type of a row of texts, as Spark's DDL."""
        return f"struct<{', '.join(f'{quoted(f.name)}: {kept_as(f)}' for f in schema)}>"

    def text(self, field: pa.Field, row: str) -> str:
        """A value as text."""
        value = f"{row}.{quoted(field.name)}"
        return value if kept_as(field) == "string" else f"cast({value} AS string)"

    def named(self, schema: pa.Schema) -> Mapping[str, str]:
        """What a message says of its columns, read once for all its rows."""
        return {}

    def staged(self, schema: pa.Schema, row: str) -> list[Mapping[str, str]]:
        """Columns that the reading of a value needs more than once, those that need others after them."""
        return []

    def read(self, number: int, field: pa.Field, row: str) -> Column:
        """The value of a column of the schema, null when its text is of another type."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructType

        from penstock.compile.types import spark_schema

        text = self.text(field, row)
        if not pa.types.is_nested(field.type):
            return F.expr(self.scalar(number, field, text))
        (declared,) = spark_schema(pa.schema([field])).fields
        kept = StructType().add("v", declared.dataType).add(MALFORMED, StringType())
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED, "allowNonNumericNumbers": "true"}
        opened = F.from_json(F.expr(f"""concat('{{"v":', {text}, '}}')"""), kept, options)
        return F.when(opened[MALFORMED].isNull(), opened["v"])

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
