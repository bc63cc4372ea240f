"""What every source is: a description that a job holds, read as a stream when the job runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

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


def as_texts(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Options as Java writes them, in order.

    >>> as_texts({"sep": ";", "header": True})
    (('header', 'true'), ('sep', ';'))
    """
    return tuple(sorted((k, str(v).lower() if isinstance(v, bool) else str(v)) for k, v in options.items()))


class Watch(Protocol):
    """Asks a source how far it could be read."""

    def ends(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """What comes after the last that is there, by partition; empty when nobody answers soon.

        A RunError when another place has come to stand where this one was, so that what is read is of that.
        """

    def close(self) -> None:
        """Let go of what is held."""


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

    @property
    def place(self) -> str:
        """What its offsets count in: of a source in another place they would mean something else."""
        return self.describe()

    def check(
        self, spark: SparkSession, known: Mapping[str, Any], reached: Mapping[str, int] | None
    ) -> Mapping[str, Any]:
        """Refuse, before a run begins, a place that is not there or no longer has what comes next.

        ``known`` is what this method gave when the checkpoint began, ``reached`` what comes next (see ``reached``) as
        far as that is known, None when nothing was planned yet. What it gives is kept in the checkpoint.
        """
        return known

    def reached(self, offsets: Mapping[str, Any]) -> Mapping[str, int] | None:
        """What comes next by partition, from a line of Spark's log; None when the line is not of this source."""
        return None

    def watch(self, known: Mapping[str, Any]) -> Watch | None:
        """Somebody to ask, while the job runs, how far it could be read; None when nobody knows.

        ``known`` is what ``check`` gave.
        """
        return None

    def without_secrets(self, text: str) -> str:
        """Spark's text without the secrets of this source."""
        return text

    @abstractmethod
    def read(self, spark: SparkSession) -> DataFrame:
        """The source as a streaming frame: its columns, and what it knows of the hidden ones.

        Of a changelog: its messages, as text in a column ``value``, and in ``key`` where they come in two parts.
        """

    @abstractmethod
    def describe(self) -> str:
        """The source in a few words, for ``explain()``."""
