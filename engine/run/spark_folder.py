"""Where Spark keeps its own part of a checkpoint: in the checkpoint itself, or in a folder that is sent to it.

Spark writes to an object store by copying and deleting, and cannot create a file there only once. So beside a
remote checkpoint its log is kept on this machine. What is new in it is created in the store before a batch is
worked on, once and in the order in which Spark wrote it: a crash leaves the store as Spark itself might have
been left, and of two runs that plan the same batch one is refused.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.plan.errors import CheckpointError, PenstockError
from penstock.run.spark_log import COMMITS, FOLDER, METADATA, OFFSETS, SOURCES
from penstock.state.checkpoint import Checkpoint

# a plan is there only when what its sources noted is
ORDER = (METADATA, SOURCES, OFFSETS, COMMITS)
AT_ONCE = 16


class SparkFolder:
    """Spark's part, in the checkpoint's own folder: there is nothing to send."""

    def __init__(self, path: str) -> None:
        self.path = path
        Path(path).mkdir(mode=0o700, exist_ok=True)

    def send(self) -> None:
        """Put what is new into the store; CheckpointError when another run has put something else there."""

    def close(self, *, whole: bool = False) -> None:
        """Let go of it; with ``whole`` what is new is sent first, and else it is lost: its batch is run again."""


class SentFolder(SparkFolder):
    """Spark's part on this machine, fetched from the store when the run begins."""

    def __init__(self, checkpoint: Checkpoint, epoch: int) -> None:
        self._checkpoint = checkpoint
        self._epoch = epoch
        self._store = checkpoint.files.store
        self._home = tempfile.mkdtemp(prefix="penstock-spark-part-")
        super().__init__(os.path.join(self._home, FOLDER))
        self._sent: frozenset[str] = frozenset()
        try:
            self._fetch()
        except BaseException:
            self.close()
            raise

    def _fetch(self) -> None:
        there = self._store.names(FOLDER, recursive=True)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for name, content in zip(there, pool.map(self._store.read, there), strict=True):
                path = Path(self._home, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        self._sent = frozenset(there)

    def send(self) -> None:
        here = list(self._written())
        self._checkpoint.assert_epoch(self._epoch)
        for name in sorted(set(here) - self._sent, key=_place):
            self._create(name, Path(self._home, name).read_bytes())
        for name in self._sent.difference(here):
            self._store.delete(name)  # Spark forgets old plans
        self._sent = frozenset(here)

    def close(self, *, whole: bool = False) -> None:
        if whole and os.path.isdir(self._home):
            with contextlib.suppress(PenstockError):  # the outputs are written, and the next run asks them
                self.send()
        shutil.rmtree(self._home, ignore_errors=True)

    def _written(self) -> Iterator[str]:
        """What Spark has written whole; hidden files are checksums, and files on their way."""
        for folder, _, files in os.walk(self.path):
            below = os.path.relpath(folder, self._home)
            yield from (f"{below}/{name}" for name in files if not name.startswith("."))

    def _create(self, name: str, content: bytes) -> None:
        try:
            self._store.create(name, content)
        except FileExistsError:
            if self._store.read(name) != content:
                raise CheckpointError(
                    f"checkpoint {self._store.root}: another run has put {name} there, with other content, while this "
                    "one began. Nothing was written. See that no other run is alive, and start again."
                ) from None


def spark_folder(checkpoint: Checkpoint, epoch: int) -> SparkFolder:
    """Where Spark shall keep its part of a checkpoint in the run of an epoch."""
    store = checkpoint.files.store
    return SparkFolder(store.full(FOLDER)) if store.local else SentFolder(checkpoint, epoch)


def _place(name: str) -> tuple[int, int, str]:
    """In the order in which Spark writes."""
    kind = next((at for at, folder in enumerate(ORDER) if name.startswith(folder)), len(ORDER))
    number = name.rpartition("/")[2].partition(".")[0]
    return kind, int(number) if number.isdecimal() else -1, name
