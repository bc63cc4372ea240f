"""Where a case works: its folder, its random numbers, its evidence, and the fault-free run that it is held against."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random

from faults import shop
from faults.case import CaseFailed
from faults.outputs import Tables, bytes_of, difference, digest, ledger, tables, version
from faults.process import CHECKPOINT, Driver, Ended, newest

WITHIN = 60.0  # what fails closed does so within a minute


@dataclass(frozen=True)
class Calm:
    """The run without a fault: its outputs, every version that a reader may see, and how long it took."""

    files: list[list[str]]
    tables: Tables
    versions: frozenset[tuple[str, str]]
    ended: Ended


class Lab:
    """What the cases of one harness share: the seed, the folder, and the calm run."""

    def __init__(self, seed: int, folder: Path, *, fast: bool = False) -> None:
        self.seed = seed
        self.folder = folder
        self.fast = fast

    def room(self, number: int, said: Callable[[str], None] = lambda _: None) -> Room:
        """A room for the case of that number; ``said`` hears of its evidence as it comes."""
        return Room(self, number, Random(f"{self.seed}/{number}"), self.folder / f"case-{number}", said)

    @cached_property
    def calm(self) -> Calm:
        """The shop's job run without a fault, and held against the oracle."""
        rows = shop.orders(Random(f"{self.seed}/calm"))
        files = shop.with_a_broken_line(shop.lines_of(rows))
        folder = shop.prepare(self.folder / "calm", files)
        seen = set(version(folder))
        with Driver(folder, fault="hold after_sink *") as driver:
            for batch in range(len(files)):
                driver.until((folder / f"at-after_sink-{batch}").exists, f"batch {batch}")
                seen |= version(folder)
                (folder / f"go-after_sink-{batch}").touch()
            ended = driver.wait()
        found = tables(folder)
        differs = difference(shop.judged(found), shop.expected(rows, dead=1))
        if ended.code or differs != "empty":
            raise CaseFailed(f"the run without a fault is wrong (exit {ended.code}): {differs} {ended.error}")
        # a database is there, and its tables empty, before the first batch
        seen |= {("out.db", digest([]))}
        return Calm(files, found, frozenset(seen), ended)


@dataclass
class Room:
    """One case's place."""

    lab: Lab
    number: int
    random: Random
    folder: Path
    said: Callable[[str], None]
    evidence: list[tuple[str, str]] = field(default_factory=list)
    _closing: list[Callable[[], object]] = field(default_factory=list)

    def note(self, name: str, value: object) -> None:
        """Keep a piece of evidence."""
        self.evidence.append((name, str(value)))
        self.said(f"{name}: {value}")

    def must(self, truth: object, failure: str) -> None:
        """Fail the case unless it is true."""
        if not truth:
            raise CaseFailed(failure)

    def close(self) -> None:
        """Undo what was asked to be undone, last first, and clear away what passed."""
        while self._closing:
            self._closing.pop()()

    def at_the_end(self, act: Callable[[], object]) -> None:
        """Do this when the case is over, however it ends."""
        self._closing.append(act)

    def shop(self, name: str = "shop", job: str = shop.JOB) -> Path:
        """A folder with the shop's job and the calm run's input."""
        return shop.prepare(self.folder / name, self.lab.calm.files, job)

    def goes_on(self, folder: Path, *, note: str = "restart to first commit") -> Ended:
        """Start the job again, with no fault: it must end well and give what the calm run gave."""
        with Driver(folder) as driver:
            ended = driver.wait()
        self.must(ended.code == 0, f"the restarted run failed with exit code {ended.code}: {ended.error}")
        self.equals_calm(folder)
        if ended.first_commit is not None:
            self.note(note, f"{ended.first_commit:.1f} s")
        return ended

    def equals_calm(self, folder: Path) -> None:
        """The outputs are those of the calm run, and the ledgers stand at its last batch."""
        calm = self.lab.calm
        self.equals(tables(folder), calm.tables)
        marks = {batch for name, (batch, _) in ledger(folder).items() if name.startswith("out.")}
        self.must(marks == {len(calm.files) - 1}, f"the ledgers stand at {marks}, not at {len(calm.files) - 1}")
        self.note("ledger", f"every table once, at batch {len(calm.files) - 1}")

    def equals(self, found: Tables, wanted: Tables, against: str = "fault-free run") -> None:
        """Rows are the same whatever their order."""
        differs = difference(found, wanted)
        self.must(differs == "empty", f"the output differs from the {against}: {differs}")
        self.note(f"difference to the {against}", "empty")
        self.note("hashes", " ".join(f"{name} {digest(rows)}" for name, rows in found.items()))

    @contextmanager
    def untouched(self, folder: Path) -> Iterator[None]:
        """What happens here leaves checkpoint and outputs as they are, byte for byte."""
        before = self._bytes(folder)
        yield
        after = self._bytes(folder)
        changed = [name for name in before if before[name] != after.get(name)]
        self.must(not changed, f"a run that was refused has changed {', '.join(changed)}")
        self.note("bytes untouched", " ".join(f"{name} {mark}" for name, mark in after.items()))

    def _bytes(self, folder: Path) -> dict[str, str]:
        places = [folder / CHECKPOINT, *folder.rglob("*.db"), *(h.parent for h in folder.rglob("_penstock"))]
        return {place.name: bytes_of(place) for place in places}

    def refused(self, folder: Path, *words: str, file: str = "job.py") -> Ended:
        """Start the job: it must end within a minute, not well, saying these words, with nothing changed."""
        with self.untouched(folder), Driver(folder, file=file) as driver:
            ended = driver.wait(WITHIN)
        return self.failed(ended, *words)

    def failed(self, ended: Ended, *words: str) -> Ended:
        """A run that ended must have failed, with an error of ours that says these words."""
        self.must(ended.code != 0, "the run did not fail")
        self.note("exit code", ended.code)
        self.note("error", ended.error)
        missing = [word for word in words if word not in ended.said]
        self.must(not missing, f"the error does not say {missing}: {ended.error}")
        # Spark's own words with a stack of Java are no answer to a person
        self.must("\tat org.apache" not in ended.said, f"the error is a Java trace: {ended.said[:300]}")
        return ended

    def killed(self, folder: Path, fault: str) -> Ended:
        """Run the job until it kills itself at a moment."""
        with Driver(folder, fault=fault) as driver:
            ended = driver.wait()
        self.must(ended.code == -9, f"the run was not killed at {fault!r}: exit code {ended.code} {ended.error}")
        self.note("killed", f"{fault.removeprefix('kill ')}, committed up to batch {newest(folder / CHECKPOINT)}")
        return ended

    def copy(self, folder: Path, name: str) -> Path:
        """A copy to go back to; files keep their times."""
        aside = self.folder / f"copy of {name}"
        shutil.rmtree(aside, ignore_errors=True)
        return Path(shutil.copytree(folder, aside, symlinks=True))

    def put_back(self, copy: Path, folder: Path) -> None:
        """Bring a copy back to the same path: Spark's log knows its files by their whole names."""
        shutil.rmtree(folder)
        shutil.copytree(copy, folder, symlinks=True)
