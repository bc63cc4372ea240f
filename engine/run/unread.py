"""Files that wait to be read: how many stand in a source's folder that no batch has taken."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import time
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.compile.layout import Layout
from penstock.run.source_logs import files_read, newest_read_us
from penstock.run.spark_log import SparkLog, TornError
from penstock.sources.files import WILD, Files

LEAST_PAUSE_S = 5.0
SHARE = 100  # a hundredth of the time may go into looking


@dataclass(frozen=True)
class Place:
    """A path on this machine: the number of its source in Spark's log, and how Spark is told to list it."""

    number: int
    path: str
    names: str = "*"
    deep: bool = False
    newest_first: bool = False

    @classmethod
    def of(cls, number: int, source: Files, path: str) -> Place:
        """Of the source with a number; Spark takes the names of options in any case."""
        told = {name.lower(): value for name, value in source.options}
        deep, newest_first = (told.get(name, "").lower() == "true" for name in ("recursivefilelookup", "latestfirst"))
        return cls(number, path, told.get("pathglobfilter", "*"), deep, newest_first)


def file_inputs(layout: Layout) -> Mapping[str, Place]:
    """The inputs that read local files."""
    found = {}
    nodes = {node.name: node for node in layout.inputs}
    for number, name in enumerate(layout.sources):
        source = nodes[name].source if name in nodes else None
        if isinstance(source, Files) and (path := source.folder) is not None:
            found[name] = Place.of(number, source, path)
    return found


def unread(log: SparkLog, place: Place) -> list[str]:
    """The files of a source that Spark has taken into no plan, exactly."""
    read = files_read(log, place.number)
    return sorted(file for file in _listed(place) if os.path.realpath(file) not in read and file not in read)


class FolderWatch:
    """Counts the files that wait while a job runs, without looking at the folders more than now and then.

    Files are read oldest first, so those that changed after the newest one that was read are waiting. A file that
    was moved in with an older date is counted by ``unread`` alone.
    """

    def __init__(self, layout: Layout, log: SparkLog) -> None:
        self._log = log
        self._inputs = {name: place for name, place in file_inputs(layout).items() if not place.newest_first}
        self._changed_us: dict[str, list[int]] = {}  # of the files that waited at the last look, in order
        self._not_before = 0.0

    def waiting(self) -> Mapping[str, int]:
        """How many files of each input wait; those that have come since the last look are not known yet."""
        with contextlib.suppress(OSError, TornError):  # it says how a batch went, and must not end one
            began = time.monotonic()
            read = {name: newest_read_us(self._log, one.number) or -1000 for name, one in self._inputs.items()}
            if began >= self._not_before:
                self._changed_us = {name: _changed(one, read[name]) for name, one in self._inputs.items()}
                now = time.monotonic()
                self._not_before = now + max(LEAST_PAUSE_S, SHARE * (now - began))
            # Spark notes milliseconds: what is of the same one has been read with it
            self._changed_us = {
                name: times[bisect_left(times, read[name] + 1000) :] for name, times in self._changed_us.items()
            }
        return {name: len(times) for name, times in self._changed_us.items()}


def _changed(place: Place, after_us: int) -> list[int]:
    return sorted(us for us in map(_changed_us, _listed(place)) if us > after_us)


def _listed(place: Place) -> list[str]:
    """The files of a place, as Spark lists them: those in the folder itself.

    Where folders are named for values (``day=2026-01-01``), or it is told to, it takes all that are below.
    """
    flat: list[str] = []
    deep: list[str] = []
    valued = place.deep
    for root in globbed(place.path):
        if os.path.isfile(root) and not _hidden(os.path.basename(root)):
            flat.append(root)
        for folder, folders, files in os.walk(root, followlinks=True):
            folders[:] = [name for name in folders if not _hidden(name) and not _goes_round(folder, name)]
            found = [os.path.join(folder, name) for name in files if not _hidden(name)]
            (flat if folder == root else deep).extend(found)
            valued = valued or (bool(found) and "=" in os.path.relpath(folder, root))
    named = name_pattern(place.names)
    return [file for file in (flat + deep if valued else flat) if named.fullmatch(os.path.basename(file))]


def _hidden(name: str) -> bool:
    return name[0] == "." or (name[0] == "_" and "=" not in name) or name.endswith("._COPYING_")


def _goes_round(folder: str, name: str) -> bool:
    """True for a link to a folder that it stands in."""
    path = os.path.join(folder, name)
    return os.path.islink(path) and Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(path))


def globbed(path: str) -> list[str]:
    """The paths that one with wildcards means, as Hadoop takes them: a star also stands for a leading dot."""
    if not any(c in path for c in WILD):
        return [path]
    found = []
    for one in _without_braces(path):
        roots = ["/"]
        for part in one.strip("/").split("/"):
            named = name_pattern(part)
            roots = [os.path.join(root, name) for root in roots for name in _names(root) if named.fullmatch(name)]
        found += roots
    return sorted(set(found))


def name_pattern(glob: str) -> re.Pattern[str]:
    """Hadoop's wildcards for one name.

    >>> [bool(name_pattern("[^_]*.{json,txt}").fullmatch(name)) for name in ("a.json", ".a.txt", "_a.txt", "a.csv")]
    [True, True, False, False]
    """
    plain = (re.sub(r"\\(.)", r"[\1]", one).replace("[^", "[!") for one in _without_braces(glob))
    return re.compile("|".join(fnmatch.translate(one) for one in plain))


def _without_braces(glob: str) -> list[str]:
    """One pattern for each choice.

    >>> _without_braces("{a,b{1,2}}/x")
    ['a/x', 'b1/x', 'b2/x']
    """
    found = re.search(r"(?<!\\)\{([^{}]*)\}", glob)
    if found is None:
        return [glob]
    ways = (glob[: found.start()] + choice + glob[found.end() :] for choice in found[1].split(","))
    # an inner choice is made first, and what does not have it comes once for each
    return list(dict.fromkeys(one for way in ways for one in _without_braces(way)))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _changed_us(file: str) -> int:
    try:
        return Path(file).stat().st_mtime_ns // 1000
    except FileNotFoundError:  # moved away since it was listed
        return 0
