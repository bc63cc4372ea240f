"""Hand each batch to a user's function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.plan.errors import PlanError, SinkError, TransientSinkError
from penstock.plan.written import written_at
from penstock.sinks.base import Changes, Owner, Sink, Target, Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def call(function: Callable[[DataFrame, int], Any]) -> CallFunction:
    """Call ``function(frame, batch_id)`` with each batch, as Spark's ``foreachBatch`` does.

    An empty batch comes too. A Table's changes come with a column ``op``, ``'upsert'`` or ``'delete'``;
    a delete may hold the key only, and null elsewhere. At least once: after a crash the same batch comes
    again under the same number, so a function that must not act twice keeps the number with what it wrote.
    What it raises stops the job; a ``penstock.TransientSinkError`` has the batch come again, after a pause.

    >>> def notify(frame, batch_id):
    ...     frame.show()
    >>> call(notify).describe()
    'function notify'
    """
    if not callable(function):
        raise PlanError(
            f"sinks.call({function!r}): not a function. "
            f"Give one that takes a frame and a batch's number. ({written_at()})"
        )
    return CallFunction(function)


@dataclass(frozen=True)
class CallFunction(Sink):
    """A function that takes a frame and the number of the batch."""

    function: Callable[[DataFrame, int], Any]

    upserts: ClassVar[bool] = True

    @property
    def name(self) -> str:
        named = getattr(self.function, "__name__", type(self.function).__name__)
        return str(named).strip("<>")

    @property
    def place(self) -> str:
        return f"call:{getattr(self.function, '__module__', '')}.{self.name}"

    def describe(self) -> str:
        return f"function {self.name}"

    def writer(self, targets: Sequence[Target], owner: Owner) -> CallWriter:
        return CallWriter(targets)


class CallWriter(Writer):
    """Calls the function of each output; keeps no ledger."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self.targets = targets

    def write(self, batch: int, changes: Mapping[str, Changes]) -> bool:
        for target in self.targets:
            assert isinstance(target.sink, CallFunction)
            frame = frame_of(target, changes[target.output])
            next_move = "See to what the function needs, and start the job again: the batch comes again."
            try:
                target.sink.function(frame, batch)
            except Exception as error:  # a user's function may raise anything
                said = f"{type(error).__name__}: {error}"
                where = f"{target.sink.describe()} failed in batch {batch}: {said}"
                kind = TransientSinkError if isinstance(error, TransientSinkError) else SinkError
                raise kind(f"output {target.output!r}: {where}. {next_move}") from error
            if target is self.targets[0]:
                self.worst_moment()
        return True


def frame_of(target: Target, changes: Changes) -> DataFrame:
    """A batch as the function sees it."""
    frame = changes.rows.to_spark()
    if not target.key:
        return frame
    if "op" in frame.columns:
        raise SinkError(
            f"output {target.output!r}: the rows have a column 'op', which sinks.call adds. Rename it before to()."
        )
    from pyspark.sql.functions import lit

    frame = frame.withColumn("op", lit("upsert"))
    if changes.deletes is None:
        return frame
    deletes = changes.deletes.to_spark().withColumn("op", lit("delete"))
    return frame.unionByName(deletes, allowMissingColumns=True)
