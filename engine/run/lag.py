"""How far the inputs of a run are behind what could be read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

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
    """Asks the sources of a run how far they could be read."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self._inputs = inputs
        self._watches: dict[str, Watch | None] = {}

    def now(self, offsets: str | None) -> dict[str, dict[str, Any]]:
        """By input: of each partition the offset that comes next, the latest there and the lag, and the lag of all.

        ``offsets`` is the newest batch's file in Spark's log. What nobody says is None; an input whose source does
        not count in offsets is left out.
        """
        if offsets is None:
            return {}
        return {name: self._of(name, at) for name, at in reached(self._inputs, offsets).items()}

    def close(self) -> None:
        """Let go of what was opened to ask."""
        for watch in self._watches.values():
            if watch is not None:
                watch.close()
        self._watches.clear()

    def _of(self, name: str, at: Mapping[str, int]) -> dict[str, Any]:
        if name not in self._watches:
            (source,) = (node.source for node in self._inputs if node.name == name)
            self._watches[name] = source.watch()
        watch = self._watches[name]
        ends = {} if watch is None else watch.ends([int(p) for p in at])
        partitions = {p: _behind(int(offset), ends.get(int(p))) for p, offset in sorted(at.items(), key=_number)}
        lags = [part["lag"] for part in partitions.values()]
        return {"partitions": partitions, "lag": None if None in lags else sum(lags)}


def _number(pair: tuple[str, int]) -> int:
    return int(pair[0])


def _behind(offset: int, latest: int | None) -> dict[str, int | None]:
    # what was read may have been sent after the last answer
    lag = None if latest is None else max(0, latest - offset)
    return {"offset": offset, "latest": latest, "lag": lag}
