"""Values as Debezium writes them: numbers stand for dates and times, bytes for decimals.

What a number stands for is in the schema that a message may carry beside its payload: there each column of the
row has a name, such as ``io.debezium.time.MicroTimestamp``. Without it the number's size decides.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import md5
from uuid import UUID

import pyarrow as pa

from penstock.plan.expressions import literal, quoted
from penstock.sources.cdc.values import Values, exact_decimal

#: The columns of the row as the message's own schema has them: an array of structs, null without a schema.
FIELDS = "__ps_fields"
FIELD_TYPE = "struct<field: string, name: string, parameters: struct<scale: string>>"
FIELDS_TYPE = f"array<struct<field: string, fields: array<{FIELD_TYPE}>>>"

DECIMAL = "org.apache.kafka.connect.data.Decimal"
MILLIS = ("io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp")
MICROS, NANOS = "io.debezium.time.MicroTimestamp", "io.debezium.time.NanoTimestamp"

# What PostgreSQL's connector writes for a large value that an update left as it was, and that it does not know: this
# text where a text can stand, else what it makes of the text's bytes.
TEXT = "__debezium_unavailable_value"
BYTES = b64encode(TEXT.encode()).decode()
UUID_OF = UUID(bytes=md5(TEXT.encode(), usedforsecurity=False).digest(), version=3)
#: As the text of a value, of lists and maps as JSON without spaces.
UNAVAILABLE = (
    TEXT, BYTES, TEXT.encode().hex(), f'["{TEXT}"]', f'["{BYTES}"]', f'["{UUID_OF}"]', f'{{"{TEXT}":"{TEXT}"}}',
    f"[{','.join(map(str, TEXT.encode()))}]",
)  # fmt: skip
# of PostGIS: points that nothing is at, as geometry, geography and PostgreSQL's own point
NOWHERE = (
    "0101000020E6100000000000FC83D797C1000000FC83D797C1", "0101000020E61000000C21E7FDFF7F66401842CEFBFF7F5640",
    "0101000000000000FC83D797C1000000FC83D797C1",
)  # fmt: skip
SHAPE = f'"wkb":"({"|".join(re.escape(b64encode(bytes.fromhex(text)).decode()) for text in NOWHERE)})"'

# The years 1 to 9999: beyond them a number is no time that anybody meant.
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
FIRST_US, LAST_US = FIRST_DAY * 86_400_000_000, (LAST_DAY + 1) * 86_400_000_000 - 1
TWO_TO_64 = "18446744073709551616BD"


class DebeziumValues(Values):
    """Values of Debezium's messages."""

    def named(self, schema: pa.Schema) -> Mapping[str, str]:
        return {
            f"__ps_named_{i}": f"get(filter({FIELDS}, f -> f.field = {literal(field.name)}), 0)"
            for i, field in enumerate(schema)
            if pa.types.is_decimal(field.type) or pa.types.is_timestamp(field.type)
        }

    def staged(self, schema: pa.Schema, row: str) -> list[Mapping[str, str]]:
        levels: list[dict[str, str]] = [{}, {}, {}, {}, {}]
        for i, field in enumerate(schema):
            text = self.text(field, row)
            if pa.types.is_decimal(field.type):
                value, bytes_of = f"{row}.{quoted(field.name)}", f"__ps_bytes_{i}"
                levels[0][f"__ps_text_{i}"] = text
                levels[1][bytes_of] = _base64(i, field, value)
                levels[1][f"__ps_scale_{i}"] = (
                    f"coalesce(CASE WHEN {_has_scale(i)} THEN try_variant_get({value}, '$.scale', 'int') END, "
                    f"try_cast(__ps_named_{i}.parameters.scale AS int), {field.type.scale})"
                )
                levels[2][f"__ps_hex_{i}"] = f"hex(try_to_binary({bytes_of}, 'base64'))"
                levels[3][f"__ps_size_{i}"] = size(f"__ps_hex_{i}")
                sign = f"CASE WHEN {_is_negative(f'__ps_hex_{i}')} THEN '-' ELSE '' END"
                number = f"concat({sign}, {placed(f'__ps_size_{i}', f'__ps_scale_{i}')})"
                levels[4][f"__ps_digits_{i}"] = f"CASE WHEN {bytes_of} IS NULL THEN __ps_text_{i} ELSE {number} END"
            elif pa.types.is_timestamp(field.type):
                levels[0][f"__ps_number_{i}"] = f"CASE WHEN {_is_whole(text)} THEN try_cast({text} AS bigint) END"
                levels[1][f"__ps_us_{i}"] = micros(f"__ps_number_{i}", f"__ps_named_{i}.name")
        return [level for level in levels if level]

    def known(self, field: pa.Field, text: str) -> str:
        unknown = f"{text} IN ({', '.join(map(literal, UNAVAILABLE))})"
        if pa.types.is_nested(field.type):
            unknown = f"{unknown} OR {text} RLIKE {literal(SHAPE)}"
        elif not (pa.types.is_string(field.type) or pa.types.is_binary(field.type)):
            return text  # nothing of that is a number or a time
        return f"CASE WHEN NOT ({unknown}) THEN {text} END"

    def scalar(self, number: int, field: pa.Field, text: str) -> str:
        kind = field.type
        if pa.types.is_decimal(kind):
            return exact_decimal(f"__ps_digits_{number}", kind)
        if pa.types.is_date(kind):
            days = f"try_cast({text} AS int)"
            there = f"{days} BETWEEN {FIRST_DAY} AND {LAST_DAY}"
            from_days = f"CASE WHEN {there} THEN date_from_unix_date({days}) END"
            return f"CASE WHEN {_is_whole(text)} THEN {from_days} ELSE try_cast({text} AS date) END"
        if pa.types.is_timestamp(kind):
            us = f"__ps_us_{number}"
            there = f"{us} BETWEEN {FIRST_US}L AND {LAST_US}L"
            from_number = f"CASE WHEN {there} THEN timestamp_micros({us}) END"
            time = f"CASE WHEN {_is_whole(text)} THEN {from_number} ELSE try_cast({text} AS timestamp) END"
            return time if kind.tz is not None else f"cast({time} AS timestamp_ntz)"
        return super().scalar(number, field, text)


def _is_whole(text: str) -> str:
    return f"{text} RLIKE '^[+-]?[0-9]+$'"


def micros(number: str, name: str) -> str:
    """A number as microseconds: by the column's name in the message's schema, else by its size."""
    # rounded down, also before 1970
    from_nanos = f"({number} div 1000L - CASE WHEN {number} % 1000L < 0L THEN 1L ELSE 0L END)"
    from_millis = f"try_multiply({number}, 1000L)"
    return (
        f"CASE WHEN {name} IN ({', '.join(map(literal, MILLIS))}) THEN {from_millis} "
        f"WHEN {name} = '{MICROS}' THEN {number} WHEN {name} = '{NANOS}' THEN {from_nanos} "
        f"WHEN {number} BETWEEN -99999999999999L AND 99999999999999L THEN {from_millis} "
        f"WHEN {number} BETWEEN -99999999999999999L AND 99999999999999999L THEN {number} "
        f"ELSE {from_nanos} END"
    )


def _has_scale(number: int) -> str:
    return f"__ps_text_{number} LIKE '{{%'"


def _base64(number: int, field: pa.Field, value: str) -> str:
    """The bytes of a decimal that comes as such, with its scale beside them or without; null for a number."""
    text, known = f"__ps_text_{number}", f"__ps_named_{number}"
    written = f"{text} RLIKE {literal('^-|[.]')}"
    if not field.type.scale:
        written = f"({written} OR {text} RLIKE '^[0-9]+$')"
    as_bytes = f"CASE WHEN {known}.field IS NOT NULL THEN {known}.name <=> '{DECIMAL}' ELSE NOT {written} END"
    scaled = f"try_variant_get({value}, '$.value', 'string')"
    return (
        f"CASE WHEN {_has_scale(number)} THEN coalesce({scaled}, '') "
        f"WHEN {as_bytes} AND schema_of_variant({value}) = 'STRING' THEN {text} END"
    )


def _is_negative(digits: str) -> str:
    return f"left({digits}, 1) >= '8'"


def size(digits: str) -> str:
    """A number without its sign, as text, from the hexadecimal digits of its two's complement."""
    negative = _is_negative(digits)
    wide = f"lpad({digits}, 32, CASE WHEN {negative} THEN 'F' ELSE '0' END)"
    # of a negative number the complement, one below its size: what is subtracted from 2^128 has no 38 digits
    bits = f"CASE WHEN {negative} THEN translate({wide}, '0123456789ABCDEF', 'FEDCBA9876543210') ELSE {wide} END"
    high, low = (f"cast(conv({side}({bits}, 16), 16, 10) AS decimal(20, 0))" for side in ("left", "right"))
    whole = f"try_add(try_multiply({high}, {TWO_TO_64}), {low} + CASE WHEN {negative} THEN 1BD ELSE 0BD END)"
    return f"CASE WHEN length({digits}) BETWEEN 2 AND 32 THEN cast({whole} AS string) END"


def placed(digits: str, scale: str) -> str:
    """Digits with the point in its place; a negative scale stands for zeros."""
    filled = f"lpad({digits}, greatest(length({digits}), {scale} + 1), '0')"
    point = f"concat(left({filled}, length({filled}) - {scale}), '.', right({filled}, {scale}))"
    return f"CASE WHEN {scale} > 0 THEN {point} ELSE concat({digits}, repeat('0', -{scale})) END"
