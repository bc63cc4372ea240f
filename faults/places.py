"""Cases 18 and 19: a disk that is full, and a database that is away."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from faults import shop
from faults.case import CannotRun, case
from faults.outputs import tables, version
from faults.process import CHECKPOINT, Driver, newest
from faults.room import WITHIN, Room

SMALL = "24m"
AWAY = 4.0
URL = "PENSTOCK_POSTGRES_URL"
GIVES_UP = 90.0
LEFT = 4096  # bytes that are left free: a write begins, and does not end


def small_disk(room: Room, place: Path) -> None:
    """Mount a file system of a few megabytes; it goes away with the case."""
    place.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL},mode=700", "penstock-faults", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotRun(
            f"a small disk needs the right to mount one ({done.stderr.strip()}); run it as root, or as "
            "`unshare -Urm python -m faults --only 18`"
        )
    room.at_the_end(lambda: subprocess.run(["umount", "-l", str(place)], check=False))


def fill(place: Path) -> Path:
    """Take all the room that is left, but for a page."""
    ballast = place / ".ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 65536)
        except OSError:
            pass
        file.truncate(max(file.tell() - LEFT, 0))
    return ballast


@case(18, "disk full in the checkpoint, in the sink", passes="refused; when there is room again equal")
def full_disk(room: Room) -> None:
    """Checkpoint, or outputs, lie on a small tmpfs; before batch 2 it is filled up. The run must fail and say what
    is full; with room again the next run goes on."""
    jobs = {"checkpoint": shop.JOB, "sqlite": in_folder("out.db"), "parquet": in_folder("sold")}
    for part, job in jobs.items():
        folder = room.shop(part, job)
        disk = folder / CHECKPOINT if part == "checkpoint" else folder / "disk"
        small_disk(room, disk)
        room.killed(folder, "kill before_sink 2")
        ballast = fill(disk)
        with Driver(folder) as driver:
            ended = driver.wait(WITHIN)
        room.note("full", part)
        room.failed(ended, str(disk))
        words = ("No space left", "disk is full")
        room.must(any(word in ended.said for word in words), f"the error does not say that it is full: {ended.error}")
        # a batch without rows for the small disk needs no room there, and may be done yet
        room.must(version(folder) <= room.lab.calm.versions, "half of a batch is there")
        ballast.unlink()
        room.goes_on(folder)


def in_folder(output: str) -> str:
    """The shop's job with one of its outputs on the small disk."""
    return re.sub(rf'(sinks\.\w+\("){output}', rf"\1disk/{output}", shop.JOB)


POSTGRES = shop.JOB.replace('sinks.parquet("sold")', 'sinks.postgres("sold")').replace(
    'sinks.sqlite("out.db", "so_far")', 'sinks.postgres("so_far")'
)


@case(19, "the sink away for a while; for good", passes="retried with growing pauses and counted; then fails closed")
def database_away(room: Room) -> None:
    """A real PostgreSQL is stopped before the sinks of batch 2 and started again seconds later; with another it
    stays away, the run must fail, and goes on when the server is back."""
    from penstock.testing.servers.postgres import Postgres

    for name in ("a while", "for good"):
        folder = room.shop(name, POSTGRES)
        with Postgres() as server:
            with Driver(folder, fault="hold before_sink 2", env={URL: server.url}) as driver:
                driver.until((folder / "at-before_sink-2").exists, "batch 2")
                server.stop()
                (folder / "go-before_sink-2").touch()
                away = driver.age
                if name == "a while":
                    driver.until(lambda end=away + AWAY: driver.age > end, f"{AWAY} seconds")  # type: ignore[misc]
                    server.start()
                    ended = driver.wait()
                else:
                    room.failed(driver.wait(GIVES_UP), "'sold'")
                    room.note("gave up after", f"{driver.age - away:.0f} s")
                    room.must(newest(folder / CHECKPOINT) == 1, "the batch is committed")
                    server.start()
                    with Driver(folder, env={URL: server.url}) as again:
                        ended = again.wait()
                    room.note("restart to first commit", f"{ended.first_commit or 0:.1f} s")
            room.must(ended.code == 0, f"with the server back: {ended.error}")
            if name == "a while":
                room.note("retries counted", ended.lines[-1].get("retries"))
                room.must(ended.lines[-1].get("retries"), "no retry was counted")
            same_as_calm(room, server.url, folder)


def same_as_calm(room: Room, url: str, folder: Path) -> None:
    """The tables of the database and those beside it hold what the fault-free run gave."""
    import psycopg

    with psycopg.connect(url) as connection:
        found = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in ("sold", "so_far")}
        ledger = connection.execute("SELECT table_name, batch FROM _penstock_ledger ORDER BY 1").fetchall()
    calm, here = shop.judged(room.lab.calm.tables), shop.judged(tables(folder))
    here |= {"sold": shop.judged(found)["sold"], "out.so_far": [tuple(row) for row in found["so_far"]]}
    room.equals(here, calm)
    room.note("ledger", ledger)
