"""The files below one root: read anywhere, created once, replaced whole.

Every write of the checkpoint goes through this module, so the tests can stop it between any two of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow.fs as pafs

from penstock.plan.errors import CheckpointError

ASIDE = ".aside-"


@lru_cache(maxsize=64)
def connect(root: str) -> tuple[Any, str]:
    """The file system of a root and the root's path on it."""
    if "://" not in root:
        return pafs.LocalFileSystem(), root
    filesystem, path = pafs.FileSystem.from_uri(root)
    return filesystem, path


@dataclass(frozen=True)
class Store:
    """A root directory or address; a small value that travels to other processes.

    With ``fsync`` a file is on the disk before its name counts: a loss of power takes nothing back.
    """

    root: str
    fsync: bool = False

    @classmethod
    def at(cls, path: str | os.PathLike[str], fsync: bool = False) -> Store:
        """The store at a path; a relative one is made absolute, since workers stand elsewhere."""
        root = os.fspath(path)
        if root.startswith("file://"):
            root = connect(root)[1]
        return cls(root.rstrip("/") if "://" in root else os.path.abspath(root), fsync)

    @property
    def local(self) -> bool:
        """True on a file system of this machine, where a file can be created once and mapped in place."""
        return isinstance(connect(self.root)[0], pafs.LocalFileSystem)

    def must_be_local(self) -> None:
        """Refuse a store on which it is not known how to create a file only once."""
        if not self.local:
            raise CheckpointError(
                f"{self.root}: creating a file only once is not supported on this store yet, and without "
                "it two runs could commit the same batch. Put the checkpoint on a file system."
            )

    def full(self, name: str) -> str:
        """The path of a file on its file system."""
        return f"{connect(self.root)[1]}/{name}"

    def names(self, folder: str, recursive: bool = False) -> list[str]:
        """The files in a folder, relative to the root and in order; none when there is no such folder."""
        base = self.full(folder).rstrip("/")
        selector = pafs.FileSelector(base, recursive=recursive, allow_not_found=True)
        start = len(self.full(""))
        found = connect(self.root)[0].get_file_info(selector)
        return sorted(info.path[start:] for info in found if info.type == pafs.FileType.File)

    def numbers(self, folder: str) -> list[int]:
        """The numbers of the files ``<number>.json`` in a folder, in order."""
        stems = (os.path.basename(name).removesuffix(".json") for name in self.names(folder))
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def size(self, name: str) -> int | None:
        """The bytes of a file, or None when there is none of that name."""
        return cast("int | None", connect(self.root)[0].get_file_info(self.full(name)).size)

    def read(self, name: str) -> bytes:
        """The whole content; FileNotFoundError when there is no such file."""
        with connect(self.root)[0].open_input_stream(self.full(name)) as stream:
            return cast("bytes", stream.read())

    @contextlib.contextmanager
    def writer(self, name: str) -> Iterator[BinaryIO]:
        """Write a new file under its final name, for files that nobody reads before a manifest names them."""
        if not self.local:
            filesystem = connect(self.root)[0]
            filesystem.create_dir(os.path.dirname(self.full(name)), recursive=True)
            with filesystem.open_output_stream(self.full(name)) as stream:
                yield stream
            return
        with self._new(self.full(name)) as file:
            yield file

    def create(self, name: str, content: bytes) -> None:
        """Make a file whole and once; FileExistsError when there is one already."""
        self.must_be_local()
        with self._aside(name, content) as aside:
            os.link(aside, self.full(name))  # unlike a rename, a link never replaces: the first one wins
        self._settle(name)

    def replace(self, name: str, content: bytes) -> None:
        """Make a file whole, in place of the one that may be there."""
        self.must_be_local()
        with self._aside(name, content) as aside:
            os.replace(aside, self.full(name))
        self._settle(name)

    def delete(self, name: str) -> None:
        """Remove a file; one that is gone already is no fault, two sweeps may meet."""
        with contextlib.suppress(FileNotFoundError):
            if self.local:
                os.unlink(self.full(name))
            else:
                connect(self.root)[0].delete_file(self.full(name))

    def on_this_machine(self, name: str) -> str:
        """A local path of a file that never changes: itself, or the copy that is fetched once."""
        if self.local:
            return self.full(name)
        copy = _cache() / hashlib.sha256(self.root.encode()).hexdigest()[:16] / name
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            aside = copy.with_name(f"{ASIDE}{uuid.uuid4().hex}")
            with connect(self.root)[0].open_input_stream(self.full(name)) as remote, aside.open("xb") as here:
                while block := remote.read(1 << 22):
                    here.write(block)
            aside.replace(copy)
        return str(copy)

    @contextlib.contextmanager
    def _new(self, path: str) -> Iterator[BinaryIO]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            descriptor = os.open(path, flags, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            descriptor = os.open(path, flags, 0o600)
        try:
            yield cast("BinaryIO", _Descriptor(descriptor))
            if self.fsync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _aside(self, name: str, content: bytes) -> Iterator[str]:
        """A complete file under a passing name in the folder of ``name``; it is gone afterwards."""
        aside = os.path.join(os.path.dirname(self.full(name)), f"{ASIDE}{uuid.uuid4().hex}")
        try:
            with self._new(aside) as file:
                file.write(content)
            yield aside
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)

    def _settle(self, name: str) -> None:
        if self.fsync:  # the name lives in the folder, which has a cache of its own
            folder = os.open(os.path.dirname(self.full(name)), os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


class _Descriptor(io.RawIOBase):
    """Unbuffered and complete writes to an open descriptor, which its maker closes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        rest = memoryview(content)
        while rest.nbytes:  # the system takes at most 2 GB at a time
            rest = rest[os.write(self._descriptor, rest) :]
        return memoryview(content).nbytes


def _cache() -> Path:
    """This user's own folder for copies of remote runs."""
    folder = Path(tempfile.gettempdir()) / f"penstock-runs-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():  # anybody may make names in the temporary folder
        raise CheckpointError(f"{folder} belongs to another user; remove it, or set TMPDIR to a folder of your own.")
    return folder
