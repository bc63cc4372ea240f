"""Mend a checkpoint: files are moved aside or written as they were, and nothing is deleted."""

from __future__ import annotations

import os

from penstock.plan.errors import CheckpointInUseError
from penstock.run.findings import Fault
from penstock.run.wholeness import faults
from penstock.state.checkpoint import Checkpoint
from penstock.state.store import Store

ASIDE = "aside"
NO_RUN_IS_ALIVE = "PENSTOCK_NO_RUN_IS_ALIVE"  # the word of a person, where nobody else can know
ROUNDS = 10  # one repair may show the next fault: a plan that is back names a commit that is torn


def repair(checkpoint: Checkpoint) -> list[str]:
    """Mend all that can be mended safely, and say what was done; CheckpointInUseError while a run lives.

    On an object store nobody can see that, so that a person must say that none does.
    """
    if not checkpoint.files.store.local and os.environ.get(NO_RUN_IS_ALIVE) != "yes":
        raise CheckpointInUseError(
            f"checkpoint {checkpoint.path}: whether a run is alive cannot be seen on an object store, and a repair "
            f"ends it. The newest is {checkpoint.newest_run()}. See that it has ended, say so with "
            f"{NO_RUN_IS_ALIVE}=yes in the environment, and repair again."
        )
    done: list[str] = []
    with checkpoint.lock():
        mendable = _mendable(checkpoint)
        if mendable:
            checkpoint.take_epoch()  # a run that was stopped and wakes up must not go on beside us
        for _ in range(ROUNDS):
            if not mendable:
                break
            done += _mend(checkpoint.files.store, mendable[0])
            mendable = _mendable(checkpoint)
    return done


def _mendable(checkpoint: Checkpoint) -> list[Fault]:
    return [fault for fault in faults(checkpoint) if fault.repair is not None]


def _mend(store: Store, fault: Fault) -> list[str]:
    assert fault.repair is not None
    folder = _new_folder(store)
    said = []
    for name in fault.repair.aside:
        if store.size(name) is not None:
            with store.writer(f"{folder}/{name}") as copy:
                copy.write(store.read(name))
            store.delete(name)
            said.append(f"moved {name} to {folder}/{name}")
    for name, content in fault.repair.restored:
        store.create(name, content.encode())
        said.append(f"wrote {name} as it was")
    return said


def _new_folder(store: Store) -> str:
    """Where a repair puts files: a folder of its own, so that none replaces another."""
    there = {name.split("/")[1] for name in store.names(ASIDE, recursive=True)}
    return f"{ASIDE}/{max((int(n) for n in there if n.isdecimal()), default=0) + 1}"
