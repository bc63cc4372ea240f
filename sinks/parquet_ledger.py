"""Who may write to a directory of Parquet files, and which batches are there: all of it file names."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

from penstock.plan.errors import SinkError
from penstock.sinks import refusals
from penstock.sinks.base import Owner, Target

NEXT_MOVE = "Give this output another path, or remove that directory and replay the job with a new checkpoint."
NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


class ParquetLedger:
    """The owner, the epoch and the batches of one directory.

    A batch is there when its file is. A run takes the directory in this order: it makes the file of
    its epoch, removes what older runs have staged, and only then looks which batches there are. An
    older run lets a staged file appear only if it sees no newer epoch. So either its file appeared
    before the newer run looked, or it finds the newer epoch, or what it staged is gone.
    """

    def __init__(self, directory: Path, target: Target, owner: Owner) -> None:
        self.directory = directory
        self.target = target
        self.owner = owner
        self.home = directory / "_penstock"
        self.staging = self.home / f"staging-{owner.epoch}"
        self.epoch = self.home / f"epoch-{owner.epoch}"

    def open(self) -> int:
        """Check the owner, take the epoch, and return the newest batch that is there, -1 for none."""
        self._check_owner()
        self._take_epoch()
        return self._newest()

    def file(self, batch: int) -> Path:
        """Where the rows of a batch stand."""
        return self.directory / f"{self.target.output}-{batch:012d}.parquet"

    def assert_mine(self) -> None:
        """Refuse to go on when a newer run has taken the directory, or when it has gone."""
        newest = max(numbers(self.home, "epoch-*"), default=-1)
        if newest > self.owner.epoch:
            raise refusals.fenced(self.target, self.owner, str(self.directory), newest)
        if newest < self.owner.epoch:
            raise refusals.gone(self.target, self.owner, str(self.directory))

    def _check_owner(self) -> None:
        me = {"job": self.owner.job, "output": self.target.output, "checkpoint": self.owner.checkpoint}
        file = self.home / "owner.json"
        if self.owner.committed_to(self.target.output) >= 0 and not (file.exists() and self._newest() >= 0):
            raise refusals.gone(self.target, self.owner, str(self.directory))
        if not file.exists():
            self._refuse_strangers()
            self.home.mkdir(parents=True, exist_ok=True)
            aside = self.home / f"owner-{os.getpid()}.json"
            aside.write_text(json.dumps(me))
            appear(aside, file)
        found = read_owner(file)
        if found != me:
            there = (found.get("job", "?"), found.get("output", "?"), found.get("checkpoint", "?"))
            raise refusals.belongs_to_another(self.target, self.owner, str(self.directory), there, NEXT_MOVE)

    def _refuse_strangers(self) -> None:
        strangers = sorted(file.name for file in self.directory.glob("[!._]*.parquet"))
        if strangers:
            raise SinkError(
                f"output {self.target.output!r}: {self.directory} holds Parquet files that no job owns "
                f"({', '.join(strangers[:3])}{', ...' if len(strangers) > 3 else ''}). "
                f"Give this output a path of its own."
            )

    def _take_epoch(self) -> None:
        newest = max(numbers(self.home, "epoch-*"), default=-1)
        if newest > self.owner.epoch:
            raise refusals.fenced(self.target, self.owner, str(self.directory), newest)
        self.epoch.touch()
        for number in numbers(self.home, "epoch-*"):
            if number < self.owner.epoch:
                (self.home / f"epoch-{number}").unlink(missing_ok=True)
        for number in numbers(self.home, "staging-*"):
            if number <= self.owner.epoch:
                shutil.rmtree(self.home / f"staging-{number}", ignore_errors=True)
        self.assert_mine()
        self.staging.mkdir()

    def _newest(self) -> int:
        return max(numbers(self.directory, f"{self.target.output}-*.parquet"), default=-1)


def numbers(directory: Path, pattern: str) -> list[int]:
    """The numbers that stand in the place of the star in the names of a directory's files.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as home:
    ...     for name in ("epoch-3", "epoch-12", "epoch-x", "owner.json"):
    ...         Path(home, name).touch()
    ...     sorted(numbers(Path(home), "epoch-*"))
    [3, 12]
    """
    begin, end = pattern.split("*")
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    found = (name[len(begin) : len(name) - len(end)] for name in names if name.startswith(begin) and name.endswith(end))
    return [int(number) for number in found if number.isdecimal()]


def read_owner(file: Path) -> dict[str, str]:
    """What ``owner.json`` says; a file that says nothing is refused."""
    try:
        found = json.loads(file.read_text())
        return {str(name): str(value) for name, value in found.items()}
    except (ValueError, AttributeError) as error:
        raise SinkError(f"{file} is damaged: {error}. {NEXT_MOVE}") from error


def appear(aside: Path, file: Path) -> bool:
    """Give a finished file its name in one step, without ever replacing another; False when one is there."""
    sync(aside)
    try:
        os.link(aside, file)
    except FileExistsError:
        aside.unlink(missing_ok=True)
        return False
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        # this file system cannot link; the epoch has shown that nobody else makes this file now
        if file.exists():
            return False
        aside.rename(file)
    else:
        aside.unlink(missing_ok=True)  # a newer run may have swept it since
    sync(file.parent)
    return True


def sync(path: Path) -> None:
    """Wait until the disk holds a file, or a directory's names: the manifest must not be there first."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
