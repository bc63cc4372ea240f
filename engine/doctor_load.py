"""How much a job has before it and behind it: what waits to be read, its state by step, rows that were refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from rich.filesize import decimal

from penstock.compile.layout import Layout
from penstock.run.clock import StepTime
from penstock.run.source_logs import file_sources
from penstock.run.spark_log import SparkLog, TornError
from penstock.run.unread import file_inputs, unread
from penstock.state.manifest import Manifest
from penstock.state.runs import Run

SKEWED = 4  # times the mean of the buckets
FEW_ROWS = 1_000  # of fewer no bucket is worth a word
MANY_REFUSED = 0.01  # of the rows that came

COUNTED = {"retries": "tries again", "repeated": "batches that were there already", "ignored": "messages of no row"}


def waiting(layout: Layout, log: SparkLog, manifest: Manifest) -> Iterator[str]:
    """What has not been read yet, by input."""
    lags: Mapping[str, Any] = manifest.body.get("lags", {})
    files = file_inputs(layout)
    try:
        known = file_sources(log.offsets(log.planned()[-1]))
    except (TornError, OSError, IndexError):
        known = {}
    for node in layout.inputs:
        place = files.get(node.name)
        if place is not None and place.number in known:
            with contextlib.suppress(TornError, OSError):  # told with the rest
                there = unread(log, place)
                first = f", the first is {there[0]}" if there else ""
                yield f"'{node.name}': {len(there):,} file{'' if len(there) == 1 else 's'} not read yet{first}"
        elif (lags.get(node.name) or {}).get("lag") is not None:
            yield f"'{node.name}': {lags[node.name]['lag']:,} messages not read yet when the newest batch began"


def kept(manifest: Manifest) -> Iterator[str]:
    """The state of each step."""
    for step, buckets in manifest.steps.items():
        runs = [run for sets in buckets.values() for some in sets.values() for run in some]
        size = sum(run.bytes for run in runs)
        yield f"'{step}': {_rows(runs):,} rows, {decimal(size)} in {len(runs):,} files{_fullest(buckets)}"


def skew(manifest: Manifest) -> Iterator[str]:
    """The steps of which one bucket holds far more than the others: some keys have most of the rows."""
    for step, buckets in manifest.steps.items():
        rows = _by_bucket(buckets)
        fullest = max(rows, key=rows.__getitem__, default=-1)
        total = sum(rows.values())
        if total >= FEW_ROWS and rows[fullest] > SKEWED * total / len(rows):
            yield (
                f"bucket {fullest} of step '{step}' holds {rows[fullest] / total:.0%} of its {total:,} rows, as one of "
                f"{len(rows)}: a few keys have most of them, and their batches take the longest"
            )


def counted(manifest: Manifest) -> Iterator[str]:
    """What came, what was refused, what went out, since the checkpoint began."""
    counters: Mapping[str, Mapping[str, int]] = manifest.body["counters"]
    came = sum(counters["rows"].values())
    yield f"rows in: {_each(counters['rows']) or 'none'}; rows out: {_each(counters['out']) or 'none counted'}"
    for name, told in (("late", "late"), ("dead", "dead letters")):
        total = sum(counters[name].values())
        share = f", {total / came:.2%} of the rows that came" if came and total else ""
        yield f"{told}: {_each(counters[name]) or 'none'}{share}"
    for name, values in counters.items():
        if name not in ("rows", "out", "late", "dead") and any(values.values()):
            yield f"{COUNTED.get(name, name)}: {_each(values)}"


def refused(layout: Layout, manifest: Manifest) -> Iterator[str]:
    """The steps and reasons for which many rows are lost."""
    counters: Mapping[str, Mapping[str, int]] = manifest.body["counters"]
    came = sum(counters["rows"].values())
    for step in layout.stages:
        reach = sum(counters["rows"].get(name, 0) for name in StepTime.of(step).inputs)
        late = counters["late"].get(step.name, 0)
        if reach and late / reach > MANY_REFUSED:
            yield (
                f"step '{step.name}' refused {late:,} rows as late, {late / reach:.1%} of those that came to it: "
                "a larger lateness would keep them"
            )
    for reason, count in counters["dead"].items():
        if came and count / came > MANY_REFUSED:
            yield f"{count:,} rows are dead letters ({reason}), {count / came:.1%} of those that came"


def _each(counts: Mapping[str, int]) -> str:
    return ", ".join(f"'{name}' {count:,}" for name, count in counts.items() if count)


def _rows(runs: list[Run]) -> int:
    return sum(run.live for run in runs)


def _by_bucket(buckets: Mapping[int, Mapping[str, tuple[Run, ...]]]) -> dict[int, int]:
    return {b: _rows([run for some in sets.values() for run in some]) for b, sets in buckets.items()}


def _fullest(buckets: Mapping[int, Mapping[str, tuple[Run, ...]]]) -> str:
    rows = _by_bucket(buckets)
    total = sum(rows.values())
    if not total:
        return ""
    return f"; the fullest of {len(rows)} buckets holds {max(rows.values()) * len(rows) / total:.1f} times the mean"
