"""The rule by which a reader of ``sinks.kafka`` tells a message that was sent again from a new one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_Writer = tuple[bytes, bytes, bytes, int]


class Repeats:
    """Knows the messages that a reader has seen; one for all partitions that it reads.

    The rule, for each writer (headers ``job``, ``output`` and ``checkpoint``) and each partition of the topic: keep the
    newest ``batch``, and the ``row`` numbers seen of it. A message of an older batch is a repeat, and so is one of the
    newest batch whose row was seen. It holds with any number of partitions, because a row that is sent again goes to
    the partition where it was, and because a batch begins only when all of the one before it is in the topic. It
    remembers one batch of rows for each partition. While a topic is given more partitions, stop its writers in
    good order: a row that is sent again could go elsewhere.

    >>> seen = Repeats()
    >>> headers = [("job", b"shop"), ("output", b"ctr"), ("checkpoint", b"c1"), ("batch", b"7"), ("row", b"0")]
    >>> seen.is_new(0, headers), seen.is_new(0, headers)
    (True, False)
    """

    def __init__(self) -> None:
        self._newest: dict[_Writer, int] = {}
        self._rows: dict[_Writer, set[int]] = {}

    def is_new(self, partition: int, headers: Iterable[tuple[str, bytes]] | None) -> bool:
        """False for a message that was seen before; one without our headers is always new."""
        said = dict(headers or ())
        try:
            writer = (said["job"], said["output"], said["checkpoint"], partition)
            batch, row = int(said["batch"]), int(said["row"])
        except (KeyError, ValueError):
            return True
        newest = self._newest.get(writer, -1)
        if batch < newest:
            return False
        if batch > newest:
            self._newest[writer], self._rows[writer] = batch, set()
        rows = self._rows[writer]
        if row in rows:
            return False
        rows.add(row)
        return True

    def to_json(self) -> list[Any]:
        """What is known, to be kept with the offsets that the reader commits."""
        return [
            {"writer": [w.decode() for w in writer[:3]], "partition": writer[3], "batch": batch, "rows": sorted(rows)}
            for writer, batch in self._newest.items()
            for rows in (self._rows[writer],)
        ]

    @classmethod
    def from_json(cls, said: Iterable[Any]) -> Repeats:
        """Go on with what was kept."""
        made = cls()
        for one in said:
            job, output, checkpoint = (text.encode() for text in one["writer"])
            writer = (job, output, checkpoint, one["partition"])
            made._newest[writer], made._rows[writer] = one["batch"], set(one["rows"])
        return made
