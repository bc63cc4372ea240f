"""The files below an address of an object store: created once by a conditional put, replaced whole.

Credentials come from the environment alone, as the provider names them: ``AWS_ACCESS_KEY_ID``, ...
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, BinaryIO

from penstock.plan.errors import CheckpointError
from penstock.plan.schemas import first_line
from penstock.state import copies
from penstock.state.store import Store

SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "abfs": "abfs", "abfss": "abfss"}
RETRIED: Any = {"max_retries": 8, "retry_timeout": timedelta(seconds=40)}
PATIENCE: Any = {"connect_timeout": timedelta(seconds=10), "timeout": timedelta(seconds=30)}
WRITER = "penstockwriter"  # of an object: who made it; Azure takes no hyphen, and proxies drop what has a _
# Azure's container and account as Hadoop writes them: no other address has an @, before which a secret may stand
AT_AZURE = re.compile(
    r"abfss?://[a-z0-9$-]+@[a-z0-9]+\.(dfs|blob)\.(core\.windows\.net|fabric\.microsoft\.com)/[^@?#]*"
)
OTHERS = re.compile(r"[^:/]+://(?=[^/])[^@?#]*")


class StoreError(CheckpointError, OSError):
    """An object store that does not answer, or refuses."""


@lru_cache(maxsize=64)
def connect(root: str) -> Any:
    """The client of a store, one for a process."""
    try:
        from obstore.store import from_url
    except ImportError:
        raise CheckpointError(
            f"{root}: an object store needs the package obstore: pip install 'penstock[s3]'."
        ) from None
    told: Any = {**PATIENCE, "allow_http": os.environ.get("AWS_ALLOW_HTTP", "false").lower() == "true"}
    with refusals(root):
        return from_url(root, client_options=told, retry_config=RETRIED)


@dataclass(frozen=True)
class RemoteStore(Store):
    """An address on an object store; a small value that travels to other processes."""

    @staticmethod
    def at(path: str | os.PathLike[str], fsync: bool = False) -> RemoteStore:
        """The store at an address such as ``s3://bucket/checkpoints/shop``."""
        scheme, _, rest = os.fspath(path).partition("://")
        root = f"{SCHEMES.get(scheme.lower())}://{rest.rstrip('/')}"
        if scheme.lower() not in SCHEMES or not (AT_AZURE.fullmatch(f"{root}/") or OTHERS.fullmatch(root)):
            raise CheckpointError(
                f"{scheme}://...: a checkpoint's address is s3://bucket/path, gs://bucket/path, az://container/path or "
                "abfss://container@account.dfs.core.windows.net/path, and its credentials are in the environment."
            )
        return RemoteStore(root, fsync)

    @property
    def local(self) -> bool:
        return False

    def full(self, name: str) -> str:
        return f"{self.root}/{name}"

    def make(self) -> list[str]:
        """Nothing is to be made; a store on which the second of two creations wins is refused."""
        there = self.there()
        if not there:
            probe = f"probe-{uuid.uuid4().hex}"
            self.create(probe, b"first")
            try:
                self.create(probe, b"second")
            except FileExistsError:
                pass
            else:
                raise CheckpointError(
                    f"{self.root}: this store does not honour If-None-Match: a file can be created twice, and two runs "
                    "could commit the same batch. Put the checkpoint on another store, or on a file system."
                )
            finally:
                self.delete(probe)
        return there

    def there(self) -> list[str]:
        return self.names("")

    def keep_private(self) -> None:
        """Who may read a bucket is the bucket's own setting."""

    def names(self, folder: str, recursive: bool = False) -> list[str]:
        import obstore

        with refusals(self.full(folder)):
            if not recursive:
                found = obstore.list_with_delimiter(connect(self.root), folder or None)["objects"]
                return sorted(one["path"] for one in found)
            pieces = obstore.list(connect(self.root), folder or None, chunk_size=1000)
            return sorted(one["path"] for piece in pieces for one in piece)

    def size(self, name: str) -> int | None:
        import obstore

        try:
            with refusals(self.full(name)):
                return obstore.head(connect(self.root), name)["size"]
        except FileNotFoundError:
            return None

    def read(self, name: str) -> bytes:
        import obstore

        with refusals(self.full(name)):
            return bytes(obstore.get(connect(self.root), name).bytes())

    @contextlib.contextmanager
    def writer(self, name: str) -> Iterator[BinaryIO]:
        """Write a new file here first: it is sent whole when it is done, and the copy is read by the next batch."""
        import obstore

        with copies.making(self.root, name) as file:
            yield file
            file.flush()
            with refusals(self.full(name)), open(file.name, "rb") as written:
                obstore.put(connect(self.root), name, written)

    def create(self, name: str, content: bytes) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        mine = uuid.uuid4().hex
        try:
            with refusals(self.full(name)):
                obstore.put(connect(self.root), name, content, mode="create", attributes={WRITER: mine})
        except AlreadyExistsError:
            with refusals(self.full(name)):
                made_by = obstore.get(connect(self.root), name).attributes.get(WRITER)
            # an answer that was lost on its way is asked for again, and finds its own object
            if made_by != mine:
                raise FileExistsError(self.full(name)) from None

    def replace(self, name: str, content: bytes) -> None:
        import obstore

        with refusals(self.full(name)):
            obstore.put(connect(self.root), name, content)

    def delete(self, name: str) -> None:
        import obstore

        copies.drop(self.root, name)
        with contextlib.suppress(FileNotFoundError), refusals(self.full(name)):
            obstore.delete(connect(self.root), name)

    def on_this_machine(self, name: str) -> str:
        import obstore

        if (copy := copies.find(self.root, name)) is not None:
            return copy
        with copies.making(self.root, name) as file, refusals(self.full(name)):
            for piece in obstore.get(connect(self.root), name).stream(min_chunk_size=1 << 22):
                file.write(piece)
        return copies.path_of(self.root, name)


@contextlib.contextmanager
def refusals(place: str) -> Iterator[None]:
    """What a store says in its own words, as an error that names the place."""
    from obstore.exceptions import AlreadyExistsError, BaseError

    try:
        yield
    except AlreadyExistsError:
        raise
    except BaseError as error:
        raise StoreError(f"{place}: the object store does not do it: {first_line(error)}.") from None
