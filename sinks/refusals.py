"""The errors that the sinks share: the output, the fault, what there is, the next move."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.plan.errors import FencedError, SinkError, TransientSinkError

if TYPE_CHECKING:
    from penstock.sinks.base import Owner, Target

# what a disk or a network may say now and not say soon; a full disk or a missing right is not of these
MAY_PASS = {
    errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE,
    errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH,
}  # fmt: skip


def outputs_of(targets: Sequence[Target]) -> str:
    """How a message begins: the outputs by name."""
    return f"output {', '.join(repr(target.output) for target in targets)}"


@contextmanager
def environment(targets: Sequence[Target], place: str, next_move: str) -> Iterator[None]:
    """Turn what disks, databases and services raise into a SinkError with the next move."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise cannot_write(targets, place, str(error), next_move, passes=may_pass(error)) from error


def cannot_write(targets: Sequence[Target], place: str, said: str, next_move: str, *, passes: bool) -> SinkError:
    """The place does not take the rows; where that may pass, the batch is tried again."""
    kind = TransientSinkError if passes else SinkError
    return kind(f"{outputs_of(targets)}: cannot write to {place}: {said}. {next_move}")


def may_pass(error: OSError | sqlite3.Error) -> bool:
    """True for what may be over soon: a lock, a connection that was refused or lost.

    >>> may_pass(ConnectionRefusedError()), may_pass(OSError(errno.ENOSPC, "no space"))
    (True, False)
    """
    if isinstance(error, sqlite3.Error):
        # SQLite's own code for it is not there in Python 3.10
        return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
    return isinstance(error, ConnectionError | TimeoutError) or error.errno in MAY_PASS


def or_take_over(target: Target) -> str:
    """The last of the choices: how a run takes a place as it is."""
    return f"or go on here with --take-over {target.output}: what stands there then stays as it is."


def belongs_to_another(
    target: Target, owner: Owner, place: str, found: tuple[str, str, str], next_move: str
) -> SinkError:
    """The place was written by another job, output or checkpoint; ``found`` is who that is."""
    job, output, checkpoint = found
    return SinkError(
        f"output {target.output!r}: {place} belongs to "
        f"output {output!r} of job {job!r} (checkpoint {checkpoint}); "
        f"this is output {target.output!r} of job {owner.job!r} (checkpoint {owner.checkpoint}). "
        f"{next_move}, {or_take_over(target)}"
    )


def of_nobody(target: Target, place: str, there: Sequence[tuple[str, str]]) -> SinkError:
    """Something stands in the place that no job has written."""
    return SinkError(
        f"output {target.output!r}: {place} is there already and no job owns it; "
        f"it has columns {', '.join(name for name, _ in there)}. "
        f"Give this output another place, or remove what is there, {or_take_over(target)}"
    )


def gone(target: Target, owner: Owner, place: str) -> SinkError:
    """The place, or what stood in it, is no longer there while the checkpoint is."""
    return SinkError(
        f"output {target.output!r}: {place} has gone, but job {owner.job!r} (checkpoint {owner.checkpoint}) "
        f"wrote to it; going on would leave out what was there. Bring it back, {_replay(target)}"
    )


def older_copy(target: Target, owner: Owner, place: str, there: int, written: int) -> SinkError:
    """The place lacks batches that were written to it."""
    return SinkError(
        f"output {target.output!r}: {place} stands at batch {there}, but job {owner.job!r} "
        f"(checkpoint {owner.checkpoint}) has written batch {written}: it is an older copy. "
        f"Bring back the newer one, {_replay(target)}"
    )


def older_checkpoint(target: Target, owner: Owner, place: str, there: int) -> SinkError:
    """The place holds batches that the checkpoint has not begun, and would plan anew, of other rows."""
    return SinkError(
        f"output {target.output!r}: {place} stands at batch {there}, but checkpoint {owner.checkpoint} of job "
        f"{owner.job!r} has written batch {owner.committed} and begun batch {owner.begun}: it is an older copy than "
        f"the output. Bring back the newer checkpoint, {_replay(target)}"
    )


def left_out(target: Target, owner: Owner, place: str, there: int) -> SinkError:
    """The job wrote to the place, then elsewhere or not at all, and now again."""
    return SinkError(
        f"output {target.output!r}: {place} was written until batch {there}, and job {owner.job!r} "
        f"(checkpoint {owner.checkpoint}) has gone on to batch {owner.committed} without it: what came between is not "
        f"there. Give this output another place, or remove what is there and replay, {or_take_over(target)}"
    )


def _replay(target: Target) -> str:
    return f"or replay the job with a new checkpoint and a new or removed output, {or_take_over(target)}"


def fenced(target: Target, owner: Owner, place: str, epoch: int) -> FencedError:
    """A newer run has taken the place, or another one of this number."""
    if epoch == owner.epoch:
        return FencedError(
            f"output {target.output!r}: {place} was taken by another run {epoch} of job {owner.job!r}, and this is "
            f"run {owner.epoch}: two copies of checkpoint {owner.checkpoint} are at work; nothing was written. "
            f"End one of them; the other, started again, takes the next number."
        )
    return FencedError(
        f"output {target.output!r}: {place} was taken over by run {epoch} of job {owner.job!r}, "
        f"and this is run {owner.epoch}; nothing was written. End this run, the newer one goes on; "
        f"where there is none, because checkpoint {owner.checkpoint} is a copy, {or_take_over(target)[3:]}"
    )


def shared(targets: Sequence[Target], place: str) -> SinkError:
    """Two outputs of one job would write over each other."""
    return SinkError(f"{outputs_of(targets)}: both write to {place}. Give each its own.")


def other_columns(
    target: Target, place: str, there: Sequence[tuple[str, str]], wanted: Sequence[tuple[str, str]]
) -> SinkError:
    """What is there has other columns than the rows that are to be written, or columns of other types."""
    alike = sorted(name for name, _ in there) == sorted(name for name, _ in wanted)
    told = [", ".join(f"{name} {kind}" if alike else name for name, kind in one) for one in (there, wanted)]
    return SinkError(
        f"output {target.output!r}: {place} has columns {told[0]}; the rows to write have {told[1]}. "
        f"Give the output a new place, or remove it and replay the job with a new checkpoint."
    )
