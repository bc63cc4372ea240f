"""Epochs: the runs of a job have numbers, and only the newest may write."""

from __future__ import annotations

import os
import socket
from datetime import datetime, timezone
from typing import Any

from penstock.plan.errors import FencedError
from penstock.state.document import seal, unseal
from penstock.state.store import Store

FOLDER = "epochs"


def take_epoch(store: Store) -> int:
    """Begin a run: its number, which is higher than that of every run before it."""
    while True:
        epoch = newest_epoch(store) + 1
        who = {
            "epoch": epoch,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }
        try:
            store.create(f"{FOLDER}/{epoch}.json", seal(who))
        except FileExistsError:
            continue  # another run began at the same moment and has this number
        return epoch


def newest_epoch(store: Store) -> int:
    """The number of the newest run, 0 before the first."""
    return max(store.numbers(FOLDER), default=0)


def assert_epoch(store: Store, epoch: int) -> None:
    """FencedError when a newer run has begun; it names that run."""
    newest = newest_epoch(store)
    if newest > epoch:
        who = run(store, newest)
        raise FencedError(
            f"checkpoint {store.root}: run {newest} (process {who['pid']} on {who['host']}, started "
            f"{who['started']}) has taken over; this is run {epoch} and it may not write any more."
        )


def run(store: Store, epoch: int) -> Any:
    """Who a run is: its ``pid``, its ``host`` and when it ``started``."""
    name = f"{FOLDER}/{epoch}.json"
    return unseal(store.read(name), f"{store.root}/{name}")


def forget_old_epochs(store: Store, keep: int) -> None:
    """Delete the records of all but the newest runs: a job that is started every minute leaves many."""
    for epoch in store.numbers(FOLDER)[:-keep]:
        store.delete(f"{FOLDER}/{epoch}.json")
