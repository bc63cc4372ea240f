"""What every sink is: a description that a job holds, and a writer that a run opens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from penstock.plan.expressions import quoted
from penstock.plan.needs import Need
from penstock.sinks.arriving import arrived, arriving, arrow_schema, spooled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_ROWS = 10_000


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
        return arrived(self.spark, self.table)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows a few thousand at a time; rows in Spark come over partition by partition."""
        if self.table is not None:
            return iter(self.table.to_batches(max_chunksize=BATCH_ROWS))
        assert self.frame is not None
        return arriving(self.frame)

    def select(self, names: Sequence[str]) -> Rows:
        """The same rows with these columns, in this order."""
        if self.table is not None:
            return Rows(self.spark, table=self.table.select(names))
        assert self.frame is not None
        return Rows(self.spark, frame=self.frame.select(*map(quoted, names)))

    @contextmanager
    def brought(self) -> Iterator[Rows]:
        """The same rows in this process: what is still in Spark waits in a file, however much it is."""
        if self.in_process:
            yield self
            return
        with spooled(self.batches(), self.schema) as table:
            yield Rows(self.spark, table=table)

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types; nothing runs in Spark to know them."""
        if self.table is not None:
            return self.table.schema
        assert self.frame is not None
        return arrow_schema(self.frame)

    @property
    def in_process(self) -> bool:
        """True when the rows are already here, as Arrow."""
        return self.table is not None


@dataclass(frozen=True)
class Changes:
    """What one batch does to one output: rows to append or upsert, and rows whose keys to delete.

    A key that stands in both is deleted first; of two rows with one key the later wins.
    ``deletes`` holds at least the key columns.
    """

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
    begun: int = -1  # the newest batch that an output may hold, also when a crash kept it out of the manifest
    new: frozenset[str] = frozenset()  # outputs that the newest batch did not write, or elsewhere: they begin now
    take_over: frozenset[str] = frozenset()  # outputs whose place is taken whoever wrote it, and as it is

    def committed_to(self, output: str) -> int:
        """The newest batch that an output must hold, -1 when it is new."""
        return -1 if output in self.new else self.committed


class Writer(ABC):
    """Writes the outputs that live in one place, all of a batch or nothing of it.

    ``during`` is called once in each write, at the moment at which a crash would do most harm;
    tests set it to a function that does not come back.
    """

    during: Callable[[], None] | None = None

    @abstractmethod
    def write(self, batch: int, changes: Mapping[str, Changes]) -> bool:
        """Write a batch for every output of this place; False when the ledger says that it is there already.

        Every batch is written and ``changes`` names every output, also where there are no rows: the
        first write makes the columns known, and a ledger behind the manifest tells of lost rows.
        """

    def close(self) -> None:  # noqa: B027  most writers hold nothing open
        """Let go of what is held; no write comes after."""

    def worst_moment(self) -> None:
        """Let a test crash here."""
        if self.during is not None:
            self.during()


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

    @property
    def needs(self) -> tuple[Need, ...]:
        """What Spark must have to write to it."""
        return ()

    @abstractmethod
    def describe(self) -> str:
        """The sink in a few words, for ``explain()``."""

    def check_key(self, output: str, key: tuple[str, ...]) -> None:  # noqa: B027  most have no key of their own
        """Refuse an output whose rows are told apart by another key than the sink says; empty: they only append."""

    @abstractmethod
    def writer(self, targets: Sequence[Target], owner: Owner) -> Writer:
        """Open the place for these outputs, check who owns it, and take the epoch."""
