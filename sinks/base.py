"""What every sink is: a description that a job holds, and a writer that a run opens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Rows:
    """The rows of one output in one batch: in this process as Arrow, or still in Spark."""

    spark: SparkSession
    table: pa.Table | None = None
    frame: DataFrame | None = None

    def to_arrow(self) -> pa.Table:
        """All rows in this process."""
        if self.table is not None:
            return self.table
        assert self.frame is not None
        return self.frame.toArrow()

    def to_spark(self) -> DataFrame:
        """The rows as a frame; nothing runs until somebody reads it."""
        if self.frame is not None:
            return self.frame
        assert self.table is not None
        return self.spark.createDataFrame(self.table)

    @property
    def in_process(self) -> bool:
        """True when the rows are already here, as Arrow."""
        return self.table is not None


@dataclass(frozen=True)
class Changes:
    """What one batch does to one output: rows to append or upsert, and keys to delete."""

    rows: Rows
    deletes: Rows | None = None


@dataclass(frozen=True)
class Target:
    """One output of a job as its writer sees it: an empty ``key`` appends, any other upserts by it."""

    output: str
    sink: Sink
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Owner:
    """Who writes: the ledger holds these, so that nobody else writes there unnoticed."""

    job: str
    checkpoint: str
    epoch: int
    committed: int  # the newest batch in the manifest, -1 before the first


class Writer(ABC):
    """Writes the outputs that live in one place, all of a batch or nothing of it."""

    @abstractmethod
    def write(self, batch: int, changes: Mapping[str, Changes]) -> bool:
        """Write a batch for every output of this place; False when the ledger says that it is there already."""

    def close(self) -> None:  # noqa: B027  most writers hold nothing open
        """Let go of what is held; no write comes after."""


@dataclass(frozen=True)
class Sink(ABC):
    """Where an output goes. A description only: nothing is opened before the job runs."""

    upserts: ClassVar[bool] = False
    transactional: ClassVar[bool] = False

    @property
    @abstractmethod
    def name(self) -> str:
        """The name that an output takes when it is given none."""

    @property
    @abstractmethod
    def place(self) -> str:
        """What is written in one transaction: outputs of equal place share a writer."""

    @abstractmethod
    def writer(self, targets: Sequence[Target], owner: Owner) -> Writer:
        """Open the place for these outputs, check who owns it, and take the epoch."""
