"""What file sources noted in Spark's part of a checkpoint: which files have been read, in which batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import unquote, urlparse

from penstock.run.findings import Fault, Repair
from penstock.run.spark_log import SOURCES, SparkLog, TornError, beside

COMPACT = ".compact"


def source_faults(log: SparkLog, offsets: str) -> Iterator[Fault]:
    """What is wrong with the logs of the file sources, which reach as far as the newest plan says."""
    for source, end in file_sources(offsets).items():
        there = _numbered(log, source)
        if end >= 0 and end not in there:
            yield Fault(f"{SOURCES}/{source}/{end}", "is missing", "it says which files have been read")
        for number in _since_compaction(there):
            try:
                _entries(log, there[number])
            except TornError as torn:
                # what no plan names yet is listed and noted again
                moved = Repair("moves it aside: no batch was made of it", (there[number], beside(there[number])))
                yield Fault(
                    there[number], str(torn), "it says which files have been read", moved if number > end else None
                )


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
    found = (entry["path"] for number in _since_compaction(there) for entry in _entries(log, there[number]))
    return {unquote(urlparse(path).path) for path in found}


def newest_read_us(log: SparkLog, source: int) -> int | None:
    """When the newest file of a source's last note was changed, in microseconds."""
    there = _numbered(log, source)
    if not there:
        return None
    return max((int(e["timestamp"]) * 1000 for e in _entries(log, there[max(there)])), default=None)


def _numbered(log: SparkLog, source: int) -> dict[int, str]:
    """The files of a source's log by number; a compacted one stands for all before it."""
    found: dict[int, str] = {}
    for name in log.store.names(f"{SOURCES}/{source}"):
        number = name.rpartition("/")[2].removesuffix(COMPACT)
        if number.isdecimal() and (name.endswith(COMPACT) or int(number) not in found):
            found[int(number)] = name
    return found


def _since_compaction(there: dict[int, str]) -> list[int]:
    compacted = max((number for number, name in there.items() if name.endswith(COMPACT)), default=-1)
    return sorted(number for number in there if number >= compacted)


def _entries(log: SparkLog, name: str) -> list[dict[str, str]]:
    try:
        entries = [json.loads(line) for line in log.source_lines(name)]
    except ValueError:
        raise TornError("is cut") from None
    if not all(isinstance(entry, dict) and "path" in entry for entry in entries):
        raise TornError("is cut")
    return entries
