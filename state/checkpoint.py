"""The checkpoint: versions of the state, each committed by creating one file once.

Batch N reads what manifest N-1 names, writes new runs beside it, and exists from the moment that
``manifest/N.json`` does. Nothing is overwritten, so a crash leaves at most files that no manifest names.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Callable
from typing import Any

from penstock.plan.errors import CheckpointError, FencedError
from penstock.state import epochs
from penstock.state.document import seal, unseal
from penstock.state.lock import RunLock
from penstock.state.manifest import Manifest, name_of
from penstock.state.runs import PATH, RunFiles
from penstock.state.store import ASIDE, Store

IDENTITY = "checkpoint.json"
VERSION = 1


class Checkpoint:
    """A checkpoint directory; ``Checkpoint.open`` makes or finds one."""

    def __init__(self, store: Store, identity: str) -> None:
        self.id = identity
        self.path = store.root
        self.files = RunFiles(store)
        self._store = store
        self._named: dict[int, frozenset[str]] = {}
        self._lock = RunLock(None)

    @classmethod
    def open(cls, path: str | os.PathLike[str], create: bool = True, fsync: bool = False) -> Checkpoint:
        """The checkpoint at a path, made (private to its owner) when there is none and ``create`` is true.

        A directory with files in it that is no checkpoint is refused, and so is one that has lost its
        identity. With ``fsync`` a committed batch survives a loss of power.
        """
        store = Store.at(path, fsync)
        if create and store.size(IDENTITY) is None:
            _make(store)
        try:
            value = unseal(store.read(IDENTITY), f"{store.root}/{IDENTITY}")
        except FileNotFoundError as error:
            raise CheckpointError(f"{store.root} is no checkpoint: it has no {IDENTITY}.") from error
        if value["version"] != VERSION:
            raise CheckpointError(f"{store.root} has version {value['version']}; this Penstock reads {VERSION}.")
        return cls(store, value["id"])

    @classmethod
    def find(cls, path: str | os.PathLike[str]) -> Checkpoint | None:
        """The checkpoint at a path, None where there is none yet and the first run makes it."""
        store = Store.at(path)
        if store.size(IDENTITY) is None:
            _refuse_others(store, store.there)
            return None
        return cls.open(path, create=False)

    def batches(self) -> list[int]:
        """The batches whose manifests are kept, in order."""
        return self._store.numbers("manifest")

    def latest(self) -> Manifest | None:
        """The newest version, or None before the first commit; when it is damaged, no older one instead."""
        batches = self.batches()
        return self.read(batches[-1]) if batches else None

    def read(self, batch: int) -> Manifest:
        """The version after a batch."""
        try:
            content = self._store.read(name_of(batch))
        except FileNotFoundError as error:
            raise CheckpointError(f"{self.path}/{name_of(batch)} is missing; {self._kept()}.") from error
        return Manifest.from_bytes(content, batch)

    def commit(self, manifest: Manifest) -> None:
        """Make a version exist; FencedError when its batch is committed already or a newer run has begun."""
        self.assert_epoch(manifest.epoch)
        try:
            self._store.create(manifest.name, manifest.to_bytes())
        except FileExistsError as error:
            other = self.read(manifest.batch)
            raise FencedError(
                f"checkpoint {self.path}: batch {manifest.batch} is already committed, by run {other.epoch}; "
                f"this is run {manifest.epoch} and it may not write any more."
            ) from error

    def verify(self) -> None:
        """Refuse when a run of the newest version is missing or has another size; reads no run."""
        latest = self.latest()
        for run in latest.runs() if latest else ():
            size = self._store.size(run.path)
            if size != run.bytes:
                fault = "is missing" if size is None else f"is damaged: {size} bytes, written were {run.bytes}"
                raise CheckpointError(f"checkpoint {self.path}: {run.place} {fault}. Restore it from a copy.")

    def take_epoch(self) -> int:
        """Begin a run: its number, which is higher than that of every run before it."""
        return epochs.take_epoch(self._store)

    def newest_epoch(self) -> int:
        """The number of the newest run, 0 before the first."""
        return epochs.newest_epoch(self._store)

    def newest_run(self) -> str:
        """Who the newest run is, as far as it can be read."""
        epoch = self.newest_epoch()
        try:
            who = epochs.run(self._store, epoch)
        except (CheckpointError, FileNotFoundError):
            return f"run {epoch}"
        return f"run {epoch}: process {who['pid']} on {who['host']}, begun {who['started']}"

    def assert_epoch(self, epoch: int) -> None:
        """FencedError when a newer run has begun; it names that run."""
        epochs.assert_epoch(self._store, epoch)

    def lock(self) -> RunLock:
        """Keep other runs out while this one lives; CheckpointInUseError when one lives already.

        On an object store no lock ends with its holder, and so there is none: the newest run takes over, and an
        older one ends with FencedError before it writes again.
        """
        self._lock = RunLock.take(self.path) if self._store.local else RunLock(None)
        return self._lock

    def write_json(self, name: str, value: Any) -> None:
        """Keep a small document in the checkpoint, in place of the one of that name."""
        self._store.replace(_document(name), seal(value))

    def read_json(self, name: str) -> Any:
        """A document that was kept, or None when there is none of that name."""
        try:
            return unseal(self._store.read(_document(name)), f"{self.path}/{name}")
        except FileNotFoundError:
            return None

    def sweep(self, keep: int = 10) -> int:
        """Delete all but the newest ``keep`` versions and the runs that none of those names; how many files.

        Runs of a batch that is not committed yet are left alone: its tasks may be at work.
        """
        if keep < 1:
            raise ValueError(f"sweep(keep={keep}) would delete the newest version")
        batches = self.batches()
        for batch in batches[:-keep]:  # manifests before runs: a version that can be read is always whole
            self._store.delete(name_of(batch))
        epochs.forget_old_epochs(self._store, keep)
        return len(batches[:-keep]) + self._sweep_runs(batches[-keep:], batches[-1] if batches else -1)

    def sweep_orphans(self) -> int:
        """Delete what a run that ended before its commit left behind; call it before the first batch.

        Where no lock keeps other runs out, runs of batches that are not committed stay: one that is not fenced yet
        may commit them. They go with a later sweep.
        """
        files = [name for folder in ("", "manifest", epochs.FOLDER) for name in self._store.names(folder)]
        asides = [name for name in files if os.path.basename(name).startswith(ASIDE)]
        for name in asides:
            self._store.delete(name)
        batches = self.batches()
        newest = batches[-1] if batches else -1
        return len(asides) + self._sweep_runs(batches, None if self._lock.alone else newest)

    def _sweep_runs(self, batches: list[int], newest: int | None) -> int:
        """Delete the runs that these versions do not name, as far as batch ``newest``."""
        for batch in batches:
            if batch not in self._named:
                self._named[batch] = frozenset(run.path for run in self.read(batch).runs())
        self._named = {batch: self._named[batch] for batch in batches}
        named = frozenset().union(*self._named.values())
        swept = 0
        for path in self._store.names("state", recursive=True):
            found = PATH.fullmatch(path)
            if found and path not in named and (newest is None or int(found["batch"]) <= newest):
                self._store.delete(path)
                swept += 1
        return swept

    def _kept(self) -> str:
        batches = self.batches()
        return f"kept are batches {batches[0]} to {batches[-1]}" if batches else "no batch was committed yet"


def _make(store: Store) -> None:
    """Give an empty or new directory an identity."""
    _refuse_others(store, store.make)
    store.keep_private()
    # two runs that begin together agree on the identity of the one that was first
    with contextlib.suppress(FileExistsError):
        store.create(IDENTITY, seal({"version": VERSION, "id": uuid.uuid4().hex}))


def _refuse_others(store: Store, there: Callable[[], list[str]]) -> None:
    """Refuse a place where a checkpoint cannot be made: it has files, and they are none."""
    if store.local and os.path.isfile(store.root):
        raise CheckpointError(f"{store.root} is no checkpoint: it is a file. Give a directory.")
    others = there()
    if others and IDENTITY not in others:
        raise CheckpointError(
            f"{store.root} is no checkpoint: it has no {IDENTITY} but holds {', '.join(others[:3])}. "
            "Give an empty directory, or restore the checkpoint from a copy."
        )


def _document(name: str) -> str:
    if not re.fullmatch(r"\w[\w.-]*\.json", name) or name == IDENTITY:
        raise ValueError(f"{name!r} is no name of a document; give one such as job.json")
    return name
