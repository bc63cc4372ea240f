"""Copies of remote runs on this machine: a run never changes, so a copy is never wrong."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from penstock.plan.errors import CheckpointError
from penstock.state.store import ASIDE

UNUSED_S = 6 * 3600.0


def find(root: str, name: str) -> str | None:
    """The copy of a file, None when there is none."""
    path = path_of(root, name)
    try:
        # the time of the last use, beside that of the last change, by which a file is known again
        os.utime(path, ns=(time.time_ns(), os.stat(path).st_mtime_ns))
    except FileNotFoundError:
        return None
    return path


def path_of(root: str, name: str) -> str:
    """Where the copy of a file stands, or would."""
    return str(folder() / hashlib.sha256(root.encode()).hexdigest()[:16] / name)


@contextlib.contextmanager
def making(root: str, name: str) -> Iterator[BinaryIO]:
    """Write a copy; it is there when all has gone well. Its neighbours that nobody has used for long go."""
    path = Path(path_of(root, name))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = path.with_name(f"{ASIDE}{uuid.uuid4().hex}")
    try:
        with aside.open("xb") as file:
            os.fchmod(file.fileno(), 0o600)
            yield file
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    for other in path.parent.iterdir():
        with contextlib.suppress(FileNotFoundError):
            # a mapped file can be read on, and one that is asked for again is fetched again
            if time.time() - other.stat().st_atime > UNUSED_S:
                other.unlink()


def drop(root: str, name: str) -> None:
    """Forget a copy."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path_of(root, name))


def folder() -> Path:
    """This user's own folder for copies."""
    made = Path(tempfile.gettempdir()) / f"penstock-runs-{os.getuid()}"
    made.mkdir(mode=0o700, exist_ok=True)
    if made.lstat().st_uid != os.getuid():  # anybody may make names in the temporary folder
        raise CheckpointError(f"{made} belongs to another user; remove it, or set TMPDIR to a folder of your own.")
    return made
