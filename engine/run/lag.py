"""How far the inputs of a run are behind what could be read."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.plan.errors import RunError
from penstock.plan.input import Input
from penstock.sources.base import Watch


def reached(inputs: Sequence[Input], offsets: str) -> dict[str, Mapping[str, int]]:
    """What comes next by input and partition, from a batch's file in Spark's log; only of inputs that count so.

    The file has a line for each source, in the order of the inputs.
    """
    lines = [json.loads(line) if line not in ("", "-") else None for line in offsets.split("\n")[2:]]
    found: dict[str, Mapping[str, int]] = {}
    for node in inputs:
        for number, line in enumerate(lines):
            if isinstance(line, dict) and (said := node.source.reached(line)) is not None:
                found[node.name] = said
                lines[number] = None  # two inputs may read one topic: each has a line
                break
    return found


class Lags:
    """Asks the sources of a run how far they could be read; ``known`` is what their checks gave."""

    def __init__(self, inputs: Sequence[Input], known: Mapping[str, Mapping[str, Any]]) -> None:
        self._inputs = inputs
        self._known = known
        self._watches: dict[str, Watch | None] = {}
        self._asked: tuple[str, dict[str, dict[str, Any]]] | None = None

    def check(self, offsets: str) -> None:
        """Ask on behalf of a batch that has been read: a RunError when an input became another under the run."""
        places = reached(self._inputs, offsets)
        self._asked = offsets, {name: _behind_of(at, self._ends(name, at)) for name, at in places.items()}

    def told(self, offsets: str | None) -> dict[str, dict[str, Any]]:
        """What ``check`` was told for a batch, else what is told now."""
        if self._asked is not None and self._asked[0] == offsets:
            return self._asked[1]
        return self.now(offsets)

    def now(self, offsets: str | None) -> dict[str, dict[str, Any]]:
        """By input: of each partition the offset that comes next, the latest there and the lag, and the lag of all.

        ``offsets`` is the newest batch's file in Spark's log. What nobody says is None; an input whose source does
        not count in offsets is left out.
        """
        found = {}
        for name, at in (reached(self._inputs, offsets) if offsets is not None else {}).items():
            ends: Mapping[int, int] = {}
            with contextlib.suppress(RunError):  # the next batch is stopped by it
                ends = self._ends(name, at)
            found[name] = _behind_of(at, ends)
        return found

    def close(self) -> None:
        """Let go of what was opened to ask."""
        for watch in self._watches.values():
            if watch is not None:
                watch.close()
        self._watches.clear()

    def _ends(self, name: str, at: Mapping[str, int]) -> Mapping[int, int]:
        if name not in self._watches:
            (source,) = (node.source for node in self._inputs if node.name == name)
            self._watches[name] = source.watch(self._known.get(name, {}))
        watch = self._watches[name]
        return {} if watch is None else watch.ends([int(p) for p in at])


def _behind_of(at: Mapping[str, int], ends: Mapping[int, int]) -> dict[str, Any]:
    partitions = {p: _behind(int(offset), ends.get(int(p))) for p, offset in sorted(at.items(), key=_number)}
    lags = [part["lag"] for part in partitions.values()]
    return {"partitions": partitions, "lag": None if None in lags else sum(lags)}


def _number(pair: tuple[str, int]) -> int:
    return int(pair[0])


def _behind(offset: int, latest: int | None) -> dict[str, int | None]:
    # what was read may have been sent after the last answer
    lag = None if latest is None else max(0, latest - offset)
    return {"offset": offset, "latest": latest, "lag": lag}
