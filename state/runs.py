"""Runs: immutable sorted Arrow files, written once, mapped and searched by bisection."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import pyarrow as pa

from penstock.plan.errors import CheckpointError
from penstock.state.store import Store

Values = npt.NDArray[Any]

PATH = re.compile(r"state/(?P<step>[^/\0]+)/(?P<bucket>\d+)/(?P<batch>\d+)-[0-9a-f]+\.arrow")
SORT_KEY = b"penstock.sort"
TIME = b"penstock.time"

# Checksums are computed once per process: path -> what the file was when it passed.
_verified: dict[str, tuple[int, ...]] = {}
_VERIFIED_LIMIT = 100_000


@dataclass(frozen=True)
class Run:
    """One sorted file of a bucket's state, as a manifest names it.

    ``first`` is a cursor: the rows before it are dropped, though the file never changes. ``low`` and ``high``
    are the smallest and largest sort value in the file, ``live_low`` the smallest one that the cursor leaves.
    A keyed table whose rows expire knows their smallest and largest time too; the rows with a time before
    ``live_from`` are gone, though they hide older ones still.
    """

    path: str
    rows: int
    first: int
    low: int
    high: int
    live_low: int
    bytes: int
    crc32: int
    time_low: int | None = None
    time_high: int | None = None
    live_from: int | None = None

    @property
    def live(self) -> int:
        """The rows that the cursor leaves."""
        return self.rows - self.first

    @property
    def place(self) -> str:
        """Step, bucket and file, for messages."""
        return place_of(self.path)

    def to_json(self) -> dict[str, Any]:
        """The run as a manifest holds it."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Run:
        """The run that ``to_json`` described; a path that could leave the checkpoint is refused."""
        run = cls(**value)
        place_of(run.path)
        return run


def place_of(path: str) -> str:
    """Step, bucket and file of a run's path.

    >>> place_of("state/clicks/3/12-ab.arrow")
    "step 'clicks', bucket 3, file state/clicks/3/12-ab.arrow"
    """
    found = PATH.fullmatch(path)
    if found is None or found["step"].startswith("."):
        raise CheckpointError(f"{path!r} is no path of a run; it should be state/<step>/<bucket>/<batch>-<id>.arrow.")
    return f"step '{found['step']}', bucket {found['bucket']}, file {path}"


def sort_values(table: pa.Table, column: str) -> Values:
    """The NumPy view of a sort column; anything but integers without nulls is refused."""
    values = table.column(column)
    if values.type not in (pa.int64(), pa.uint64()) or values.null_count:
        raise ValueError(
            f"sort column {column!r} is {values.type} with {values.null_count} nulls; need int64 or uint64"
        )
    # one chunk is a view of the mapped file, several would be copied
    view: Values = values.chunk(0).to_numpy() if values.num_chunks == 1 else values.to_numpy()
    return view


@dataclass(frozen=True)
class RunFiles:
    """The runs below a checkpoint's root; a small value that travels to the workers.

    Without ``checked`` a file is known by its size alone: its checksum would read it whole.
    """

    store: Store
    checked: bool = True

    @classmethod
    def at(cls, root: str | os.PathLike[str], fsync: bool = False) -> RunFiles:
        """The runs below a path or address."""
        return cls(Store.at(root, fsync))

    def write(self, step: str, bucket: int, batch: int, table: pa.Table, sort_column: str) -> Run:
        """Write a sorted table as one new file, which nobody reads before a manifest names it.

        The metadata of a table whose rows expire names the column of their time.
        """
        values = sort_values(table, sort_column)
        if not len(values) or (values[1:] < values[:-1]).any():
            raise ValueError(f"step {step!r}: a run needs rows, sorted by {sort_column!r}")
        path = f"state/{step}/{bucket}/{batch}-{uuid.uuid4().hex[:16]}.arrow"
        place = place_of(path)
        metadata = {**(table.schema.metadata or {}), SORT_KEY: sort_column.encode()}
        # one record batch, so that every column is one piece and the sort column can be viewed
        table = table.replace_schema_metadata(metadata).combine_chunks()
        options = pa.ipc.IpcWriteOptions(unify_dictionaries=True)
        try:
            with self.store.writer(path) as file:
                tally = _Tally(file)
                with pa.ipc.new_file(pa.PythonFile(tally, "w"), table.schema, options=options) as writer:
                    writer.write_table(table)
        except OSError as error:
            with contextlib.suppress(OSError):
                self.store.delete(path)  # on a full disk the half file would be in its own way
            raise CheckpointError(f"{place} could not be written: {error}") from error
        low, high = int(values[0]), int(values[-1])
        run = Run(path, table.num_rows, 0, low, high, low, tally.bytes, tally.crc32)
        if TIME not in metadata:
            return run
        times = sort_values(table, metadata[TIME].decode())
        return dataclasses.replace(run, time_low=int(times.min()), time_high=int(times.max()))

    def open(self, run: Run) -> pa.Table:
        """All rows of a run, mapped; a file that is not what the manifest says is refused."""
        try:
            path = self.store.on_this_machine(run.path)
            status = os.stat(path)
            if status.st_size != run.bytes:
                raise CheckpointError(f"{run.place} is damaged: {status.st_size} bytes, written were {run.bytes}.")
            with pa.memory_map(path) as mapped:
                content = mapped.read_buffer()
        except FileNotFoundError as error:
            raise CheckpointError(f"{run.place} is missing. Restore the checkpoint from a copy.") from error
        seen = (status.st_ino, status.st_mtime_ns, run.bytes, run.crc32)
        if self.checked and _verified.get(path) != seen:
            if zlib.crc32(content) != run.crc32:
                raise CheckpointError(f"{run.place} is damaged: its checksum is not the one it was written with.")
            if len(_verified) >= _VERIFIED_LIMIT:
                _verified.clear()  # names never come back, and a process may live for months
            _verified[path] = seen
        return pa.ipc.open_file(content).read_all()


class _Tally(io.RawIOBase):
    """Counts and checks what passes through it to a file."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.bytes = 0
        self.crc32 = 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self._file.write(content)
        size = memoryview(content).nbytes
        self.bytes += size
        self.crc32 = zlib.crc32(content, self.crc32)
        return size
