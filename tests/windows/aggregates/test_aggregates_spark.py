"""Every aggregate against Spark SQL itself over a static frame: the same results and the same types."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from penstock.run import java
from penstock.windows.aggregates.registry import Aggregate, Order, make

NAN, INF = float("nan"), float("inf")
UTC = timezone.utc
GROUPS = ["a"] * 6 + ["b"] * 4 + ["c"] * 1 + ["d"] * 2

# one column a type: six values of group a, four of b, one of c; group d has nulls only
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "byte": (pa.int8(), [1, -128, None, 127, 127, 3, 5, None, 5, 7, 9]),
    "short": (pa.int16(), [1, -5, None, 300, 300, 3, 5, None, 5, 7, 9]),
    "int": (pa.int32(), [1, -5, None, 2**31 - 1, 2**31 - 1, 3, 5, None, 5, 7, 9]),
    "long": (pa.int64(), [1, -5, None, 2**61, 2**61, 3, 5, None, 5, 7, 2**63 - 1]),
    "float": (pa.float32(), [0.1, -0.5, None, 3.25, 3.25, 1e30, NAN, None, 1.0, 2.0, -0.0]),
    "double": (pa.float64(), [0.1, -0.5, None, 0.7, 0.7, 123.456, NAN, 2.0, -INF, 1.0, 0.3]),
    "money": (
        pa.decimal128(10, 2),
        [
            *map(Decimal, ("1.10", "-5.55")),
            None,
            *map(Decimal, ("9.99", "9.99", "0.01", "1", "2", "2", "0", "7")),
        ],
    ),
    "whole": (
        pa.decimal128(20, 0),
        [*map(Decimal, (10**19, -3)), None, *map(Decimal, (1, 1, 2, 5, 6, 7, 8, 9))],
    ),
    "fine": (
        pa.decimal128(38, 18),
        [
            *map(Decimal, ("1.1", "-5.000000000000000005")),
            None,
            *map(Decimal, ("9", "9", "4", "1", "1", "0", "0", "7")),
        ],
    ),
    "tiny": (
        pa.decimal128(38, 36),
        [*map(Decimal, ("0.1", "0.3", "0.3", "0.7", "0.7", "0.9", "0.5", "0.2", "0.2", "0", "0.71"))],
    ),
    "flag": (pa.bool_(), [True, False, None, True, True, False, True, None, True, True, False]),
    "text": (pa.string(), ["b", "", None, "é", "é", "z", "\U0001f600", "\uffee", None, "a", "q"]),
    "bytes": (pa.binary(), [b"b", b"", None, b"\xff", b"\xff", b"z", b"1", b"2", None, b"\x00", b"q"]),
    "day": (
        pa.date32(),
        [date(1969, 12, 31), date(2024, 2, 29), None, *[date(1900, 1, 1)] * 2, *[date(2000, 1, 1)] * 6],
    ),
    "at": (
        pa.timestamp("us", tz="UTC"),
        [
            datetime(1950, 1, 1, 0, 0, 0, 1, UTC),
            None,
            *(datetime(2024, 1, day, tzinfo=UTC) for day in (1, 3, 3, 2, 5, 6, 7, 8, 9)),
        ],
    ),
    "local": (
        pa.timestamp("us"),
        [datetime(1950, 1, 1), None, *(datetime(2024, 1, day) for day in (1, 3, 3, 2, 5, 6, 7, 8, 9))],
    ),
    "length": (
        pa.duration("us"),
        [timedelta(days=-3), None, *(timedelta(microseconds=us) for us in (1, 3, 3, 2, 5, 6, 7, 8, 9))],
    ),
    "items": (pa.list_(pa.int32()), [[1, None], [], None, [1], [1], [2], [3], None, [3], [], [7]]),
    "pair": (
        pa.struct([("x", pa.int32()), ("y", pa.string())]),
        [{"x": 1, "y": "a"}, None, *[{"x": x, "y": None} for x in (1, 1, 2, 3, 4, 4, 5, 6, 7)]],
    ),
    "lookup": (pa.map_(pa.string(), pa.int32()), [[("a", 1)], [], None, *[[("b", n)] for n in range(8)]]),
}
NUMBERS = ("byte", "short", "int", "long", "float", "double", "money", "whole", "fine", "tiny")
NESTED = ("items", "pair", "lookup")
FLAT = tuple(name for name in COLUMNS if name not in NESTED)
HASHED = tuple(name for name in COLUMNS if name != "lookup")


@dataclass(frozen=True)
class Question:
    """An aggregate, how Spark writes it, and the columns to ask it about."""

    name: str
    text: str
    columns: tuple[str, ...]
    more: tuple[str, ...] = ()
    distinct: bool = False
    options: dict[str, Any] = field(default_factory=dict)


QUESTIONS = [
    Question("count", "count({})", tuple(COLUMNS)),
    Question("count", "count({}, pick)", ("int", "text"), more=("pick",)),
    Question("count", "count(distinct {})", HASHED, distinct=True),
    Question("sum", "sum({})", (*NUMBERS, "length")),
    Question("avg", "avg({})", NUMBERS),
    Question("min", "min({})", FLAT),
    Question("max", "max({})", FLAT),
    *(Question(name, f"{name}({{}})", ("flag",)) for name in ("bool_and", "every", "bool_or", "any", "some")),
    Question("min_by", "min_by({}, pick)", tuple(COLUMNS), more=("pick",)),
    Question("max_by", "max_by({}, pick)", tuple(COLUMNS), more=("pick",)),
    Question("first", "first({})", tuple(COLUMNS)),
    Question("any_value", "any_value({}, true)", tuple(COLUMNS), options={"ignore_nulls": True}),
    Question("last", "last({}, true)", tuple(COLUMNS), options={"ignore_nulls": True}),
    Question("collect_list", "collect_list({})", tuple(COLUMNS)),
    Question("collect_set", "collect_set({})", HASHED),
    *(Question(name, f"{name}({{}})", NUMBERS) for name in ("stddev", "stddev_pop", "var_samp", "var_pop")),
    Question("median", "median({})", NUMBERS),
    Question("percentile", "percentile({}, 0.35)", NUMBERS, options={"percentages": (0.35,)}),
    Question(
        "percentile",
        "percentile({}, array(0.1, 0.9))",
        NUMBERS,
        options={"percentages": (0.1, 0.9), "array": True},
    ),
    Question(
        "percentile_cont",
        "percentile_cont(0.8) within group (order by {})",
        NUMBERS,
        options={"percentages": (0.8,)},
    ),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    found = java.find()
    shared = SparkSession.getActiveSession()
    with pytest.MonkeyPatch.context() as patch:
        if found is not None:
            patch.setenv("JAVA_HOME", str(found))
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        # a session of our own: its settings and views are not seen by the tests of other modules
        session = (shared or builder.getOrCreate()).newSession()
        session.conf.set("spark.sql.session.timeZone", "UTC")
        session.conf.set("spark.sql.shuffle.partitions", "1")
        # compiling costs more than these few rows
        session.conf.set("spark.sql.codegen.wholeStage", "false")
        yield session
        if shared is None:
            session.stop()


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    """The rows in order of time; ``pick`` orders them without ties, ``keep`` is a mask."""
    count = len(GROUPS)
    columns = {
        name: pa.array(values + [None] * (count - len(values)), kind) for name, (kind, values) in COLUMNS.items()
    }
    keep = [True, True, True, False, None, True, False, False, None, False, True, True, True]
    pick = [3, 1, 2, None, 6, 5, 4, 2, None, 1, 7, None, None]
    return pa.table({"g": GROUPS, "keep": keep, "pick": pa.array(pick, pa.int32()), **columns})


def ours(aggregate: Aggregate, rows: pa.Table, columns: list[str], mask: bool) -> pa.Array:
    count = rows.num_rows
    order = Order(np.arange(count), np.zeros(count, np.int32), np.arange(count))
    first = [GROUPS.index(group) for group in "abcd"]
    keep = rows["keep"] if mask else None
    state = aggregate.start([rows[name] for name in columns], keep, order, count)
    return aggregate.finish(aggregate.merge(state, np.array(first), np.array([*first[1:], count])))


def ask(spark: SparkSession, rows: pa.Table, texts: list[str]) -> pa.Table:
    """Spark's answers by group; one partition, so that first and last have a meaning there too."""
    frame = spark.createDataFrame(rows).withColumn("local", col("local").cast("timestamp_ntz"))
    frame.coalesce(1).createOrReplaceTempView("t")
    picked = ", ".join(f"{text} as c{at}" for at, text in enumerate(texts))
    return spark.sql(f"select g, {picked} from t group by g").toArrow().sort_by("g")


def alike(mine: Any, sparks: Any) -> bool:
    if isinstance(mine, float) and isinstance(sparks, float):
        return math.isclose(mine, sparks, rel_tol=1e-14) or (math.isnan(mine) and math.isnan(sparks))
    if isinstance(mine, list) and isinstance(sparks, list):
        return len(mine) == len(sparks) and all(map(alike, mine, sparks))
    return bool(mine == sparks)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.text)
def test_results_and_types_are_those_of_spark(question: Question, spark: SparkSession, rows: pa.Table) -> None:
    texts = [question.text.format(f"`{column}`") for column in question.columns]
    masked = [f"{text} filter (where keep)" for text in texts]
    answers = ask(spark, rows, texts + masked)
    for at, (column, mask) in enumerate((column, mask) for mask in (False, True) for column in question.columns):
        columns = [column, *question.more]
        kinds = [rows.schema.field(name).type for name in columns]
        aggregate = make(question.name, kinds, question.distinct, question.options)
        assert aggregate is not None, column
        result, wanted = ours(aggregate, rows, columns, mask), answers.column(f"c{at}")
        assert result.type == aggregate.result_type == wanted.type, column
        got, sparks = result.to_pylist(), wanted.to_pylist()
        if question.name == "collect_set":  # Spark's sets are in no order
            got, sparks = ([sorted(values, key=repr) for values in side] for side in (got, sparks))
        assert alike(got, sparks), f"{column}{' where keep' * mask}: {got} is not {sparks}"


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        (["5e-34", *["0"] * 10], 34),  # 4545.45...e-38, which must not be rounded up on the way
        ([*["0.9000000000000000000000000000000000"] * 10, "0.9000000000000000000000000000000005"], 34),
        (["-0.5", "-0.6", "0", "0", "0", "0", "0"], 1),
        (["1", *["0"] * 31], 0),  # ties: 0.03125 to four places
        (["-1", *["0"] * 31], 0),
    ],
)
def test_a_mean_of_decimals_is_rounded_as_spark_rounds_it(values: list[str], scale: int, spark: SparkSession) -> None:
    column = pa.array([Decimal(value) for value in values], pa.decimal128(38, scale))
    (answer,) = spark.createDataFrame(pa.table({"x": column})).selectExpr("avg(x)").toArrow().columns
    aggregate = make("avg", [column.type], False, {})
    assert aggregate is not None
    rows = len(values)
    state = aggregate.merge(aggregate.start([column], None, None, rows), np.array([0]), np.array([rows]))
    assert aggregate.finish(state).to_pylist() == answer.to_pylist()
