"""Messages of a changelog, read in one go."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.compile.types import frame_of
from penstock.plan.schemas import schema as read_schema
from penstock.sources.base import POSITION
from penstock.sources.cdc.changelog import Subject
from penstock.sources.cdc.formats import CHANGELOGS

Rows = list[dict[str, Any]]


@pytest.fixture
def parsed(spark: SparkSession) -> Callable[..., Rows]:
    """Read messages as a format's rows: dicts with hidden columns by their short names, ``n`` the message's number."""

    def read(name: str, schema: str, key: tuple[str, ...], messages: Sequence[Any], /, **more: Sequence[Any]) -> Rows:
        texts = [m if isinstance(m, str) else json.dumps(m) for m in messages]
        table = pa.table({"value": pa.array(texts, pa.string()), POSITION: pa.array(range(len(texts)), pa.int64())})
        for column, values in more.items():
            table = table.append_column(column, pa.array(values))
        subject = Subject(read_schema(schema, "schema"), key, "table 'things'")
        rows = CHANGELOGS[name].rows(frame_of(spark, table), subject).toArrow().to_pylist()
        short = {POSITION: "n"}
        return [{short.get(c, c.removeprefix("__ps_")): v for c, v in row.items()} for row in rows]

    return read
