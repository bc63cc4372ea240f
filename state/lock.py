"""One live run per checkpoint: a lock that names its holder."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.plan.errors import CheckpointInUseError

NAME = "run.lock"
LOOK_S = 0.1  # who looks whether it is held has it for a moment


class RunLock:
    """Held by the live run until it ends, however it ends: the system frees it with the process.

    A holder that is stopped (SIGSTOP, a debugger) does not keep others out: the lock file is replaced under
    it, and its epoch keeps it from writing when it wakes.
    """

    def __init__(self, descriptor: int | None, taken_over: bool = False) -> None:
        self._descriptor = descriptor
        self._taken_over = taken_over

    @property
    def alone(self) -> bool:
        """True while no other run can be at work: it is held, and was not taken from one that may wake."""
        return self._descriptor is not None and not self._taken_over

    @classmethod
    def take(cls, root: str) -> RunLock:
        """The lock of the checkpoint at ``root``; CheckpointInUseError when a live run has it."""
        path = Path(root) / NAME
        with _one_at_a_time(root):
            descriptor, taken_over = _open(path), False
            if not _lock(descriptor):
                holder = _holder(descriptor)
                os.close(descriptor)
                if not _stopped(holder):
                    raise CheckpointInUseError(
                        f"checkpoint {root} is in use by process {holder.get('pid', 'unknown')} on "
                        f"{holder.get('host', 'an unknown host')}. Stop that run first."
                    )
                path.unlink()  # the stopped holder keeps the lock of a file that has no name any more
                descriptor, taken_over = _open(path), True
                _lock(descriptor)
            os.ftruncate(descriptor, 0)
            holder = {"pid": os.getpid(), "host": socket.gethostname()}
            os.pwrite(descriptor, json.dumps(holder).encode(), 0)
        return cls(descriptor, taken_over)

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._descriptor is not None:
            # an empty file names nobody: a later holder must not be taken for this process
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def held_by(root: str) -> Mapping[str, Any] | None:
    """What the live run on the checkpoint says of itself, as yet perhaps nothing; None when there is none.

    The lock itself is asked: a run that was killed leaves its name, and its number may be another's by now.
    """
    with _looked_at(root) as descriptor:
        return None if descriptor is None or _try_lock(descriptor, fcntl.LOCK_SH) else _holder(descriptor)


def last_holder(root: str) -> Mapping[str, Any]:
    """What the last run said of itself that held the lock; nothing when it has let go of it."""
    with _looked_at(root) as descriptor:
        return {} if descriptor is None else _holder(descriptor)


@contextlib.contextmanager
def _looked_at(root: str) -> Iterator[int | None]:
    """The lock file, None where there is none."""
    try:
        descriptor = os.open(Path(root) / NAME, os.O_RDONLY)
    except FileNotFoundError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _one_at_a_time(root: str) -> Iterator[None]:
    """Keep two runs that start together from both replacing the lock of a stopped one."""
    folder = os.open(root, os.O_RDONLY)
    try:
        if not _try_lock(folder):
            raise CheckpointInUseError(f"checkpoint {root}: another run is starting on it just now.")
        yield
    finally:
        os.close(folder)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _lock(descriptor: int) -> bool:
    """Take the lock, unless a run has it: a look lets go of it at once."""
    last = time.monotonic() + LOOK_S
    while not _try_lock(descriptor):
        if time.monotonic() >= last:
            return False
        time.sleep(LOOK_S / 50)
    return True


def _try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(descriptor: int) -> dict[str, Any]:
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
    except ValueError:  # it has the lock and has not yet written its name
        return {}
    return holder if isinstance(holder, dict) else {}


def _stopped(holder: dict[str, Any]) -> bool:
    if holder.get("host") != socket.gethostname():
        return False
    try:
        status = Path(f"/proc/{int(holder['pid'])}/stat").read_text()
    except OSError:
        return False
    # the state follows the command's name, which may itself hold spaces and brackets
    return status.rpartition(")")[2].split()[0] in ("T", "t")
