"""Files that wait to be read: how many stand in a source's folder that no batch has taken."""

from __future__ import annotations

import contextlib
import glob
import os
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlparse

from penstock.compile.layout import Layout
from penstock.run.source_logs import files_read, newest_read_us
from penstock.run.spark_log import SparkLog, TornError
from penstock.sources.files import Files

LEAST_PAUSE_S = 5.0
SHARE = 100  # a hundredth of the time may go into looking


def file_inputs(layout: Layout) -> Mapping[str, tuple[int, str]]:
    """The inputs that read local files, each with its number in Spark's log and its path."""
    found = {}
    nodes = {node.name: node for node in layout.inputs}
    for number, name in enumerate(layout.sources):
        source = nodes[name].source if name in nodes else None
        if isinstance(source, Files) and urlparse(source.path).scheme in ("", "file"):
            parsed = urlparse(source.path)
            found[name] = number, unquote(parsed.path) if parsed.scheme else source.path
    return found


def unread(log: SparkLog, number: int, path: str) -> list[str]:
    """The files in a source's folder that Spark has taken into no plan, exactly."""
    read = files_read(log, number)
    return sorted(file for file in _listed(path) if os.path.realpath(file) not in read and file not in read)


class FolderWatch:
    """Counts the files that wait while a job runs, without looking at the folders more than now and then.

    Files are read oldest first, so those that changed after the newest one that was read are waiting. A file that
    was moved in with an older date is counted by ``unread`` alone.
    """

    def __init__(self, layout: Layout, log: SparkLog) -> None:
        self._log = log
        self._inputs = {n: place for n, place in file_inputs(layout).items() if not _newest_first(layout, n)}
        self._changed_us: dict[str, list[int]] = {}  # of the files that waited at the last look, in order
        self._not_before = 0.0

    def waiting(self) -> Mapping[str, int]:
        """How many files of each input wait; those that have come since the last look are not known yet."""
        with contextlib.suppress(OSError, TornError):  # it says how a batch went, and must not end one
            began = time.monotonic()
            read = {name: newest_read_us(self._log, number) or -1000 for name, (number, _) in self._inputs.items()}
            if began >= self._not_before:
                self._changed_us = {name: _changed(path, read[name]) for name, (_, path) in self._inputs.items()}
                now = time.monotonic()
                self._not_before = now + max(LEAST_PAUSE_S, SHARE * (now - began))
            # Spark notes milliseconds: what is of the same one has been read with it
            self._changed_us = {
                name: times[bisect_left(times, read[name] + 1000) :] for name, times in self._changed_us.items()
            }
        return {name: len(times) for name, times in self._changed_us.items()}


def _changed(path: str, after_us: int) -> list[int]:
    return sorted(us for us in map(_changed_us, _listed(path)) if us > after_us)


def _listed(path: str) -> Iterator[str]:
    """The files below a path, as Spark takes them: names that begin with ``_`` or ``.`` are nobody's."""
    for root in glob.glob(path) if any(c in path for c in "*?[") else [path]:
        if os.path.isfile(root):
            yield os.path.abspath(root)
        for folder, folders, files in os.walk(root):
            folders[:] = [name for name in folders if name[0] not in "_."]
            yield from (os.path.abspath(os.path.join(folder, name)) for name in files if name[0] not in "_.")


def _changed_us(file: str) -> int:
    try:
        return Path(file).stat().st_mtime_ns // 1000
    except FileNotFoundError:  # moved away since it was listed
        return 0


def _newest_first(layout: Layout, name: str) -> bool:
    source = next(node.source for node in layout.inputs if node.name == name)
    told = dict(source.options) if isinstance(source, Files) else {}
    return any(key.lower() == "latestfirst" and value.lower() == "true" for key, value in told.items())
