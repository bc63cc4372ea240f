"""What is measured: a query over named inputs, one or two, with rows that are generated for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.stream import Stream
from penstock.table import Table

LATENESS_SECONDS = 10
LATENESS = f"{LATENESS_SECONDS} seconds"


@dataclass(frozen=True)
class Cut:
    """What one file of an input must hold: so many rows over a stretch of time; ``total`` is the case's ``--rows``."""

    total: int
    rows: int
    begin_us: int
    span_us: int
    number: int


class Make(Protocol):
    """Makes the rows of a file. A value, so that cases with equal inputs read the same files."""

    def __call__(self, cut: Cut) -> pa.Table:
        """The rows."""


@dataclass(frozen=True)
class Input:
    """Rows under a name: a stream, or a table when it has a ``key``.

    ``share`` is how many rows it has for each of the case's; ``static`` has PySpark read it as it is, once. Without
    ``make`` its rows are pushed to a query that runs.
    """

    name: str
    columns: str
    make: Make | None = None
    share: float = 1.0
    files: int = 5
    time: str | None = "at"
    key: str | None = None
    sequence: str | None = None
    delete_when: str | None = None
    static: bool = False

    def rows(self, total: int) -> int:
        """The rows of all its files."""
        return max(int(total * self.share) // self.files, 1) * self.files


@dataclass(frozen=True)
class Case:
    """One query: as a job of ours, by hand in PySpark, in Flink SQL.

    ``ours`` and ``theirs`` take the inputs in their order; ``sides`` are the ways to run the latter, and ``goal`` is
    the least ratio against the first of them. ``settings`` are Flink's. With ``changes`` the result is a table, and
    sides are compared by its last rows; with ``repeats`` Flink gives some rows again, and each of its rows counts
    once.
    """

    name: str
    inputs: tuple[Input, ...]
    ours: Callable[..., Stream | Table]
    theirs: Callable[..., DataFrame] | None = None
    sides: tuple[str, ...] = ("tuned", "defaults")
    goal: float | None = None
    flink: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    changes: bool = False
    repeats: bool = False

    def rows(self, total: int) -> int:
        """The rows of all inputs."""
        return sum(given.rows(total) for given in self.inputs)

    def place(self, folder: Path, total: int) -> Path:
        """Where its rows are: one folder for all cases with these inputs."""
        return folder / f"{hash((self.inputs, total)) & (2**64 - 1):x}"
