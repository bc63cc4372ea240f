"""What every source is: a description that a job holds, read as a stream when the job runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Hidden columns that a source may add to its rows; the engine fills in those that it leaves out.
MALFORMED = "__ps_malformed"  # the raw text of a row that could not be read, else null
PLACE = "__ps_place"  # where a row came from: a file, or partition and offset
CLOCK = "__ps_clock"  # the source partition whose time the row moves
PARTITION = "__ps_partition"  # order of arrival: partition, then position
POSITION = "__ps_position"


@dataclass(frozen=True)
class Source(ABC):
    """Where an input comes from. A description only: nothing is opened before the job runs."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema | None:
        """The columns of its rows; None when only the running source can tell."""

    @abstractmethod
    def read(self, spark: SparkSession) -> DataFrame:
        """The source as a streaming frame: its columns, and what it knows of the hidden ones."""

    @abstractmethod
    def describe(self) -> str:
        """The source in a few words, for ``explain()``."""
