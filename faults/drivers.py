"""Cases 11 to 14: drivers that are asked to end, that sleep, that meet, and jobs that want the same place."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from faults import shop
from faults.case import case
from faults.outputs import version
from faults.process import CHECKPOINT, Driver, newest
from faults.room import WITHIN, Room

END_WITHIN = 30.0


@case(11, "SIGTERM, Ctrl-C in a batch", passes="ends within 30 s, the batch wholly there or not at all")
def asked_to_end(room: Room) -> None:
    """The batch writer waits in the middle of a batch; SIGTERM goes to the driver, or SIGINT to its whole group as
    from a terminal; then the batch may go on."""
    for number, group, point in ((signal.SIGTERM, False, "before_sink"), (signal.SIGINT, True, "during_sink")):
        name, batch = signal.Signals(number).name, room.random.randrange(1, 5)
        folder = room.shop(name)
        with Driver(folder, once=False, fault=f"hold {point} {batch}") as driver:
            driver.until((folder / f"at-{point}-{batch}").exists, f"{point} of batch {batch}")
            before = driver.age
            driver.signal(number, group)
            (folder / f"go-{point}-{batch}").touch()
            ended = driver.wait(END_WITHIN)
            took = driver.age - before
        room.must(ended.code == 0 and "Traceback" not in ended.said, f"exit code {ended.code}: {ended.said[-300:]}")
        done = newest(folder / CHECKPOINT)
        room.must(done in (batch - 1, batch), f"batch {done} is committed, the signal came in {batch}")
        room.must(version(folder) <= room.lab.calm.versions, "the outputs hold half a batch")
        room.note(name, f"in batch {batch}, ended in {took:.1f} s with exit code 0, committed up to {done}")
        room.goes_on(folder)


@case(
    12,
    "a stopped driver (SIGSTOP) wakes after its successor committed",
    passes="its write is refused by epoch, it stops with FencedError",
    fast=True,
)
def a_sleeper(room: Room) -> None:
    """The driver stops itself before the sinks of a batch, and its Java is stopped too; a second run takes over and
    ends; SIGCONT to the first."""
    batch = room.random.randrange(1, 5)
    folder = room.shop()
    with Driver(folder, fault=f"stop before_sink {batch}") as sleeper:
        sleeper.until(lambda: stopped(sleeper.process.pid), f"SIGSTOP in batch {batch}")
        sleeper.signal(signal.SIGSTOP, group=True)
        room.note("stopped", f"before the sinks of batch {batch}")
        successor = room.goes_on(folder)
        room.note("successor ran", successor.batches)
        with room.untouched(folder):
            sleeper.signal(signal.SIGCONT, group=True)
            ended = sleeper.wait(WITHIN)
    room.failed(ended, "taken over", "run 1", "run 2")
    room.must(batch not in ended.batches, "the sleeper says that it did its batch")
    room.equals_calm(folder)


def stopped(process: int) -> bool:
    """True while a process is stopped."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@case(
    13,
    "two drivers started at once on one checkpoint",
    passes="one goes on, the other fails before it writes",
    fast=True,
)
def two_at_once(room: Room) -> None:
    """Two processes are started in the same moment; the one that comes through waits before its first sink until
    the other has ended."""
    folder = room.shop()
    with Driver(folder, fault="hold before_sink 0") as one, Driver(folder, fault="hold before_sink 0") as other:
        one.until(lambda: not (one.alive and other.alive) or None, "one of the two to fail")
        loser, winner = (one, other) if not one.alive else (other, one)
        winner.until((folder / "at-before_sink-0").exists, "the first batch")
        room.must(not (folder / "sold").exists() or not list((folder / "sold").glob("*.parquet")), "the loser wrote")
        (folder / "go-before_sink-0").touch()
        room.failed(loser.ended(), folder.name)
        ended = winner.wait()
    room.must(ended.code == 0, f"the other failed too: {ended.error}")
    room.note("the winner ran", ended.batches)
    room.equals_calm(folder)


@case(14, "two jobs on one checkpoint, or on one output", passes="refused at start, both jobs named")
def two_jobs(room: Room) -> None:
    """After the shop's run another job is started on its checkpoint, and with a checkpoint of its own on its table
    and on its folder of Parquet files."""
    folder = room.shop()
    room.goes_on(folder)
    other = shop.JOB.replace('Job("shop")', 'Job("market")')
    (folder / "other.py").write_text(other)
    room.refused(folder, "'shop'", "'market'", file="other.py")
    for kept, lost in (
        ('sinks.sqlite("out.db"', 'sinks.sqlite("own.db"'),
        ('sinks.parquet("sold")', 'sinks.parquet("own")'),
    ):
        # the one that is replaced is no longer shared, so that the refusal is of the other
        (folder / "other.py").write_text(other.replace(kept, lost))
        (folder / CHECKPOINT).rename(folder / "aside")
        with Driver(folder, file="other.py") as driver:
            ended = driver.wait(WITHIN)
        room.failed(ended, "'shop'", "'market'", "belongs to")
        _remove(folder / CHECKPOINT)
        (folder / "aside").rename(folder / CHECKPOINT)
    for own in (folder / "own.db", folder / "own"):
        _remove(own)
    room.equals_calm(folder)


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
