"""Looking into the state of a job, running or stopped: ``penstock state``."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import penstock.state
from penstock.compile.layout import Layout
from penstock.job import Job
from penstock.plan.errors import CheckpointError, PenstockError
from penstock.plan.step import Step
from penstock.run.fit import DOCUMENT
from penstock.state.checkpoint import Checkpoint
from penstock.state.reader import StateReader
from penstock.state_names import Names, main_set, names_of


@dataclass(frozen=True)
class Found:
    """Rows as users see them: at most as many as were asked for, and how many there are."""

    rows: pa.Table
    count: int
    told: str


def existing(folder: str) -> Checkpoint:
    """The checkpoint at a path or address, which a run has made."""
    found = Checkpoint.find(folder)
    if found is None:
        raise CheckpointError(
            f"there is no checkpoint {folder} yet: run the job first, or name its checkpoint with --checkpoint."
        )
    return found


class Look:
    """One version of the state of a job, which may be running; nothing here starts Spark."""

    def __init__(self, job: Job, folder: str, batch: int | None = None) -> None:
        known = existing(folder).read_json(DOCUMENT)
        if known is not None and known["job"] != job.name:
            raise CheckpointError(f"checkpoint {folder} belongs to the job {known['job']!r}, not to {job.name!r}.")
        self._reader: StateReader = penstock.state.open(folder, batch)
        self._plan = {step.name: step for step in Layout(job).stages}

    def steps(self) -> list[dict[str, Any]]:
        """The steps that have state: what they keep, and how much."""
        reader, kept = self._reader, self._reader.batches
        lines = []
        for name in dict.fromkeys((*self._plan, *reader.steps)):
            sets = reader.sets(name) if name in reader.steps else {}
            step = self._plan.get(name)
            lines.append(
                {
                    "step": name,
                    "keeps": (step.keeps() or "") if step is not None else "it is not in the plan any more",
                    "sets": list(sets),
                    "rows": sum(s.rows for s in sets.values()),
                    "bytes": sum(s.bytes for s in sets.values()),
                    "runs": sum(s.runs for s in sets.values()),
                    "batch": reader.batch,
                    "kept": [kept[0], kept[-1]] if kept else [],
                }
            )
        return lines

    def rows(self, step: str, kept: str | None, limit: int, *, internal: bool = False) -> Found:
        """The first rows of a set."""
        kept = self._set(step, kept)
        if kept is None:
            return self._nothing(step)
        names = self._names(step, kept)

        def first(rows: pa.Table) -> tuple[pa.Table, int]:
            shown = names.shown(rows, internal)
            return shown.slice(0, limit), shown.num_rows

        found = self._reader.each(step, first, kept)
        rows = pa.concat_tables([rows for rows, _ in found]).slice(0, limit)
        return Found(rows, sum(count for _, count in found), self._told(step, kept))

    def key(self, step: str, kept: str | None, text: str, limit: int, *, internal: bool = False) -> Found:
        """The rows of one key, searched for and not read through where the set is kept by it."""
        kept = self._set(step, kept)
        if kept is None:
            return self._nothing(step)
        names = self._names(step, kept)
        wanted = {names.stored(name): value for name, value in read_key(text, names.key, step).items()}
        if not set(wanted) <= set(self._reader.schema(step, kept).names):
            raise PenstockError(f"--key: the set {kept!r} of step {step!r} holds no {', '.join(names.key)}.")
        rows = names.shown(self._reader.find(step, wanted, kept), internal)
        return Found(rows.slice(0, limit), rows.num_rows, self._told(step, kept))

    def sql(self, step: str, query: str, limit: int, *, internal: bool = False) -> Found:
        """What a query says of the sets of a step, each a view of its name; the main one is ``state`` too."""
        main = self._set(step, None)
        if main is None:
            raise PenstockError(f"--sql: step {step!r} holds no rows after batch {self._reader.batch}.")
        sets = self._sets(step)
        said = query.casefold()
        used = [name for name in sets if name.casefold() in said or (name == main and "state" in said)]
        tables = self._reader.tables(step, used)
        views = {name: self._names(step, name).shown(rows, internal) for name, rows in tables.items()}
        if main in views:
            views["state"] = views[main]
        rows = queried(query, views, ("state", *sets))
        return Found(rows.slice(0, limit), rows.num_rows, f"step {step!r} after batch {self._reader.batch}")

    def _check(self, step: str) -> None:
        known = list(dict.fromkeys((*self._plan, *self._reader.steps)))
        if step not in known:
            near = difflib.get_close_matches(step, known, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            there = f"there is {', '.join(known)}" if known else "none of its steps keeps any"
            raise PenstockError(f"the job has no step {step!r} with state; {there}.{hint}")

    def _sets(self, step: str) -> Mapping[str, object]:
        return self._reader.sets(step) if step in self._reader.steps else {}

    def _set(self, step: str, kept: str | None) -> str | None:
        """The set that is asked for, which may be the main one; None while the step has none."""
        self._check(step)
        sets = self._sets(step)
        if kept is None:
            return main_set(sets)
        if kept not in sets:
            raise PenstockError(f"step {step!r} has no set {kept!r}; it has {', '.join(sets) or 'none'}.")
        return kept

    def _nothing(self, step: str) -> Found:
        return Found(pa.table({}), 0, f"step {step!r} after batch {self._reader.batch}")

    def _names(self, step: str, kept: str) -> Names:
        node: Step | None = self._plan.get(step)
        return names_of(node, kept) if node is not None else Names()

    def _told(self, step: str, kept: str) -> str:
        others = [name for name in self._sets(step) if name != kept]
        also = f" (there is also {', '.join(others)})" if others else ""
        return f"step {step!r}, set {kept!r}{also}, after batch {self._reader.batch}"


def read_key(text: str, columns: Sequence[str], step: str) -> dict[str, Any]:
    """A key as it is written on the command line, by column.

    >>> read_key("7,blue", ("id", "colour"), "stock")
    {'id': ['7'], 'colour': ['blue']}
    >>> read_key('["a,b", null]', ("id", "colour"), "stock")
    {'id': ['a,b'], 'colour': [None]}
    """
    if not columns:
        raise PenstockError(f"--key: step {step!r} has no key.")
    values: Any = [text] if len(columns) == 1 else text.split(",")
    if text.startswith(("[", "{")):
        try:
            values = json.loads(text)
        except ValueError as error:
            raise PenstockError(f"--key {text!r} is no JSON: {error}.") from None
    if isinstance(values, dict):
        values = [values[c] for c in columns] if set(values) == set(columns) else []
    if len(values) != len(columns):
        raise PenstockError(
            f"--key {text!r}: the key of step {step!r} is {', '.join(columns)}; give a value for each, in this order, "
            "with a comma between them or as a JSON list."
        )
    # in a list of its own, since a value may be a list
    return {column: [value] for column, value in zip(columns, values, strict=True)}


def queried(query: str, views: Mapping[str, pa.Table], known: Iterable[str]) -> pa.Table:
    """What DuckDB answers."""
    try:
        import duckdb
    except ImportError:
        raise PenstockError("--sql needs DuckDB: pip install 'penstock[sql]'.") from None
    with duckdb.connect() as connection:
        for name, rows in views.items():
            connection.register(name, rows)
        try:
            found = connection.sql(query)
            if found is not None:
                return found.to_arrow_table()
        except duckdb.Error as error:
            there = ", ".join(f'"{name}"' for name in known)
            raise PenstockError(f"--sql: {str(error).splitlines()[0]} The views are {there}.") from None
    raise PenstockError("--sql: give a query that answers with rows.")
