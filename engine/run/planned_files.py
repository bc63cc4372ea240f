"""The files of a batch: all that were planned are there, and once an output may hold the batch they are as they were.

Spark itself leaves out a file that has gone, and reads one that was rewritten as it is now. A batch that is run again
would then hold other rows than the outputs that have it already.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse

from penstock.plan.errors import RunError
from penstock.run.begun import Begun, Look
from penstock.run.source_logs import COMPACT, file_sources
from penstock.run.spark_log import SOURCES, SparkLog


class PlannedFiles:
    """The files on this machine that one batch reads; ``before`` is the batch as outputs may hold it.

    Until its batch reaches the outputs a file may be corrected: the batch takes it as it is when it is run.
    """

    def __init__(self, log: SparkLog, batch: Begun, before: Begun | None) -> None:
        self._batch = batch.batch
        self._paths = list(planned(log, batch.batch, batch.offsets))
        self._before = () if before is None else before.files
        self._found: list[Look] = []

    def check(self) -> None:
        """Refuse a file that has gone, or that is not as it was when outputs were given the batch."""
        self._found = [self._look(path) for path in self._paths]
        # an older Penstock kept nothing of files here
        known = zip(self._paths, self._before, self._found, strict=True) if self._before else ()
        for path, before, now in known:
            if before != now:
                raise RunError(
                    f"the input file {path} was changed after batch {self._batch} had been read from it, and outputs "
                    f"may hold that batch: it had {before[1]} bytes and has {now[1]}. Put it back as it was, with its "
                    f"time: touch -d @{before[0] // 10**9}.{before[0] % 10**9:09} {path}"
                )

    def settled(self) -> tuple[Look, ...]:
        """The files as they were read, before the first output: none has changed, and from now on none may."""
        for path, before in zip(self._paths, self._found, strict=True):
            if self._look(path) != before:
                raise RunError(
                    f"the input file {path} was changed while batch {self._batch} read it; nothing was written. "
                    "Write files aside and move them in; then start the job again, which reads the batch anew."
                )
        return tuple(self._found)

    def _look(self, path: Path) -> Look:
        try:
            found = os.stat(path)
        except FileNotFoundError:
            raise RunError(
                f"the input file {path} has gone; batch {self._batch} was planned with it, and its rows would be "
                "missing. Bring it back; to go on without its rows, put an empty file in its place."
            ) from None
        return found.st_mtime_ns, found.st_size


def planned(log: SparkLog, batch: int, offsets: str) -> Iterator[Path]:
    """The local files of a batch, as the logs of its file sources have them."""
    before = file_sources(log.offsets(batch - 1)) if batch and offsets else {}
    for source, end in file_sources(offsets).items():
        for number in range(before.get(source, -1) + 1, end + 1):
            for entry in noted(log, source, number):
                parsed = urlparse(entry)
                if parsed.scheme in ("", "file"):
                    yield Path(unquote(parsed.path))


def noted(log: SparkLog, source: int, number: int) -> Iterator[str]:
    """The paths that a source noted under a number; a compacted note also has all before it."""
    folder = f"{SOURCES}/{source}"
    try:
        lines = log.source_lines(f"{folder}/{number}")
    except FileNotFoundError:
        names = (name for name in log.store.names(folder) if name.endswith(COMPACT))
        later = {int(name.rpartition("/")[2].removesuffix(COMPACT)): name for name in names}
        lines = log.source_lines(later[min(n for n in later if n >= number)])
    for entry in map(json.loads, lines):
        if entry["batchId"] == number:
            yield str(entry["path"])
