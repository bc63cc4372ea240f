"""State written anew, in other buckets or with other columns, beside the state as it was.

What is read is what a manifest names, what is written is new files that none names yet: until the next batch is
committed the state is as it was, and a run that ends before leaves files that the next one sweeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.plan.errors import CheckpointError
from penstock.state.bucket import BucketState
from penstock.state.keyed import HASH, layout
from penstock.state.runs import SORT_KEY, Run, RunFiles

Sets = Mapping[str, tuple[Run, ...]]
Tables = Mapping[str, pa.Table]
Hashes = Callable[[pa.Table], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Held:
    """The state of a step: the sets of each bucket, and when each bucket wants to wake."""

    sets: Mapping[int, Sets] = field(default_factory=dict)
    wakes: Mapping[int, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Ready:
    """Rows as they are to be written, and whose they are where they do not say it themselves."""

    rows: pa.Table
    owners: pa.Table | None = None


class Rewrite:
    """What becomes of the sets of a bucket when they are written anew: here nothing, in other classes something."""

    def prepare(self, tables: Tables) -> Mapping[str, Ready]:
        """The sets of the next bucket as they are to be written."""
        return {name: Ready(rows) for name, rows in tables.items()}

    def finish(self, state: BucketState) -> None:
        """Put into a new bucket what belongs there besides its rows."""


@dataclass(frozen=True)
class Split:
    """How rows go to other buckets: ``hashes`` are those by which their bucket was chosen, of their ``key``."""

    key: tuple[str, ...]
    before: int
    now: int
    hashes: Hashes


@dataclass(frozen=True)
class Shape:
    """What a set is: a keyed table, or a buffer by time."""

    time: str
    keyed: Mapping[str, Any] | None

    @classmethod
    def of(cls, files: RunFiles, runs: tuple[Run, ...]) -> Shape:
        """As the newest run says."""
        metadata = files.open(runs[-1]).schema.metadata
        time = metadata[SORT_KEY].decode()
        return cls(time, layout(metadata) if time == HASH else None)

    def read(self, state: BucketState, name: str) -> pa.Table | None:
        """The live rows of the set, None when there are none."""
        if self.keyed is None:
            return state.buffer(name, self.time).read(None, None)
        rows = state.table(name, **self.keyed).scan()
        return rows if rows.num_rows else None

    def add(self, state: BucketState, name: str, rows: pa.Table) -> None:
        """Put rows that are not there yet."""
        if self.keyed is None:
            state.buffer(name, self.time).add(rows)
        else:
            state.table(name, **self.keyed).put(rows)


def rewritten(files: RunFiles, step: str, batch: int, held: Held, rewrite: Rewrite, split: Split | None = None) -> Held:
    """The state of a step as ``rewrite`` makes it, in the buckets that ``split`` gives, bucket by bucket.

    Rows of one key stay in the order in which they came. A set that does not hold what the bucket of its rows is
    computed from is refused by name.
    """
    made: dict[int, BucketState] = {}
    wakes: dict[int, int | None] = {}
    for bucket, sets in sorted(held.sets.items()):
        state = BucketState(files, step, bucket, batch, sets)
        shapes = {name: Shape.of(files, runs) for name, runs in sets.items()}
        tables = {name: rows for name in sets if (rows := shapes[name].read(state, name)) is not None}
        for name, ready in rewrite.prepare(tables).items():
            for to, part in _parts(ready, bucket, split, f"step {step!r}, set {name!r}"):
                own = made.setdefault(to, BucketState(files, step, to, batch, {}))
                shapes[name].add(own, name, part)
                known = [us for us in (wakes.get(to), held.wakes.get(bucket)) if us is not None]
                wakes[to] = min(known, default=None)
    for state in made.values():
        rewrite.finish(state)
    return Held({bucket: state.sets() for bucket, state in made.items()}, wakes)


def _parts(ready: Ready, bucket: int, split: Split | None, where: str) -> list[tuple[int, pa.Table]]:
    """The rows by the bucket that they go to."""
    rows, owners = ready.rows, ready.rows if ready.owners is None else ready.owners
    if not rows.num_rows:
        return []
    if split is None or not split.key:
        return [(bucket, rows)]
    known = all(name in owners.column_names for name in split.key)
    hashes = split.hashes(owners.select(split.key)) if known else None
    # what was found once by the key as it came must be found again by the key as it is kept
    if hashes is None or (np.mod(hashes, split.before) != bucket).any():
        raise CheckpointError(
            f"{where}: it does not hold what the bucket of its rows is computed from, so that it cannot be split "
            f"anew. Run the job with {split.before} buckets, as it was."
        )
    goes = np.mod(hashes, split.now)
    return [(int(to), rows.filter(pa.array(goes == to))) for to in np.unique(goes)]
