"""Mend a checkpoint: files are moved aside or written as they were, and nothing is deleted."""

from __future__ import annotations

from penstock.run.findings import Fault
from penstock.run.wholeness import faults
from penstock.state.checkpoint import Checkpoint
from penstock.state.store import Store

ASIDE = "aside"
ROUNDS = 10  # one repair may show the next fault: a plan that is back names a commit that is torn


def repair(checkpoint: Checkpoint) -> list[str]:
    """Mend all that can be mended safely, and say what was done; CheckpointInUseError while a run lives."""
    done: list[str] = []
    with checkpoint.lock():
        checkpoint.take_epoch()  # a run that was stopped and wakes up must not go on beside us
        for _ in range(ROUNDS):
            mendable = [fault for fault in faults(checkpoint) if fault.repair is not None]
            if not mendable:
                break
            done += _mend(checkpoint.files.store, mendable[0])
    return done


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
