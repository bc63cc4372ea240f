"""The errors that the sinks share: the output, the fault, what there is, the next move."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.plan.errors import FencedError, SinkError

if TYPE_CHECKING:
    from penstock.sinks.base import Owner, Target


def outputs_of(targets: Sequence[Target]) -> str:
    """How a message begins: the outputs by name."""
    return f"output {', '.join(repr(target.output) for target in targets)}"


@contextmanager
def environment(targets: Sequence[Target], place: str, next_move: str) -> Iterator[None]:
    """Turn what disks, databases and services raise into a SinkError with the next move."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise SinkError(f"{outputs_of(targets)}: cannot write to {place}: {error}. {next_move}") from error


def belongs_to_another(
    target: Target, owner: Owner, place: str, found: tuple[str, str, str], next_move: str
) -> SinkError:
    """The place was written by another job, output or checkpoint; ``found`` is who that is."""
    job, output, checkpoint = found
    return SinkError(
        f"output {target.output!r}: {place} belongs to "
        f"output {output!r} of job {job!r} (checkpoint {checkpoint}); "
        f"this is output {target.output!r} of job {owner.job!r} (checkpoint {owner.checkpoint}). {next_move}"
    )


def gone(target: Target, owner: Owner, place: str) -> SinkError:
    """The place, or what stood in it, is no longer there while the checkpoint is."""
    return SinkError(
        f"output {target.output!r}: {place} has gone, but job {owner.job!r} (checkpoint {owner.checkpoint}) "
        f"wrote to it; going on would leave out what was there. "
        f"Bring it back, or replay the job with a new checkpoint and a new or removed output."
    )


def fenced(target: Target, owner: Owner, place: str, epoch: int) -> FencedError:
    """A newer run has taken the place."""
    return FencedError(
        f"output {target.output!r}: {place} was taken over by run {epoch} of job {owner.job!r}, "
        f"and this is run {owner.epoch}; nothing was written. End this run, the newer one goes on."
    )


def shared(targets: Sequence[Target], place: str) -> SinkError:
    """Two outputs of one job would write over each other."""
    return SinkError(f"{outputs_of(targets)}: both write to {place}. Give each its own.")


def other_columns(target: Target, place: str, there: Sequence[str], wanted: Sequence[str]) -> SinkError:
    """What is there has other columns than the rows that are to be written."""
    return SinkError(
        f"output {target.output!r}: {place} has columns {', '.join(there)}; "
        f"the rows to write have {', '.join(wanted)}. "
        f"Give the output a new place, or remove it and replay the job with a new checkpoint."
    )
