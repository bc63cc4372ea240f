"""What a reader of the outputs sees: rows without their order, versions, ledgers, and what differs."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

LEDGER = "_penstock_ledger"
Rows = list[tuple[Any, ...]]
Tables = dict[str, Rows]


def digest(rows: Sequence[object]) -> str:
    """A hash of rows that does not depend on their order.

    >>> digest([(1, "a"), (2, "b")]) == digest([(2, "b"), (1, "a")])
    True
    """
    return hashlib.sha256("\n".join(sorted(map(repr, rows))).encode()).hexdigest()[:12]


def tables(folder: Path, *, keep_ledger: bool = False) -> Tables:
    """Every table of every database and every folder of Parquet files in a folder, without the folder's own name."""
    found: Tables = {}
    for database in sorted(folder.rglob("*.db")):
        found |= {f"{database.stem}.{name}": rows for name, rows in _database(database, keep_ledger).items()}
    for home in sorted(folder.rglob("_penstock")):
        files = sorted(home.parent.glob("[!._]*.parquet"))
        found[home.parent.name] = [tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist()]
    prefix = str(folder)
    return {
        name: [tuple(v.replace(prefix, "") if isinstance(v, str) else v for v in row) for row in rows]
        for name, rows in found.items()
    }


def _database(database: Path, keep_ledger: bool) -> Tables:
    with closing(sqlite3.connect(database, timeout=30, isolation_level=None)) as connection:
        connection.execute("BEGIN")  # all tables of one moment
        names = [n for (n,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        kept = [n for n in names if keep_ledger or n != LEDGER]
        found = {n: connection.execute(f'SELECT * FROM "{n}"').fetchall() for n in kept}
        connection.execute("ROLLBACK")
    return found


def ledger(folder: Path) -> dict[str, tuple[int, int]]:
    """Batch and epoch of each output by its ledger; of Parquet files the newest batch, each of which is one file."""
    found: dict[str, tuple[int, int]] = {}
    for database in sorted(folder.rglob("*.db")):
        rows = _database(database, True).get(LEDGER, [])
        if len({row[0] for row in rows}) != len(rows):
            raise AssertionError(f"{database.name}: a table stands twice in the ledger")
        found |= {f"{database.stem}.{row[0]}": (row[4], row[5]) for row in rows}
    for home in sorted(folder.rglob("_penstock")):
        files = [int(f.stem.rpartition("-")[2]) for f in home.parent.glob("[!._]*.parquet")]
        epochs = [int(f.name.removeprefix("epoch-")) for f in home.glob("epoch-*")]
        found[home.parent.name] = (max(files, default=-1), max(epochs, default=-1))
    return found


def difference(found: Mapping[str, Rows], wanted: Mapping[str, Rows]) -> str:
    """What is missing and what is too much, by table; ``empty`` when nothing is.

    >>> difference({"t": [(1,), (2,)]}, {"t": [(2,), (3,)]})
    't: 1 missing, such as (3,); 1 too much, such as (1,)'
    >>> difference({"t": [(1,)]}, {"t": [(1,)]})
    'empty'
    """
    told = []
    for name in sorted({*found, *wanted}):
        here, there = Counter(map(repr, found.get(name, []))), Counter(map(repr, wanted.get(name, [])))
        parts = []
        for word, more in (("missing", there - here), ("too much", here - there)):
            if more:
                parts.append(f"{more.total()} {word}, such as {next(iter(more))[:200]}")
        if (name in found) != (name in wanted):
            parts.append("there on one side only")
        told += [f"{name}: {'; '.join(parts)}"] if parts else []
    return " | ".join(told) or "empty"


def version(folder: Path) -> frozenset[tuple[str, str]]:
    """What a reader sees in this moment: a hash for each database as a whole, and for each Parquet file."""
    seen = []
    for database in sorted(folder.rglob("*.db")):
        content = _database(database, False)
        rows = [(name, *row) for name, rows in content.items() for row in rows]
        seen.append((database.name, digest([repr(row).replace(str(folder), "") for row in rows])))
    for home in sorted(folder.rglob("_penstock")):
        for file in sorted(home.parent.glob("[!._]*.parquet")):
            seen.append((file.name, digest([tuple(r.values()) for r in pq.read_table(file).to_pylist()])))
    return frozenset(seen)


class Reader:
    """Somebody who reads the outputs all the time while a run writes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: set[tuple[str, str]] = set()
        self.looks = 0
        self.failure: Exception | None = None
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._enough.wait(0.01):
            try:
                self.seen |= version(self.folder)
            except sqlite3.OperationalError:
                continue  # the file is being made, or rolled back, in this moment
            except Exception as error:
                self.failure = error
                return
            self.looks += 1


def bytes_of(place: Path) -> str:
    """A hash of all that was computed below a place; what a start itself notes, or sweeps, is left out.

    Of a database it is the rows, because its ledger holds the number of the run; of a checkpoint it is what the
    manifests name, because a start sweeps the runs that none of them does.
    """
    if place.suffix == ".db":
        content = _database(place, True)
        content[LEDGER] = [row[:-1] for row in content.get(LEDGER, [])]
        return digest([(name, *row) for name, rows in content.items() for row in rows])
    mark = hashlib.sha256()
    named = "".join(manifest.read_text(errors="replace") for manifest in sorted(place.glob("manifest/*.json")))
    for file in sorted(p for p in place.rglob("*") if p.is_file()):
        name = file.relative_to(place)
        noted = name.name == "run.lock" or "epochs" in name.parts or name.name.startswith(("epoch-", ".aside-"))
        orphan = name.parts[0] == "state" and file.name not in named
        if not noted and not orphan and not any(part.startswith("staging-") for part in name.parts):
            mark.update(str(name).encode() + b"\0" + file.read_bytes())
    return mark.hexdigest()[:12]
