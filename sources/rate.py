"""Rows made by the clock, for trying things out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.plan.errors import PlanError
from penstock.plan.schemas import TIMESTAMP
from penstock.plan.written import written_at
from penstock.sources.base import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Rate(Source):
    """So many rows a second: ``timestamp`` and a ``value`` that counts."""

    rows_per_second: int

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field("timestamp", TIMESTAMP), pa.field("value", pa.int64())])

    def describe(self) -> str:
        return f"{self.rows_per_second} rows a second"

    def read(self, spark: SparkSession) -> DataFrame:
        return spark.readStream.format("rate").option("rowsPerSecond", self.rows_per_second).load()


def rate(rows_per_second: int = 1) -> Rate:
    """So many rows a second, each with a ``timestamp`` and a ``value`` that counts from 0.

    >>> rate(100).schema.names
    ['timestamp', 'value']
    """
    if not isinstance(rows_per_second, int) or rows_per_second < 1:
        raise PlanError(f"rate: rows_per_second={rows_per_second!r} is no whole number above 0. ({written_at()})")
    return Rate(rows_per_second)
