"""The files below one root: read anywhere, created once, replaced whole.

Every write of the checkpoint goes through this module, so the tests can stop it between any two of them.
"""

from __future__ import annotations

import contextlib
import io
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow.fs as pafs

from penstock.plan.errors import CheckpointError

ASIDE = ".aside-"


@dataclass(frozen=True)
class Store:
    """A root directory; a small value that travels to other processes.

    With ``fsync`` a file is on the disk before its name counts: a loss of power takes nothing back.
    """

    root: str
    fsync: bool = False

    @staticmethod
    def at(path: str | os.PathLike[str], fsync: bool = False) -> Store:
        """The store at a path or address; a relative path is made absolute, since workers stand elsewhere."""
        root = os.fspath(path)
        if root.startswith("file://"):
            root = url2pathname(urlsplit(root).path)
        if "://" in root:
            from penstock.state.remote import RemoteStore

            return RemoteStore.at(root, fsync)
        return Store(os.path.abspath(root), fsync)

    @property
    def local(self) -> bool:
        """True on a file system of this machine, where a lock ends with its holder."""
        return True

    def full(self, name: str) -> str:
        """The path of a file on its file system."""
        return f"{self.root}/{name}"

    def make(self) -> list[str]:
        """Make the root, private to its owner, where there is none; what is in it."""
        os.makedirs(self.root, mode=0o700, exist_ok=True)
        return self.there()

    def there(self) -> list[str]:
        """What is in the root, in order, but for what is on its way; nothing where there is no root."""
        try:
            return sorted(name for name in os.listdir(self.root) if not name.startswith(ASIDE))
        except FileNotFoundError:
            return []

    def keep_private(self) -> None:
        """Close the root to all but its owner."""
        os.chmod(self.root, 0o700)

    def names(self, folder: str, recursive: bool = False) -> list[str]:
        """The files in a folder, relative to the root and in order; none when there is no such folder."""
        base = self.full(folder).rstrip("/")
        selector = pafs.FileSelector(base, recursive=recursive, allow_not_found=True)
        start = len(self.full(""))
        found = pafs.LocalFileSystem().get_file_info(selector)
        return sorted(info.path[start:] for info in found if info.type == pafs.FileType.File)

    def numbers(self, folder: str) -> list[int]:
        """The numbers of the files ``<number>.json`` in a folder, in order."""
        stems = (os.path.basename(name).removesuffix(".json") for name in self.names(folder))
        return sorted(int(stem) for stem in stems if stem.isdecimal())

    def size(self, name: str) -> int | None:
        """The bytes of a file, or None when there is none of that name."""
        return cast("int | None", pafs.LocalFileSystem().get_file_info(self.full(name)).size)

    def read(self, name: str) -> bytes:
        """The whole content; FileNotFoundError when there is no such file."""
        with open(self.full(name), "rb") as file:
            return file.read()

    @contextlib.contextmanager
    def writer(self, name: str) -> Iterator[BinaryIO]:
        """Write a new file under its final name, for files that nobody reads before a manifest names them."""
        with self._new(self.full(name)) as file:
            yield file

    def create(self, name: str, content: bytes) -> None:
        """Make a file whole and once; FileExistsError when there is one already."""
        with self._aside(name, content) as aside:
            os.link(aside, self.full(name))  # unlike a rename, a link never replaces: the first one wins
        self._settle(name)

    def replace(self, name: str, content: bytes) -> None:
        """Make a file whole, in place of the one that may be there."""
        with self._aside(name, content) as aside:
            os.replace(aside, self.full(name))
        self._settle(name)

    def delete(self, name: str) -> None:
        """Remove a file; one that is gone already is no fault, two sweeps may meet."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.full(name))

    def on_this_machine(self, name: str) -> str:
        """A local path of a file that never changes: itself, or the copy that is fetched once."""
        return self.full(name)

    @contextlib.contextmanager
    def _new(self, path: str) -> Iterator[BinaryIO]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            descriptor = os.open(path, flags, 0o600)
        except FileNotFoundError:
            self._make_folder(os.path.dirname(path))
            descriptor = os.open(path, flags, 0o600)
        try:
            yield cast("BinaryIO", _Descriptor(descriptor))
            if self.fsync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _make_folder(self, path: str) -> None:
        """Make a folder below the root, and those that lead to it, private to its owner."""
        if not os.path.isdir(path):
            self._make_folder(os.path.dirname(path))
            with contextlib.suppress(FileExistsError):  # another task was first
                os.mkdir(path, 0o700)

    @contextlib.contextmanager
    def _aside(self, name: str, content: bytes) -> Iterator[str]:
        """A complete file under a passing name in the folder of ``name``; it is gone afterwards."""
        aside = os.path.join(os.path.dirname(self.full(name)), f"{ASIDE}{uuid.uuid4().hex}")
        try:
            with self._new(aside) as file:
                file.write(content)
            yield aside
        except FileExistsError:
            raise
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {self.root}: cannot write {name}: {error.strerror or error}. "
                "Once that is mended, start the job again: it goes on from the newest batch."
            ) from error
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
