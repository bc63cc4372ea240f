"""What every source is: a description that a job holds, read as a stream when the job runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.plan.needs import Need

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.sources.cdc.changelog import Changelog

# Hidden columns that a source may add to its rows; the engine fills in those that it leaves out.
MALFORMED = "__ps_malformed"  # the raw text of a row that could not be read, else null
PLACE = "__ps_place"  # where a row came from: a file, or partition and offset
CLOCK = "__ps_clock"  # the source partition whose time the row moves
PARTITION = "__ps_partition"  # order of arrival: partition, then position
POSITION = "__ps_position"

# Of a changelog: what its messages say besides the row's own columns.
DELETED = "__ps_deleted"  # true for a row that ends what was
SEQUENCE = "__ps_seq_"  # what puts its rows in order, numbered
SAID = "__ps_said"  # when a delete was said, in microseconds: its row may have no more than its key
IGNORED = "__ps_ignored"  # true for a message that is of no row
MESSAGE = "__ps_message"  # the message as it came
ARRIVAL = "__ps_arrival_"  # what puts messages in order where partition and position do not, numbered

#: Begins the text of an error that a message raises in Spark to end the run, whatever becomes of bad rows.
STOP = "PENSTOCK_STOP "


@dataclass(frozen=True)
class Source(ABC):
    """Where an input comes from. A description only: nothing is opened before the job runs."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema | None:
        """The columns of its rows; None when only the running source can tell."""

    @property
    def changelog(self) -> Changelog | None:
        """How its messages are read as changes of a table, which know their own deletes and order; None: as rows."""
        return None

    @property
    def needs(self) -> tuple[Need, ...]:
        """What Spark must have to read it."""
        return ()

    @abstractmethod
    def read(self, spark: SparkSession) -> DataFrame:
        """The source as a streaming frame: its columns, and what it knows of the hidden ones.

        Of a changelog: its messages, as text in a column ``value``, and in ``key`` where they come in two parts.
        """

    @abstractmethod
    def describe(self) -> str:
        """The source in a few words, for ``explain()``."""
