"""The window kernel against ten lines of plain Python, over any cut into batches and tasks."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.durations import BEGINNING_US, END_US
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.edge import BUCKET, PARTITION, POSITION, TIME, StepClock
from penstock.windows.aggregates.registry import make
from penstock.windows.aligned import Aligned
from penstock.windows.calendars import Calendar
from penstock.windows.cumulating import Cumulating
from penstock.windows.kernel import WINDOW_END, WINDOW_START, WindowKernel
from penstock.windows.partials import Measure, Partials
from penstock.windows.shapes import Sliced

us = timedelta(microseconds=1)
MINUTE = 60_000_000
HOUR = 60 * MINUTE
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
TIMES = st.integers(-40, 60)
ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", None]), TIMES, st.none() | st.integers(-5, 5)), max_size=25)


@dataclass(frozen=True)
class Case:
    """A shape, every window that holds a time, found the slow way, and how long a tick of the drawn times is."""

    shape: Sliced
    windows_of: Callable[[int], list[tuple[int, int]]]
    tick: int = 1
    base: int = 0

    def at(self, time):
        """A drawn time in microseconds; where ticks are long, odd ones are just before a boundary."""
        return time if self.tick == 1 else self.base + time // 2 * self.tick - time % 2

    def batches(self, drawn):
        return [[(key, self.at(time), value) for key, time, value in batch] for batch in drawn]


def aligned(size, every, offset):
    def windows_of(time):
        return [
            (start, start + size)
            for start in range(time - size - every - 50, time + 1)
            if (start - offset) % every == 0 and start <= time < start + size
        ]

    return Case(Aligned(size * us, every * us, offset * us), windows_of)


def cumulating(step, steps):
    def windows_of(time):
        begin = next(s for s in range(time, time - step * steps, -1) if s % (step * steps) == 0)
        return [(begin, begin + n * step) for n in range(1, steps + 1) if time < begin + n * step]

    return Case(Cumulating(step * us, step * steps * us), windows_of)


def calendar(unit, zone, tick, begin):
    clock = ZoneInfo(zone)

    def unit_of(time):
        local = (EPOCH + time * us).astimezone(clock)
        return {"day": local.date(), "week": local.isocalendar()[:2], "month": (local.year, local.month)}[unit]

    @lru_cache(None)
    def windows_from(quarter):
        start, end = quarter, quarter
        while unit_of(start - 15 * MINUTE) == unit_of(quarter):
            start -= 15 * MINUTE
        while unit_of(end) == unit_of(quarter):
            end += 15 * MINUTE
        return [(start, end)]

    base = (datetime(*begin, tzinfo=clock) - EPOCH) // us
    return Case(Calendar(unit, zone), lambda t: windows_from(t // (15 * MINUTE) * 15 * MINUTE), tick, base)


UNITS_AND_TICKS = st.sampled_from([("day", HOUR), ("day", 24 * HOUR), ("week", 24 * HOUR), ("month", 120 * HOUR)])
ZONES = st.sampled_from(
    [
        ("UTC", (1970, 1, 1)),
        ("Europe/Berlin", (2026, 3, 29)),
        ("Europe/Berlin", (2026, 10, 26)),
        ("America/Sao_Paulo", (2018, 11, 5)),
        ("Pacific/Apia", (2011, 12, 31)),
    ]
)


@st.composite
def calendars(draw):
    unit, tick = draw(UNITS_AND_TICKS)
    zone, begin = draw(ZONES)
    return calendar(unit, zone, tick, begin)


OFFSETS = st.integers(-5, 5)
CASES = {
    "tumbling": st.builds(lambda size, offset: aligned(size, size, offset), st.integers(1, 20), OFFSETS),
    "hopping": st.integers(1, 20).flatmap(
        lambda size: st.builds(aligned, st.just(size), st.integers(1, size), OFFSETS)
    ),
    "cumulating": st.builds(cumulating, st.integers(1, 8), st.integers(1, 6)),
    "calendar": calendars(),
}
every_shape = pytest.mark.parametrize("name", CASES)


def naive(windows_of, batches, lateness):
    """What comes out and what is late, row by row: judge by the clock before, add, then close by the clock after."""
    open_windows, out, late = defaultdict(list), [], []
    watermark = None
    arrival = 0
    for batch in batches:
        for key, time, value in batch:
            alive = [w for w in windows_of(time) if watermark is None or w[1] > watermark]
            if not alive:
                late.append((key, time, value))
            for window in alive:
                open_windows[key, window].append((time, arrival, value))
            arrival += 1
        if batch:
            newest = max(time for _, time, _ in batch) - lateness
            watermark = newest if watermark is None else max(watermark, newest)
        for key, window in [w for w in open_windows if watermark is not None and w[1][1] <= watermark]:
            out.append((key, window, open_windows.pop((key, window))))
    for (key, window), rows in open_windows.items():
        out.append((key, window, rows))
    return [(*window, key, *summary(rows)) for key, window, rows in out], late


def summary(rows):
    values = [v for _, _, v in sorted(rows, key=lambda r: r[:2])]
    present = [v for v in values if v is not None]
    return len(values), (sum(present) if present else None), (max(present) if present else None), values[0], present


def kernel(shape):
    long = pa.int64()
    measures = (
        Measure(make("count", [], False, {}), (), None),
        Measure(make("sum", [long], False, {}), ("x",), None),
        Measure(make("max", [long], False, {}), ("x",), None),
        Measure(make("first", [long], False, {}), ("x",), None),
        Measure(make("collect_list", [long], False, {}), ("x",), None),
    )
    return WindowKernel(shape, Partials(("k",), measures, ordered=True))


def table(rows, first):
    return pa.table(
        {
            "k": pa.array([r[0] for r in rows], pa.string()),
            "x": pa.array([r[2] for r in rows], pa.int64()),
            TIME: pa.array([r[1] for r in rows], pa.int64()),
            PARTITION: pa.array([0] * len(rows), pa.int32()),
            POSITION: pa.array(range(first, first + len(rows)), pa.int64()),
            BUCKET: pa.array([0] * len(rows), pa.int32()),
        }
    )


def run(work, batches, lateness, tasks, end_us=END_US):
    """The kernel over real runs in a folder, one manifest's worth of state handed from batch to batch."""
    out, late, sets = [], [], {}
    previous, position = None, 0
    with tempfile.TemporaryDirectory() as folder:
        files = Checkpoint.open(folder).files
        for number, rows in enumerate([*batches, None]):
            now = previous
            if rows is None:
                now, rows = end_us, []
            elif rows:
                newest = max(r[1] for r in rows) - lateness
                now = newest if previous is None else max(previous, newest)
            bound = work.late_before(previous)
            late += [r for r in rows if r[1] < bound]
            whole = table(rows, position).filter(pa.array([r[1] >= bound for r in rows], pa.bool_()))
            position += len(rows)
            parts = [
                whole.slice(i, 1 + whole.num_rows // tasks)
                for i in range(0, whole.num_rows, 1 + whole.num_rows // tasks)
            ]
            state = BucketState(files, "w", 0, number, sets)
            clock = StepClock(BEGINNING_US if previous is None else previous, BEGINNING_US if now is None else now)
            outcome = work.step(state, [work.combine(p, previous) for p in parts], clock)
            if outcome.main is not None:
                out.append(outcome.main)
            if outcome.wake_us is not None:
                assert outcome.wake_us > clock.now_us, "a bucket that wakes for the past never sleeps"
            sets, previous = state.sets(), now
    assert not sets, "state is left after the end of time"
    return out, late


def plain(out):
    rows = []
    for result in out:
        whole = result.set_column(0, "start", result[WINDOW_START].cast(pa.int64()))
        whole = whole.set_column(1, "end", result[WINDOW_END].cast(pa.int64()))
        rows += [tuple(r.values()) for r in whole.to_pylist()]
    return sorted(rows, key=repr)


@every_shape
@given(st.data(), st.lists(ROWS, max_size=5), st.integers(0, 15), st.integers(1, 3))
def test_the_kernel_gives_what_plain_python_gives(name, data, drawn, lateness, tasks):
    case = data.draw(CASES[name])
    batches, lateness = case.batches(drawn), lateness * case.tick
    expected, expected_late = naive(case.windows_of, batches, lateness)
    out, late = run(kernel(case.shape), batches, lateness, tasks)
    assert plain(out) == sorted(expected, key=repr)
    assert late == expected_late


@every_shape
@given(st.data(), ROWS, st.integers(1, 6))
def test_any_cut_into_batches_gives_the_same_when_nothing_is_late(name, data, drawn, size):
    case = data.draw(CASES[name])
    [rows] = case.batches([drawn])
    cut = [rows[i : i + size] for i in range(0, len(rows), size)]
    whole, _ = run(kernel(case.shape), [rows], 1000 * case.tick, 1)
    pieces, late = run(kernel(case.shape), cut, 1000 * case.tick, 2)
    assert plain(pieces) == plain(whole)
    assert not late


@every_shape
@given(st.data(), ROWS)
def test_bounded_rows_come_out_when_the_clock_stands_beyond_all_time(name, data, drawn):
    case = data.draw(CASES[name])
    [rows] = case.batches([drawn])
    expected, _ = naive(case.windows_of, [rows], 0)
    out, late = run(kernel(case.shape), [rows], 1000 * case.tick, 1, end_us=2 * END_US - 1)
    assert plain(out) == sorted(expected, key=repr)
    assert not late


def test_the_published_hop_example():
    """Hop 10 s every 5 s over times 5 7 9 11 13 17 with prices 4 2 5 3 1 6."""
    second = timedelta(seconds=1)
    rows = [(None, t * 1_000_000, p) for t, p in zip([5, 7, 9, 11, 13, 17], [4, 2, 5, 3, 1, 6], strict=True)]
    out, _ = run(kernel(Aligned(10 * second, 5 * second)), [rows], 0, 1)
    sums = [(start // 1_000_000, end // 1_000_000, total) for start, end, _, _, total, *_ in plain(out)]
    assert sorted(sums) == [(0, 10, 11), (5, 15, 15), (10, 20, 10), (15, 25, 6)]


def test_the_published_cumulating_example():
    """Cumulating 2 min / 10 min, event 08:05."""
    shape = Cumulating(timedelta(minutes=2), timedelta(minutes=10))
    out, _ = run(kernel(shape), [[("a", 8 * HOUR + 5 * MINUTE, 1)]], 0, 1)
    found = [(start - 8 * HOUR, end - 8 * HOUR, n) for start, end, _, n, *_ in plain(out)]
    assert found == [(0, 6 * MINUTE, 1), (0, 8 * MINUTE, 1), (0, 10 * MINUTE, 1)]


def test_a_row_that_comes_when_some_of_its_cumulating_windows_have_closed_counts_in_the_others():
    batches = [[("a", 1, 5), ("b", 14, 0)], [("a", 3, 7)], [("b", 29, 0)]]
    out, late = run(kernel(Cumulating(5 * us, 20 * us)), batches, 0, 1)
    assert [(end, n, total) for _, end, key, n, total, *_ in plain(out) if key == "a"] == [
        (10, 1, 5),
        (15, 2, 12),
        (20, 2, 12),
        (5, 1, 5),
    ]
    assert late == []


def test_a_cumulating_row_is_late_when_its_last_window_has_closed():
    batches = [[("a", 20, 5)], [("a", 19, 7), ("a", 20, 7)]]
    _, late = run(kernel(Cumulating(5 * us, 20 * us)), batches, 0, 1)
    assert late == [("a", 19, 7)]


@pytest.mark.parametrize("time", [-1, 0, 9, 10, -10, -11])
def test_a_row_on_a_boundary_begins_the_next_window_also_before_1970(time):
    out, _ = run(kernel(Aligned(10 * us, 10 * us)), [[("a", time, 1)]], 0, 1)
    start = time // 10 * 10
    assert [row[:2] for row in plain(out)] == [(start, start + 10)]
