"""Playing a demo: files move into a folder while the job runs, and then the results are looked at."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from penstock.demo import events, results
from penstock.demo.events import Arrival
from penstock.demo.screen import Screen
from penstock.jobs.page_views import page_views
from penstock.plan.errors import PlanError, RunError
from penstock.run.query import Run, start

NAMES = ("page_views",)
SECONDS = 30.0
# how many minutes may have arrived before the job has read them: what is late does not depend on the machine
LEAD = 4


def play(name: str, root: Path) -> None:
    """Play a demo below ``root``, which is emptied first, and print what came of it."""
    if name not in NAMES:
        raise PlanError(f"there is no demo {name!r}; there is {', '.join(NAMES)}.")
    console = Console()
    shutil.rmtree(root, ignore_errors=True)
    inbox, aside = root / "in", root / "aside"
    inbox.mkdir(parents=True)
    aside.mkdir()
    arrived = events.arrivals()
    minutes = events.by_minute_received(arrived)
    console.print(
        f"A web shop's Friday evening from {events.START:%H:%M} on: {len(arrived):,} page views,\n"
        f"a minute of them every {SECONDS / len(minutes):.1f} seconds. "
        f"From {events.DOWN:%H:%M} to {events.UP:%H:%M} the phone network is down.\n"
        "Spark is starting ...\n",
        highlight=False,
        soft_wrap=True,
    )
    screen = Screen(console, root / "results.db", events.START, events.END)
    run = start(page_views(str(inbox), str(root)), checkpoint=str(root / "checkpoint"), told=screen)
    screen.open()
    try:
        deliver(minutes, aside, inbox, run, screen)
    finally:
        run.stop()
    results.show(console, root, arrived)


def deliver(minutes: Sequence[list[Arrival]], aside: Path, inbox: Path, run: Run, screen: Screen) -> None:
    """Let the minutes arrive one after the other, and wait until the job has read them all."""
    counts = [len(minute) for minute in minutes]
    began = time.monotonic()
    for number, minute in enumerate(minutes):
        due = began + number * SECONDS / len(minutes)
        enough = sum(counts[: max(number - LEAD, 0)])
        while time.monotonic() < due or screen.rows < enough:
            pause(run)
        received = events.START + number * events.MINUTE
        screen.received = f"{received + events.MINUTE:%H:%M}"
        file = aside / f"{received:%H-%M}.json"
        file.write_text("".join(f"{arrival.line}\n" for arrival in minute))
        # written aside, then moved: the file source must never see half a file
        os.replace(file, inbox / file.name)
    while screen.rows < sum(counts):
        pause(run)


def pause(run: Run) -> None:
    """Wait a little; a job that has failed says so here."""
    time.sleep(0.05)
    if not run.status()["running"]:
        run.wait()
        raise RunError("somebody has stopped the demo's job.")
