"""Who may write to a directory of Parquet files, and which batches are there: all of it file names."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq

from penstock.plan.errors import SinkError
from penstock.sinks.ledger import Column, Entry
from penstock.sinks.parquet_columns import columns_of

NEXT_MOVE = "Give this output another path, or remove that directory and replay the job with a new checkpoint"
NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


class ParquetLedger:
    """The owner, the epoch and the batches of one directory; ``ledger`` has the rules.

    A batch is there when its file is, or, where it has no rows, its mark. A run takes the directory in this
    order: it makes the file of its epoch, removes what older runs have staged, and only then looks which
    batches there are. An older run lets a staged file appear only if it sees no newer epoch. So either its
    file appeared before the newer run looked, or it finds the newer epoch, or what it staged is gone.

    Owners are numbered. Who takes a directory over makes the next file of an owner, and has that number in the
    names of all that it makes: nothing is overwritten, and of two who come at once one is first.
    """

    next_move = NEXT_MOVE

    def __init__(self, directory: Path, output: str, epoch: int) -> None:
        self.directory = directory
        self.output = output
        self.epoch = epoch
        self.home = directory / "_penstock"
        self.owner = 0
        self._seen: Entry | None = None

    @property
    def staging(self) -> Path:
        """Where this run writes what is to appear."""
        return self.home / f"{of_owner('staging', self.owner)}-{self.epoch}"

    def file(self, batch: int) -> Path:
        """Where the rows of a batch stand."""
        return self.directory / f"{of_owner(self.output, self.owner)}-{batch:012d}.parquet"

    def read(self) -> Entry | None:
        """Who writes here, and the newest batch."""
        first = [0] if (self.home / "owner.json").exists() else []
        owners = [*first, *numbers(self.home, "owner-*.json")]
        self._seen = None
        if owners:
            self.owner = max(owners)
            said = read_owner(self.home / f"{of_owner('owner', self.owner)}.json")
            batch = max(*self._numbers("batch"), self._newest_file(), -1)
            self._seen = Entry(said["job"], said["output"], said["checkpoint"], batch, self._newest_epoch())
        return self._seen

    def columns(self) -> list[Column]:
        """The columns of the newest file, whoever wrote it."""
        newest = self._newest_file()
        if newest >= 0:
            return columns_of(pq.read_schema(self.file(newest)))
        files = sorted(self.directory.glob("[!._]*.parquet"), key=lambda file: (file.stat().st_mtime_ns, file.name))
        return columns_of(pq.read_schema(files[-1])) if files else []

    def take(self, entry: Entry) -> int:
        """Make the files that say so; the number of a run that made them at the same moment."""
        known = self._seen
        if (known is None or known[:4] != entry[:4] or known.epoch > entry.epoch) and not self._take_over(entry):
            return entry.epoch
        try:
            (self.home / f"{of_owner('epoch', self.owner)}-{entry.epoch}").touch(exist_ok=False)
        except FileExistsError:
            return entry.epoch
        if self._newest_epoch() > entry.epoch:
            return self._newest_epoch()
        self._sweep()
        self.staging.mkdir()
        return -1

    def record(self, batch: int) -> None:
        """Mark a batch that has no file."""
        older = self._numbers("batch")
        mark = self.home / of_owner("batch", self.owner)
        mark.with_name(f"{mark.name}-{batch}").touch()
        sync(self.home)
        for number in older:
            mark.with_name(f"{mark.name}-{number}").unlink(missing_ok=True)

    def _take_over(self, entry: Entry) -> bool:
        """Name the owner in a file of its own; False when somebody else has made that file first."""
        self.owner = 0 if self._seen is None else self.owner + 1
        while self._newest_file() >= 0:  # of somebody who has left no owner
            self.owner += 1
        self.home.mkdir(parents=True, exist_ok=True)
        aside = self.home / f".owner-{os.getpid()}"
        aside.write_text(json.dumps({"job": entry.job, "output": entry.output, "checkpoint": entry.checkpoint}))
        if not appear(aside, self.home / f"{of_owner('owner', self.owner)}.json"):
            return False
        if entry.batch >= 0:
            self.record(entry.batch)
        return True

    def _sweep(self) -> None:
        """Remove the epochs of older runs, and what they have staged."""
        for owner in range(self.owner + 1):
            for name in ("epoch", "staging"):
                for number in numbers(self.home, f"{of_owner(name, owner)}-*"):
                    if owner < self.owner or number < self.epoch:
                        remove(self.home / f"{of_owner(name, owner)}-{number}")

    def _newest_file(self) -> int:
        return max(numbers(self.directory, f"{of_owner(self.output, self.owner)}-*.parquet"), default=-1)

    def _newest_epoch(self) -> int:
        return max(self._numbers("epoch"), default=-1)

    def _numbers(self, name: str) -> list[int]:
        return numbers(self.home, f"{of_owner(name, self.owner)}-*")


def of_owner(name: str, owner: int) -> str:
    """How names begin that one owner gives; the first has no number in them.

    >>> of_owner("hits", 0), of_owner("hits", 2)
    ('hits', 'hits-2')
    """
    return f"{name}-{owner}" if owner else name


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that it holds; another run may be doing the same."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


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
    """What a file of an owner says; one that says nothing is refused."""
    try:
        found = json.loads(file.read_text())
        return {part: str(found[part]) for part in ("job", "output", "checkpoint")}
    except (ValueError, TypeError, KeyError) as error:
        raise SinkError(f"{file} is damaged: {error!r}. {NEXT_MOVE}.") from error


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
