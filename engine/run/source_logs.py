"""What file sources noted in Spark's part of a checkpoint: which files have been read, in which batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlparse

from penstock.run.findings import Fault, Repair
from penstock.run.spark_log import SOURCES, SparkLog, TornError, beside

COMPACT = ".compact"
MEANS = "it says which files have been read"


def source_faults(log: SparkLog, offsets: str) -> Iterator[Fault]:
    """What is wrong with the notes of the file sources: when Spark starts it reads all since they were put together.

    They reach at least as far as the newest plan says; what is noted beyond it is listed and noted again.
    """
    for source, end in file_sources(offsets).items():
        there = _numbered(log, source)
        for number in range(_compaction(there), max(end, *there, -1) + 1):
            if (wrong := _wrong(log, there, number, end)) is None:
                continue
            name = there.get(number, f"{SOURCES}/{source}/{number}")
            if number <= end:
                yield Fault(name, wrong, MEANS)
                continue
            later = tuple(file for n in sorted(there) if n >= number for file in (there[n], beside(there[n])))
            moved = "moves it aside, with what was noted after it: no batch was made of them"
            yield Fault(name, wrong, MEANS, Repair(moved, later))
            break


def file_sources(offsets: str) -> dict[int, int]:
    """The file sources in a batch's plan, by number, and how far each has noted its files.

    >>> file_sources('v1\\n{"batchTimestampMs":12}\\n{"logOffset":3}\\n-')
    {0: 3}
    """
    lines = [json.loads(line) if line != "-" else None for line in offsets.split("\n")[2:]]
    return {n: said["logOffset"] for n, said in enumerate(lines) if isinstance(said, dict) and "logOffset" in said}


def files_read(log: SparkLog, source: int) -> set[str]:
    """The paths of all files that a source has taken into a plan."""
    there = _numbered(log, source)
    numbers = [number for number in there if number >= _compaction(there)]
    found = (entry["path"] for number in numbers for entry in _entries(log, there[number], number))
    return {unquote(urlparse(path).path) for path in found}


def newest_read_us(log: SparkLog, source: int) -> int | None:
    """When the newest file of a source's last note was changed, in microseconds."""
    there = _numbered(log, source)
    if not there:
        return None
    newest = max(there)
    return max(int(entry["timestamp"]) * 1000 for entry in _entries(log, there[newest], newest))


def _numbered(log: SparkLog, source: int) -> dict[int, str]:
    """The files of a source's log by number; a compacted one stands for all before it."""
    found: dict[int, str] = {}
    for name in log.store.names(f"{SOURCES}/{source}"):
        number = name.rpartition("/")[2].removesuffix(COMPACT)
        if number.isdecimal() and (name.endswith(COMPACT) or int(number) not in found):
            found[int(number)] = name
    return found


def _compaction(there: dict[int, str]) -> int:
    """The first note that is needed: the newest that holds all before it, else that of the first files."""
    return max((number for number, name in there.items() if name.endswith(COMPACT)), default=0)


def _wrong(log: SparkLog, there: dict[int, str], number: int, end: int) -> str | None:
    """How a note looks that cannot be read; of a gap the first tells of all."""
    if number in there:
        try:
            _entries(log, there[number], number)
        except TornError as torn:
            return str(torn)
        return None
    if number and number - 1 not in there:
        return None
    until = min((n for n in there if n > number), default=end + 1) - 1
    return "is missing" if until == number else f"is missing, and so are those up to {until}"


def _entries(log: SparkLog, name: str, number: int) -> list[dict[str, Any]]:
    """What a note says; Spark makes none without a file, so that without one of its own it has been cut."""
    try:
        entries = [json.loads(line) for line in log.source_lines(name)]
    except ValueError:
        raise TornError("is cut") from None
    if not all(isinstance(entry, dict) and "path" in entry for entry in entries):
        raise TornError("is cut")
    if not any(entry.get("batchId") == number for entry in entries):
        raise TornError("is cut")
    return entries
