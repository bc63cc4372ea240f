"""Runs ``penstock`` in this process and does at a named moment of a batch what a case asks for.

It is copied beside a job's file, so that a case can be looked at, and done again, by hand:

    FAULT="kill after_sink 3" python drive.py run job.py --once --checkpoint checkpoint

FAULT is a deed, a point, a batch (or ``*``), and, for a point that is passed several times, which time. ``kill`` is
SIGKILL to the driver and its Java, ``stop`` is SIGSTOP to the driver, ``hold`` waits until a file appears. CLUSTER=1
has every batch run on the cluster's path, however small; CLOCK="2:3600 4:-3600" sets the wall clock forward by an
hour before batch 2 and back before batch 4.
"""

from __future__ import annotations

import functools
import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from penstock.cli import main
from penstock.run import query
from penstock.run.batch import Engine

TIMES: Counter[tuple[str, int]] = Counter()
PATIENCE = 120.0


def fault(point: str, batch: int) -> None:
    """Do what is asked for here, if anything."""
    TIMES[point, batch] += 1
    for asked in os.environ.get("FAULT", "").split(","):
        words = asked.split()
        if words[1:3] not in ([point, str(batch)], [point, "*"]):
            continue
        if len(words) > 3 and int(words[3]) != TIMES[point, batch]:
            continue
        if words[0] == "kill":
            os.killpg(os.getpgid(0), signal.SIGKILL)
        elif words[0] == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif words[0] == "hold":
            hold(f"{point}-{batch}")


def hold(name: str) -> None:
    """Say that the moment is there, and wait to be let go."""
    Path(f"at-{name}").touch()
    until = time.monotonic() + PATIENCE
    while not Path(f"go-{name}").exists():
        if time.monotonic() > until:
            raise TimeoutError(f"nobody let go of {name}")
        time.sleep(0.005)


def moved_clock() -> None:
    """Let the wall clock jump: what the log says of a batch's time, plus the jumps up to it."""
    jumps = [tuple(map(int, jump.split(":"))) for jump in os.environ["CLOCK"].split()]
    process = Engine.process

    def jumped(engine: Engine, batch: int, given: Any, wall_us: int, **options: Any) -> Any:
        off = sum(seconds for at, seconds in jumps if at <= batch)
        return process(engine, batch, given, wall_us + 1_000_000 * off, **options)

    Engine.process = jumped  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    query.start = functools.partial(query.start, fault=fault)
    if os.environ.get("CLUSTER"):
        query.SMALL_BYTES = query.SMALL_ROWS = -1
    if os.environ.get("CLOCK"):
        moved_clock()
    main()
