"""The memory of a process and of those that it started, looked at while they run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

EVERY_SECONDS = 0.05
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Peaks:
    """The most resident kilobytes: of the process, of its Python workers together, of the largest, of its Java.

    What workers share with each other is counted for each.
    """

    driver: int = 0
    workers: int = 0
    worker: int = 0
    java: int = 0

    @property
    def kilobytes(self) -> tuple[int, ...]:
        """The figures in their order."""
        return astuple(self)

    @staticmethod
    def over(seen: Sequence[Peaks]) -> Peaks:
        """The greatest of each.

        >>> Peaks.over([Peaks(1, 2), Peaks(2, 1)])
        Peaks(driver=2, workers=2, worker=0, java=0)
        """
        return Peaks(*map(max, zip(*(peaks.kilobytes for peaks in seen), strict=True)))


def watched(root: int, running: Callable[[], bool]) -> Peaks:
    """Look until it ends."""
    most = Peaks()
    while running():
        most = Peaks.over([most, _now(root)])
        time.sleep(EVERY_SECONDS)
    return most


def _now(root: int) -> Peaks:
    driver, java, workers = 0, 0, [0]
    for pid in _family(root):
        with suppress(OSError):  # it ended while we looked
            resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE // 1000
            if pid == root:
                driver = resident
                continue
            program = Path(f"/proc/{pid}/exe").readlink().name
            if program == "java":
                # Java forks to start a command: for a moment the same memory is there twice
                java = max(java, resident)
            elif program.startswith("python"):
                workers.append(resident)
    return Peaks(driver, sum(workers), max(workers), java)


def _family(root: int) -> Iterator[int]:
    """The process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # the name, in brackets, may hold anything: what counts comes after it
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    yield from found
