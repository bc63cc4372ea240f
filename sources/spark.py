"""Any stream that Spark can read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.plan.errors import PlanError
from penstock.plan.expressions import quoted
from penstock.plan.schemas import schema as read_schema
from penstock.plan.written import written_at
from penstock.sources.base import Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Spark(Source):
    """What a user's function reads with ``spark.readStream``."""

    function: Callable[[SparkSession], DataFrame]
    declared: pa.Schema | None = field(default=None, hash=False)

    @property
    def schema(self) -> pa.Schema | None:
        return self.declared

    def describe(self) -> str:
        return f"Spark stream {getattr(self.function, '__name__', 'function')}"

    def read(self, spark: SparkSession) -> DataFrame:
        frame = self.function(spark)
        if self.declared is None:
            return frame
        return frame.select(*map(quoted, self.declared.names))


def spark(function: Callable[[SparkSession], DataFrame], schema: Any = None) -> Spark:
    """Any frame of ``spark.readStream``: ``function`` takes the session and gives the frame.

    With a ``schema`` the names in later steps are checked when the job is built; without one, when it runs.

    >>> spark(lambda session: session.readStream.format("rate").load()).schema is None
    True
    """
    if not callable(function):
        raise PlanError(f"spark: {function!r} is no function of a session. ({written_at()})")
    return Spark(function, None if schema is None else read_schema(schema, "spark: schema"))
