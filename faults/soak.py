"""Case 10: fifty kills at seeded random moments over the jobs of this repository."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from faults.case import CaseFailed, case
from faults.outputs import Tables, tables
from faults.process import CHECKPOINT, Driver, newest, numbers
from faults.repository import END, JOBS, RepositoryJob
from faults.room import Room
from penstock import jobs

KILLS = 50
SLICES = 5
PLACE = Path(jobs.__file__).resolve().parent


@dataclass
class Feed:
    """A job that runs for as long as it is fed: a slice of input at a time, each when the last is committed."""

    job: RepositoryJob
    folder: Path
    slices: list[dict[str, list[str]]]
    seconds: list[float] = field(default_factory=list)

    def start(self) -> Driver:
        """Start the job, as people do, with no end."""
        env = {variable: f"in/{name}" for name, variable in self.job.inputs.items()}
        return Driver(self.folder, file=f"{self.job.name}.py", once=False, env={**env, self.job.out: "out"})

    def prepare(self) -> None:
        """The job's own file and empty folders."""
        for name in self.job.inputs:
            (self.folder / "in" / name).mkdir(parents=True)
        shutil.copy(PLACE / f"{self.job.name}.py", self.folder)

    def put(self, number: int) -> None:
        """Let a slice appear."""
        for name, lines in self.slices[number].items():
            aside = self.folder / f".{name}"
            aside.write_text("".join(f"{line}\n" for line in lines))
            aside.rename(self.folder / "in" / name / f"{number:03}.json")

    def taken(self, number: int) -> bool:
        """True when all rows up to a slice are in a committed batch."""
        batch = newest(self.folder / CHECKPOINT)
        if batch < 0:
            return False
        try:
            text = (self.folder / CHECKPOINT / "manifest" / f"{batch}.json").read_text()
        except FileNotFoundError:
            return False  # swept in this moment
        came = sum(json.loads(text)["document"]["body"]["counters"]["rows"].values())
        return bool(came >= sum(len(lines) for here in self.slices[: number + 1] for lines in here.values()))

    def outputs(self) -> Tables:
        """What the job gave, without what is only there to close windows."""
        found = tables(self.folder / "out")
        return {name: [row for row in rows if END not in repr(row)] for name, rows in found.items()}


def calm(feed: Feed) -> None:
    """Feed the job without a fault, and note how long each slice takes."""
    feed.prepare()
    with feed.start() as driver:
        for number in range(len(feed.slices)):
            driver.until((feed.folder / CHECKPOINT / "spark" / "metadata").exists, "a running query")
            feed.put(number)
            before = driver.age
            driver.until(lambda number=number: feed.taken(number), f"slice {number} of {feed.job.name}")  # type: ignore[misc]
            feed.seconds.append(driver.age - before)
        end(driver)


def end(driver: Driver) -> None:
    """Stop a job as an operator does."""
    driver.until(lambda: driver.begun, "its epoch")
    driver.signal(signal.SIGTERM)
    ended = driver.wait(60)
    if ended.code:
        raise CaseFailed(f"the run did not end well, exit code {ended.code}: {ended.error}")


def stormy(feed: Feed, room: Room, kills: int, seconds: list[float], moments: Counter[str]) -> list[float]:
    """Feed the job and kill it at random moments; how long each restart took to its first commit."""
    feed.prepare()
    planned = Counter(room.random.randrange(len(feed.slices)) for _ in range(kills))
    restarts = []
    driver = feed.start()
    try:
        for number in range(len(feed.slices)):
            feed.put(number)
            for _ in range(planned[number]):
                # some kills come while Spark starts, most while the batch is at work
                if room.random.random() < 0.8:
                    driver.until((feed.folder / CHECKPOINT / "spark" / "metadata").exists, "a running query")
                    driver.until(lambda driver=driver, n=number: at_work(driver) or feed.taken(n), "work")  # type: ignore[misc]
                moment = driver.age + 1.2 * max(seconds[number], 0.5) * room.random.random()
                driver.until(lambda driver=driver, moment=moment: driver.age >= moment, "the moment")  # type: ignore[misc]
                driver.kill(group=room.random.random() < 0.5)
                moments[told(feed.folder / CHECKPOINT)] += 1
                driver = feed.start()
            driver.until(lambda number=number: feed.taken(number), f"slice {number} of {feed.job.name}")  # type: ignore[misc]
            if planned[number] and driver.first_commit is not None:
                restarts.append(driver.first_commit)
        end(driver)
    finally:
        driver.kill()
    return restarts


def at_work(driver: Driver) -> bool:
    """True when it has done a batch, or one has been planned and not committed."""
    return bool(driver.lines()) or max(numbers(driver.checkpoint / "spark" / "offsets"), default=-1) > newest(
        driver.checkpoint
    )


def told(checkpoint: Path) -> str:
    """In which part of a batch a run was killed, as its checkpoint shows it."""
    planned = max(numbers(checkpoint / "spark" / "offsets"), default=-1)
    done, committed = newest(checkpoint), max(numbers(checkpoint / "spark" / "commits"), default=-1)
    if planned > done:
        written = list(checkpoint.glob(f"state/*/*/{planned}-*"))
        return "planned, state written" if written else "planned, nothing written"
    return "ours committed, Spark's not" if done > committed else "between batches or starting"


@case(
    10,
    "fifty kills at seeded random moments over the jobs of this repository",
    passes="equal, no repair by hand",
)
def fifty_kills(room: Room) -> None:
    """Each job of jobs/ runs without an end and is fed slice by slice; at seeded random moments it gets SIGKILL, the
    driver alone or with its Java, and is started again at once. Its outputs are held against a run without kills."""
    chosen = room.random.sample(JOBS, 2) if room.lab.fast else JOBS
    kills = 2 * len(chosen) if room.lab.fast else KILLS
    moments: Counter[str] = Counter()
    restarts: list[float] = []
    for at, job in enumerate(chosen):
        share = kills // len(chosen) + (at < kills % len(chosen))
        slices = job.slices(room.random, SLICES)
        quiet = Feed(job, room.folder / f"{job.name}-calm", slices)
        calm(quiet)
        storm = Feed(job, room.folder / f"{job.name}-killed", slices)
        restarts += stormy(storm, room, share, quiet.seconds, moments)
        found = storm.outputs()
        room.must(sum(map(len, found.values())), f"{job.name} gave nothing: there is nothing to compare")
        room.equals(found, quiet.outputs(), f"run of {job.name} without kills")
        room.note(job.name, f"{share} kills, {sum(map(len, found.values()))} rows in {len(found)} outputs")
    room.note("kills", f"{moments.total()}: " + ", ".join(f"{n} {name}" for name, n in moments.most_common()))
    if restarts:
        told_of = f"{min(restarts):.1f} to {max(restarts):.1f} s over {len(restarts)} restarts"
        room.note("restart to first commit", told_of)
