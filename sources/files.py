"""Files that appear in a folder, read once each."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import pyarrow as pa

from penstock.plan.errors import PlanError, RunError
from penstock.plan.expressions import quoted
from penstock.plan.schemas import schema as read_schema
from penstock.plan.written import written_at
from penstock.sources.base import ARRIVAL, MALFORMED, PLACE, Source, as_texts
from penstock.sources.cdc.changelog import Changelog
from penstock.sources.cdc.formats import CHANGELOGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Characters of a string in a row of JSON; one that is longer is malformed, and no reader runs out of memory.
LONGEST_STRING = 16_777_216
#: Bytes of files in a batch where no other bound is given: some millions of rows, which a few GB of memory hold.
BATCH_BYTES = 268_435_456
WILD = "*?[{\\"
LOCAL = re.compile(r"file:(//[^/]*)?")
FORMATS = ("json", "csv", "parquet", *CHANGELOGS)


@dataclass(frozen=True)
class Files(Source):
    """A folder of files; ``options`` go to Spark's reader as they are."""

    path: str
    format: str
    declared: pa.Schema
    options: tuple[tuple[str, str], ...] = ()

    def __hash__(self) -> int:
        return hash((self.path, self.format, self.options))

    @property
    def schema(self) -> pa.Schema:
        return self.declared

    @property
    def changelog(self) -> Changelog | None:
        return CHANGELOGS.get(self.format)

    @property
    def folder(self) -> str | None:
        """The path on this machine, absolute; None when it is elsewhere."""
        parsed = urlparse(self.path)
        if parsed.scheme == "file":
            # not the parsed path: a ? in it is no query, it stands for a letter
            return os.path.abspath(unquote(LOCAL.sub("", self.path)))
        return None if parsed.scheme else os.path.abspath(self.path)

    @property
    def place(self) -> str:
        # Spark's log has the files by their full paths
        return self.path if urlparse(self.path).scheme else os.path.abspath(self.path)

    def describe(self) -> str:
        return f"{self.format} files in {self.path}"

    @property
    def bounded(self) -> dict[str, str]:
        """The options with a bound on what a batch takes: a backlog must not come as one batch."""
        told = dict(self.options)
        own = {name.lower() for name in told} & {"maxfilespertrigger", "maxbytespertrigger"}
        return told if own else {"maxBytesPerTrigger": str(BATCH_BYTES), **told}

    def read(self, spark: SparkSession) -> DataFrame:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType

        from penstock.compile.types import spark_schema

        self._check_there()
        # Java stands where Python stood when Spark began, and takes what an address has as it is
        path = self.folder or self.path
        if self.folder is not None and urlparse(self.path).scheme:
            path = f"file://{self.folder}"
        struct = spark_schema(self.declared)
        reader = spark.readStream
        if self.changelog is not None:
            lines = reader.options(**self.bounded).format("text").load(path)
            # Spark packs the files of a batch by size: their age, and where a part begins, tell what came first
            order = (
                "unix_micros(_metadata.file_modification_time)",
                "_metadata.file_name",
                "_metadata.file_block_start",
            )
            arrival = (f"{text} AS {ARRIVAL}{i}" for i, text in enumerate(order))
            return lines.selectExpr("value", f"_metadata.file_path AS {PLACE}", *arrival)
        if self.format == "parquet":
            frame = reader.options(**self.bounded).schema(struct).parquet(path)
            malformed = F.lit(None).cast("string").alias(MALFORMED)
        else:
            struct = struct.add(MALFORMED, StringType())
            bounds = {"maxStringLen": LONGEST_STRING} if self.format == "json" else {}
            permissive = {**bounds, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED, **self.bounded}
            frame = reader.options(**permissive).schema(struct).format(self.format).load(path)
            malformed = F.col(f"`{MALFORMED}`")
        columns = [F.col(quoted(name)) for name in self.declared.names]
        return frame.select(*columns, malformed, F.col("_metadata.file_path").alias(PLACE))

    def _check_there(self) -> None:
        # Spark would say so too, in Java, and only when the first batch is planned
        folder = self.folder
        if folder is not None and not any(c in folder for c in WILD) and not os.path.exists(folder):
            raise RunError(f"the folder {folder!r} does not exist; create it, or correct the source's path.")


def files(path: str, format: str, schema: Any, **options: Any) -> Files:  # noqa: A002  Spark's own word
    """Files of one format that appear in the folder ``path``.

    Rows: ``json`` (a line a row), ``csv`` or ``parquet``. Changes, a line a message, for ``job.table``:
    ``debezium``, ``maxwell`` or ``upsert`` (a line is ``{"key": {...}, "value": {...}}``, and a value of null
    deletes); their ``schema`` is the row's, not the message's.

    A relative path is below the folder where Python stands when the job starts. Files are those in the folder itself;
    those in folders below are read only when these are named for values (``day=2026-01-01``), or with
    ``recursiveFileLookup=True``. Each file is read once, oldest first. Write a file aside and move it in: a file
    seen half is read half.
    A line that cannot be read, has a value of the wrong type, or lacks a column that is declared ``not null``
    is malformed and goes to the dead letters with its file and its text; so is a string of more than 16,777,216
    characters in JSON (``maxStringLen=`` for another bound). ``options`` are Spark's own:
    ``header=True`` for CSV with a first line of names, ``maxFilesPerTrigger=1`` for a file a batch. A batch takes
    files of 256 MB together, and at least one, unless ``maxFilesPerTrigger=`` or ``maxBytesPerTrigger=`` is given.

    >>> files("in/views", format="json", schema="url string, at timestamp").describe()
    'json files in in/views'
    """
    if format not in FORMATS:
        raise PlanError(f"files: format={format!r}; there is {', '.join(FORMATS)}. ({written_at()})")
    if not isinstance(path, str | Path) or not str(path):
        raise PlanError(f"files: path={path!r} is no path. ({written_at()})")
    return Files(str(path), format, read_schema(schema, "files: schema"), as_texts(options))
