"""A sink that asks for every row and keeps none, as Spark's own ``noop`` does; it takes changes too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.sinks.base import Changes, Owner, Sink, Target, Writer


@dataclass(frozen=True)
class Noop(Sink):
    """Rows that are made and thrown away."""

    upserts: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "noop"

    @property
    def place(self) -> str:
        return "noop"

    def describe(self) -> str:
        return "noop"

    def writer(self, targets: Sequence[Target], owner: Owner) -> NoopWriter:
        return NoopWriter()


class NoopWriter(Writer):
    """Has Spark make the rows that are still there; those in this process are made already."""

    def write(self, batch: int, changes: Mapping[str, Changes]) -> bool:
        for change in changes.values():
            for rows in (change.rows, change.deletes):
                if rows is not None and not rows.in_process:
                    rows.to_spark().write.format("noop").mode("append").save()
        return True
