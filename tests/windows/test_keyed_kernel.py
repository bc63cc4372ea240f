"""The keyed window kernel against a twin in plain Python, over any cut, any order, any way of firing.

The twin holds all rows in lists and computes everything again in each batch. After every batch the results,
the late rows and, where results are a table, the whole table as its changes add up to, are the twin's.
"""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.plan.durations import BEGINNING_US, END_US
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.edge import BUCKET, LATE, PARTITION, POSITION, TIME, StepClock
from penstock.windows.aggregates.registry import make
from penstock.windows.aligned import Aligned
from penstock.windows.cumulating import Cumulating
from penstock.windows.firing import Final, Panes, Updates
from penstock.windows.kernel import WINDOW_END, WINDOW_START
from penstock.windows.keyed import KeyedWindowKernel
from penstock.windows.lengths import FOR_EVER_US
from penstock.windows.partials import Measure, Partials
from penstock.windows.sessions import Session
from penstock.windows.sliding import Sliding

us = timedelta(microseconds=1)
KEYS = st.sampled_from([["a"], ["a", "b", None]])
TIMES_AND_VALUES = st.tuples(st.integers(-13, 20), st.none() | st.integers(-5, 5))


@st.composite
def batches(draw):
    """Batches as (rows, wall time that passes, how much further than its rows the clock goes)."""
    keys, found = st.sampled_from(draw(KEYS)), []
    for number in range(draw(st.integers(0, 8))):
        # times drift upwards, so that some rows are late and others are far ahead
        rows = [(draw(keys), t + 8 * number, v) for t, v in draw(st.lists(TIMES_AND_VALUES, max_size=10))]
        found.append((rows, draw(st.integers(0, 7)), draw(st.sampled_from([0, 0, 0, 0, 3, 12, 40]))))
    return found


@st.composite
def hops(draw):
    size = draw(st.integers(1, 20))
    return Aligned(size * us, draw(st.integers(1, size)) * us, draw(st.integers(-5, 5)) * us)


SHAPES = {
    "tumbling": st.builds(lambda size: Aligned(size * us, size * us), st.integers(1, 20)),
    "hopping": hops(),
    "cumulating": st.builds(lambda s, n: Cumulating(s * us, s * n * us), st.integers(1, 6), st.integers(1, 4)),
    "sliding": st.builds(lambda size: Sliding(size * us), st.integers(1, 20)),
    "session": st.builds(lambda gap: Session(gap * us), st.integers(1, 12)),
    "cut session": st.builds(lambda gap, most: Session(gap * us, most * us), st.integers(1, 12), st.integers(1, 25)),
}
FIRINGS = {
    "final": st.just(Final()),
    "updates": st.just(Updates()),
    "panes": st.builds(
        lambda early, allowed: Panes(early and early * us, allowed * us),
        st.none() | st.integers(1, 9),
        st.sampled_from([0, 0, 3, 10, 40]),
    ),
}


class Twin:
    """What a window step means, in lists."""

    def __init__(self, shape, firing):
        self.shape, self.firing = shape, firing
        self.allowed = firing.allowed_lateness // us if isinstance(firing, Panes) else 0
        self.rows = defaultdict(list)  # by key (time, arrival, value); of sessions only what is not sealed
        self.cuts = {}  # by key the last cut of a sealed session
        self.table = {}  # what readers have: (start, end, key) -> (values, pane)
        self.seals = {}  # what has been shown: (start, end, key) -> when it cannot change any more

    def batch(self, came, previous, now, ticks):
        """What a batch gives: the windows that closed, with their values, and the rows that are late."""
        late = self.take(came, previous)
        windows = list(self.windows(previous))
        values = {(start, end, key): summary(rows) for key, start, end, _, rows, _ in windows}
        closes = {(start, end, key): close for key, start, end, close, _, _ in windows}
        chains = {(start, end, key): chain for key, start, end, _, _, chain in windows}
        if isinstance(self.firing, Final):
            out = [(*w, *values[w]) for w in values if closes[w] <= now]
        else:
            out = None
            self.show(values, closes, chains, previous, now, ticks)
        self.seal(windows, now)
        return out, late

    def take(self, came, previous):
        """Add the rows that are not late, and give the others."""
        shape, late = self.shape, []
        if not isinstance(shape, Session):
            for key, *row in came:
                is_late = all(close + self.allowed <= previous for _, _, close in windows_of(shape, row[0]))
                late.append((key, *row)) if is_late else self.rows[key].append(tuple(row))
            return late
        gap = shape.gap // us
        fresh = defaultdict(list)
        for key, *row in came:
            if key in self.cuts and row[0] < self.cuts[key]:
                late.append((key, *row))
            else:
                fresh[key].append(tuple(row))
        for key, rows in fresh.items():
            sessions = [s for chain in chained([*self.rows[key], *rows], gap) for s in cut(chain, shape)]
            for _, _, close, own in sessions:
                surely = any(r in self.rows[key] or r[0] + gap + self.allowed >= previous for r in own)
                if not surely and close + self.allowed <= previous:
                    late += [(key, *r) for r in own]
                    rows = [r for r in rows if r not in own]
            self.rows[key] += rows
        return late

    def windows(self, previous):
        """The windows that can still change: key, start, end, close, rows, and the chain that they are of."""
        for key, rows in self.rows.items():
            if isinstance(self.shape, Session):
                for number, chain in enumerate(chained(rows, self.shape.gap // us)):
                    for start, end, close, own in cut(chain, self.shape):
                        yield key, start, end, close, own, (key, number)
                continue
            if isinstance(self.shape, Sliding):
                size = self.shape.size // us
                found = {(t - size, t, t + 1) for t, _, _ in rows}
                holds = lambda w, t: w[0] <= t <= w[1]  # noqa: E731
            else:
                found = {w for t, _, _ in rows for w in windows_of(self.shape, t)}
                holds = lambda w, t: w[0] <= t < w[1]  # noqa: E731
            for w in sorted(found):
                if w[2] + self.allowed > previous:
                    yield key, *w, [r for r in rows if holds(w, r[0])], (key, w)

    def show(self, values, closes, chains, previous, now, ticks):
        """Change what readers have."""
        panes = isinstance(self.firing, Panes)
        shown = {w for w, seal in self.seals.items() if seal > previous and w in self.table}
        vanished = {w for w in shown if w not in values}
        replaced = set()
        for start, _, key in vanished:
            del self.table[start, _, key]
            replaced |= {chains[w] for w in values if w[2] == key and w[0] <= start < w[1]}
        for w, value in values.items():
            was = self.table[w] if w in shown else None
            changed = was is None or was[0] != value
            pane = None
            if not panes:
                tell = changed
            elif closes[w] > now:
                pane, tell = "early", changed and (ticks or (w not in shown and chains[w] in replaced))
            elif closes[w] > previous:
                pane, tell = "on_time", True
            else:
                pane, tell = "late", changed
            if tell:
                self.table[w] = (value, pane)
                self.seals[w] = closes[w] + self.allowed

    def seal(self, windows, now):
        if not isinstance(self.shape, Session):
            return
        for key, start, end, close, rows, _ in windows:
            if close + self.allowed <= now:
                self.rows[key] = [r for r in self.rows[key] if r not in rows]
                if self.shape.max_duration is not None and end == start + self.shape.max_duration // us:
                    self.cuts[key] = end
        for key, end in list(self.cuts.items()):
            if not self.rows[key] and end + self.shape.gap // us + self.allowed <= now:
                del self.cuts[key]


def windows_of(shape, time):
    """Every window that holds a time, with its close, the slow way."""
    if isinstance(shape, Sliding):
        return [(time - shape.size // us, time, time + 1)]
    if isinstance(shape, Cumulating):
        step, size = shape.step // us, shape.size // us
        begin = time // size * size
        return [(begin, end, end) for end in range(begin + step, begin + size + 1, step) if time < end]
    size, every, offset = shape.size // us, shape.every // us, shape.offset // us
    starts = (s for s in range(time - size, time + 1) if (s - offset) % every == 0 and s <= time < s + size)
    return [(s, s + size, s + size) for s in starts]


def chained(rows, gap):
    """Rows in chains of neighbours that are at most the gap apart."""
    chains = []
    for row in sorted(rows, key=lambda r: r[:2]):
        if chains and row[0] - chains[-1][-1][0] <= gap:
            chains[-1].append(row)
        else:
            chains.append([row])
    return chains


def cut(chain, shape):
    """The sessions of a chain: start, end, close, rows."""
    gap = shape.gap // us
    if shape.max_duration is None:
        end = chain[-1][0] + gap
        return [(chain[0][0], end, end + 1, chain)]
    most, sessions = shape.max_duration // us, []
    for row in chain:
        if sessions and row[0] < sessions[-1][0][0] + most:
            sessions[-1].append(row)
        else:
            sessions.append([row])
    return [
        (
            rows[0][0],
            min(rows[-1][0] + gap, rows[0][0] + most),
            min(rows[-1][0] + gap + 1, rows[0][0] + max(most, gap)),
            rows,
        )
        for rows in sessions
    ]


def summary(rows):
    values = [v for _, _, v in sorted(rows, key=lambda r: r[:2])]
    present = [v for v in values if v is not None]
    total, greatest = (sum(present), max(present)) if present else (None, None)
    return len(values), total, greatest, values[0], tuple(present)


def kernel(shape, firing, keys=("k",)):
    long = pa.int64()
    measures = (
        Measure(make("count", [], False, {}), (), None),
        Measure(make("sum", [long], False, {}), ("x",), None),
        Measure(make("max", [long], False, {}), ("x",), None),
        Measure(make("first", [long], False, {}), ("x",), None),
        Measure(make("collect_list", [long], False, {}), ("x",), None),
    )
    return KeyedWindowKernel(shape, Partials(keys, measures, ordered=True), firing)


ROW = pa.struct([("key", pa.string()), ("time", pa.int64()), ("arrival", pa.int64()), ("value", pa.int64())])


def arrow(rows, doubtful_before, with_late):
    """Rows (key, time, arrival, value) as they come to a kernel."""
    columns = {
        "k": pa.array([r[0] for r in rows], pa.string()),
        "x": pa.array([r[3] for r in rows], pa.int64()),
        TIME: pa.array([r[1] for r in rows], pa.int64()),
        PARTITION: pa.array([0] * len(rows), pa.int32()),
        POSITION: pa.array([r[2] for r in rows], pa.int64()),
        BUCKET: pa.array([0] * len(rows), pa.int32()),
    }
    if with_late:
        names = [f.name for f in ROW]
        told = [dict(zip(names, r, strict=True)) if r[1] < doubtful_before else None for r in rows]
        columns[LATE] = pa.array(told, ROW)
    return pa.table(columns)


class Play:
    """A kernel over real runs in a folder, batch after batch, called as a stage calls it."""

    def __init__(self, work, folder, tasks=1, with_late=True):
        self.work, self.tasks, self.with_late = work, tasks, with_late
        self.files = Checkpoint.open(folder).files
        self.sets, self.wake, self.number = {}, None, 0
        self.table = Counter()  # what the changes add up to
        self.late_count = 0

    def batch(self, came, clock, previous):
        """What comes out, and the rows that are late, None where they did not travel along."""
        bound, doubtful = self.work.late_before(previous), self.work.doubtful_before(previous)
        assert bound <= doubtful
        late = [r for r in came if r[1] < bound]
        kept = [r for r in came if r[1] >= bound]
        size = 1 + len(kept) // self.tasks
        parts = [arrow(kept[i : i + size], doubtful, self.with_late) for i in range(0, len(kept), size)]
        self.number += 1
        self.late_count = len(late)
        if not parts and not self.work.ticks(clock) and (self.wake is None or self.wake > clock.now_us):
            return [], late
        state = BucketState(self.files, "w", 0, self.number, self.sets)
        outcome = self.work.step(state, [self.work.combine(p, previous) for p in parts], clock)
        assert outcome.wake_us is None or outcome.wake_us > clock.now_us, "it wakes for the past and never sleeps"
        self.sets, self.wake = state.sets(), outcome.wake_us
        self.late_count += outcome.late_count
        if outcome.late is not None:
            assert self.with_late
            late += [tuple(r.values()) for r in outcome.late.to_pylist()]
        return plain(outcome.main), late

    def apply(self, changes):
        """Change the table, row by row: what goes is there, what comes is not, and each change is one."""
        gone = [r[:-1] for r in changes if r[-1] == -1]
        come = [r[:-1] for r in changes if r[-1] == 1]
        assert len(gone) + len(come) == len(changes)
        assert not set(gone) & set(come), "a change that changes nothing"
        for row in gone:
            assert self.table[row] == 1, "a row is taken away that readers do not have"
            self.table[row] -= 1
        for row in come:
            assert not self.table[row], "a row comes that readers have"
            self.table[row] += 1
        self.table = +self.table


def plain(main):
    """Results as tuples, with times in microseconds and lists as tuples."""
    if main is None:
        return []
    assert main.num_rows, "no results is None"
    for name in (WINDOW_START, WINDOW_END):
        if name in main.column_names:
            main = main.set_column(main.column_names.index(name), name, main[name].cast(pa.int64()))
    return [tuple(tuple(v) if isinstance(v, list) else v for v in r.values()) for r in main.to_pylist()]


def clocks(found, lateness):
    """The batches with arrivals numbered, the watermark before each, and its clock; the last is the end of time."""
    previous, arrival, wall, since = None, 0, 1000, 1000
    for rows, passed, further in [*found, ([], 1, None)]:
        now = previous
        if further is None:
            now = END_US + 5
        elif rows:
            newest = max(t for _, t, _ in rows) - lateness + further
            now = newest if previous is None else max(previous, newest)
        elif previous is not None:
            now = previous + further
        came = [(k, t, arrival + i, v) for i, (k, t, v) in enumerate(rows)]
        arrival += len(rows)
        known = [BEGINNING_US if w is None else w for w in (previous, now)]
        yield came, previous, StepClock(*known, wall, wall + passed, since)
        previous, wall = now, wall + passed


def check(shape, firing, found, lateness, tasks=1, with_late=True, keyed=True, twin=None):
    twin, work = twin or Twin(shape, firing), kernel(shape, firing, ("k",) if keyed else ())
    with tempfile.TemporaryDirectory() as folder:
        play = Play(work, folder, tasks, with_late)
        for came, previous, clock in clocks(found, lateness):
            if not keyed:
                came = [(None, *r[1:]) for r in came]
            ticks = work.ticks(clock)
            expected, expected_late = twin.batch(came, clock.previous_us, min(clock.now_us, END_US), ticks)
            got, late = play.batch(came, clock, previous)
            assert play.late_count == len(expected_late)
            if with_late:
                assert sorted(late, key=repr) == sorted(expected_late, key=repr)
            if expected is not None:
                assert sorted(got, key=repr) == sorted(without_key(expected, keyed), key=repr)
                continue
            play.apply(got)
            panes = isinstance(firing, Panes)
            table = [(*w, *value, *([pane] if panes else [])) for w, (value, pane) in twin.table.items()]
            assert play.table == Counter(without_key(table, keyed))
        assert not play.sets, "state is left after the end of time"
    return twin


def without_key(rows, keyed):
    return rows if keyed else [(*r[:2], *r[3:]) for r in rows]


some = settings(max_examples=25)
every_shape = pytest.mark.parametrize("shape", SHAPES)
every_firing = pytest.mark.parametrize("firing", FIRINGS)


@every_firing
@every_shape
@some
@given(
    data=st.data(), found=batches(), lateness=st.integers(0, 15), tasks=st.integers(1, 3), with_late=st.booleans(),
    keyed=st.sampled_from([True, True, False]),
)  # fmt: skip
def test_the_kernel_gives_what_the_twin_gives(shape, firing, data, found, lateness, tasks, with_late, keyed):
    shape, firing = data.draw(SHAPES[shape]), data.draw(FIRINGS[firing])
    check(shape, firing, found, lateness, tasks, with_late, keyed)


def played(shape, firing, found, lateness, tasks=2):
    """All that comes out of final windows, or the table at the end; rows before the watermark are left out."""
    work = kernel(shape, firing)
    kept, out = [], []
    with tempfile.TemporaryDirectory() as folder:
        play = Play(work, folder, tasks)
        for came, previous, clock in clocks(found, lateness):
            came = [r for r in came if r[1] >= clock.previous_us]
            kept += came
            got, late = play.batch(came, clock, previous)
            assert not late
            assert not play.late_count
            if isinstance(firing, Final):
                out += got
            else:
                play.apply(got)
    return kept, out if isinstance(firing, Final) else [r[:8] for r in play.table.elements()]


@every_firing
@every_shape
@some
@given(data=st.data(), found=batches(), lateness=st.integers(0, 15))
def test_rows_that_are_on_time_give_what_all_rows_at_once_give(shape, firing, data, found, lateness):
    shape, firing = data.draw(SHAPES[shape]), data.draw(FIRINGS[firing])
    kept, got = played(shape, firing, found, lateness)
    at_once = Twin(shape, Final())
    expected, late = at_once.batch(kept, BEGINNING_US, END_US, False)
    assert sorted(got, key=repr) == sorted(expected, key=repr)
    assert not late


@pytest.mark.parametrize("keyed", [True, False], ids=["by a key", "without a key"])
@some
@given(found=batches(), tasks=st.integers(1, 3))
def test_running_values_are_those_of_all_rows_so_far(keyed, found, tasks):
    work = kernel(None, Updates(), ("k",) if keyed else ())
    rows = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        play = Play(work, folder, tasks)
        for came, previous, clock in clocks(found, 5):
            changes, late = play.batch(came, clock, previous)
            play.apply(changes)
            for key, *row in came:
                rows[key if keyed else None].append(row)
            expected = [((key,) if keyed else ()) + summary(own) for key, own in rows.items()]
            assert play.table == Counter(expected)
            assert not late
            assert play.wake is None


PRICE = pa.struct([("price", pa.int64()), ("at", pa.int64())])


def rows_kernel(shape, firing):
    """A kernel whose result is a list of rows: all values of a window that are there, with their times."""
    rows = Measure(make("collect_list", [PRICE], False, {}), ("row",), None)
    return KeyedWindowKernel(shape, Partials(("k",), (rows,), ordered=True), firing, explode=True)


@every_shape
@some
@given(data=st.data(), found=batches(), lateness=st.integers(0, 15))
def test_results_that_are_rows_come_out_one_by_one_and_only_those_that_changed(shape, data, found, lateness):
    shape = data.draw(SHAPES[shape])
    twin, work = Twin(shape, Updates()), rows_kernel(shape, Updates())
    table, sets, wake = Counter(), {}, None
    with tempfile.TemporaryDirectory() as folder:
        files = Checkpoint.open(folder).files
        for number, (came, previous, clock) in enumerate(clocks(found, lateness)):
            twin.batch(came, clock.previous_us, min(clock.now_us, END_US), False)
            rows = arrow(came, 0, False).filter(
                pa.array([r[1] >= work.late_before(previous) for r in came], pa.bool_())
            )
            if rows.num_rows or (wake is not None and wake <= clock.now_us):
                pairs = zip(rows["x"].to_pylist(), rows[TIME].to_pylist(), strict=True)
                structs = pa.array([None if x is None else {"price": x, "at": t} for x, t in pairs], PRICE)
                state = BucketState(files, "w", 0, number, sets)
                parts = [work.combine(rows.append_column("row", structs), previous)] if rows.num_rows else []
                outcome = work.step(state, parts, clock)
                sets, wake = state.sets(), outcome.wake_us
                changes = plain(outcome.main)
                moved = [(*r[:3], *r[4:]) for r in changes]
                assert not {r for r, c in zip(moved, changes, strict=True) if c[3] < 0} & {
                    r for r, c in zip(moved, changes, strict=True) if c[3] > 0
                }
                for row, change in zip(moved, changes, strict=True):
                    table[row] += change[3]
            prices = {w: [(p,) for p in value[-1]] for w, (value, _) in twin.table.items()}
            assert all(n > 0 for n in (+table).values())
            assert Counter(r[:4] for r in table.elements()) == Counter(w + p for w in prices for p in prices[w])
        assert not sets


SECOND = 1_000_000


def seconds(shape, firing, *pushes, lateness=0):
    """What comes out in seconds, push by push: (start, end, count, ...), and the late times.

    A push is a list of times, or how far the clock moves without rows.
    """
    pushed = [
        ([(None, round(t * SECOND), 1) for t in push], 1, 0) if isinstance(push, list) else ([], 1, push * SECOND)
        for push in pushes
    ]
    results = []
    with tempfile.TemporaryDirectory() as folder:
        play = Play(kernel(shape, firing, ()), folder)
        for came, previous, clock in clocks(pushed, lateness * SECOND):
            got, late = play.batch(came, clock, previous)
            told = [(r[0] / SECOND, r[1] / SECOND, r[2], *r[7:]) for r in got]
            results.append((sorted(told), sorted(r[1] / SECOND for r in late)))
    return results


def test_the_published_sliding_example():
    """Sliding 5 s over times 8.0, 9.2, 12.4."""
    [_, (out, _)] = seconds(Sliding(timedelta(seconds=5)), Final(), [8.0, 9.2, 12.4], lateness=60)
    assert out == [(3, 8, 1), (4.2, 9.2, 2), (7.4, 12.4, 3)]


def test_the_published_session_example():
    """Gap 5 s over 0, 5, 10.001: exactly the gap is still together."""
    [_, (out, _)] = seconds(Session(timedelta(seconds=5)), Final(), [0, 10.001, 5], lateness=60)
    assert out == [(0, 10, 2), (10.001, 15.001, 1)]


def test_a_late_row_that_joins_two_sessions_that_were_shown_deletes_both():
    #   0 1       7 8        gap 4, corrected for 100 s
    #        4
    session = Session(timedelta(seconds=4))
    panes = Panes(None, timedelta(seconds=100))
    shown, (out, late), _ = seconds(session, panes, [0, 1, 7, 8, 20], [4])
    assert shown == ([(0, 5, 2, "on_time", 1), (7, 12, 2, "on_time", 1)], [])
    assert out == [(0, 5, 2, "on_time", -1), (0, 12, 5, "late", 1), (7, 12, 2, "on_time", -1)]
    assert not late


def test_a_session_that_is_open_again_appears_at_once():
    session = Session(timedelta(seconds=4))
    first, second, *_ = seconds(session, Panes(None, timedelta(seconds=100)), [0, 10], [4, 8])
    assert first == ([(0, 4, 1, "on_time", 1)], [])
    assert second == ([(0, 4, 1, "on_time", -1), (0, 14, 4, "early", 1)], [])


def test_a_session_is_cut_and_the_row_on_the_cut_begins_the_next():
    session = Session(timedelta(seconds=5), timedelta(seconds=10))
    [_, (out, _)] = seconds(session, Final(), [0, 4, 8, 10, 12], lateness=60)
    assert out == [(0, 10, 3), (10, 17, 2)]


def test_a_row_before_the_cut_of_a_closed_session_is_late_though_the_next_would_take_it():
    session = Session(timedelta(seconds=5), timedelta(seconds=10))
    first, second, last = seconds(session, Final(), [0, 4, 8, 11], [9, 12])
    assert first == ([(0, 10, 3)], [])
    assert second == ([], [9])
    assert last == ([(11, 17, 2)], [])


def test_a_cut_is_remembered_as_long_as_the_next_session_is_open():
    session = Session(timedelta(seconds=5), timedelta(seconds=10))
    _, second, third, fourth, last = seconds(session, Final(), [0, 4, 8], 2, [11, 15, 18], [9])
    assert (second, third) == (([(0, 10, 3)], []), ([], []))
    assert fourth == ([], [9])
    assert last == ([(11, 21, 3)], [])


def test_a_cut_is_forgotten_when_rows_before_it_need_another_row_to_be_taken():
    session = Session(timedelta(seconds=5), timedelta(seconds=10))
    _, second, _, fourth, last = seconds(session, Final(), [0, 4, 8], 2, 5, [9, 10])
    assert second == ([(0, 10, 3)], [])
    assert fourth == ([], [])
    assert last == ([(9, 15, 2)], [])


def test_a_session_that_was_cut_is_corrected_for_as_long_as_is_allowed_and_no_longer():
    #   [0 4 8][11 15 19][23 27 ...   the first is corrected until 10 + 20
    session = Session(timedelta(seconds=5), timedelta(seconds=10))
    first, second, _, fourth, _ = seconds(
        session, Panes(None, timedelta(seconds=20)), [0, 4, 8, 11, 15, 19, 23, 27], [7], 4, [6]
    )
    assert first == ([(0, 10, 3, "on_time", 1), (11, 21, 3, "on_time", 1)], [])
    assert second == ([(0, 10, 3, "on_time", -1), (0, 10, 4, "late", 1)], [])
    assert fourth == ([], [6])


def test_a_session_that_closed_while_nothing_came_is_left_as_it_is():
    # the clock is 2 s ahead of the rows: at 15 the session is over since 14, and nobody has looked since 10
    _, _, third, _ = seconds(Session(timedelta(seconds=5)), Updates(), [8], 5, [12], lateness=-2)
    assert third == ([(12, 17, 1, 1)], [])


def test_a_session_that_would_be_over_when_it_begins_is_late_though_its_chain_goes_on():
    """Watermark 33: 21 is taken, 6 and 9 are a gap or less before it, but in sessions of their own by then."""
    session = Session(timedelta(seconds=12), timedelta(seconds=1))
    first, second, _ = seconds(session, Updates(), [6], [9, 6, 21], lateness=-27)
    assert first == ([(6, 7, 1, 1)], [])
    assert second == ([(21, 22, 1, 1)], [6, 9])


def test_a_row_that_moves_the_first_one_moves_every_cut():
    session = Session(timedelta(seconds=5), timedelta(seconds=10))
    first, second, _ = seconds(session, Updates(), [0, 4, 8, 12], [-3], lateness=60)
    assert first == ([(0, 10, 3, 1), (12, 17, 1, 1)], [])
    assert second == ([(-3, 7, 3, 1), (0, 10, 3, -1), (8, 17, 2, 1), (12, 17, 1, -1)], [])


def test_a_row_is_taken_late_through_rows_of_its_batch():
    """Watermark 20, gap 5: 9 and 13 alone would be late, 17 is not, and the chain is one session."""
    _, (out, late), (last, _) = seconds(Session(timedelta(seconds=5)), Final(), [20], [9, 13, 17])
    assert (out, late) == ([], [])
    assert last == [(9, 25, 4)]
    _, (_, late), _ = seconds(Session(timedelta(seconds=5)), Final(), [20], [9, 13])
    assert late == [9, 13]


def test_early_values_come_with_wall_time_and_only_when_they_changed():
    hour = Aligned(timedelta(hours=1), timedelta(hours=1))
    work = kernel(hour, Panes(10 * us, timedelta(0)))
    with tempfile.TemporaryDirectory() as folder:
        play = Play(work, folder)

        def at(wall, before, *times):
            came = [("a", t, t, 1) for t in times]
            changes, _ = play.batch(came, StepClock(0, 0, 1000 + before, 1000 + wall, 1000), 0)
            return [(r[3], r[-2], r[-1]) for r in changes]

        assert at(1, 0, 5) == []
        assert at(9, 1, 6) == []
        assert at(10, 9) == [(2, "early", 1)]
        assert at(20, 10) == []
        assert at(35, 20, 7) == [(2, "early", -1), (3, "early", 1)]
        assert at(36, 35, 8) == []


LONG_SHAPES = {
    "sliding": Sliding,
    "session": Session,
    "cut session": lambda length: Session(length, length),
    "cut far away": lambda length: Session(us, length),
}


@every_firing
@pytest.mark.parametrize("shape", LONG_SHAPES)
def test_lengths_beyond_all_time_are_as_long_as_all_time(shape, firing):
    first, last = -62_135_596_800_000_000, 253_402_300_799_999_999  # of all times that Spark knows
    found = [([("a", last, 1), ("b", first, 2)], 1, 0), ([("a", last, 1), ("a", first, 3)], 1, 0)]
    shape = LONG_SHAPES[shape]
    firings = {"final": lambda _: Final(), "updates": lambda _: Updates(), "panes": lambda length: Panes(us, length)}
    twin = Twin(shape(FOR_EVER_US * us), firings[firing](FOR_EVER_US * us))
    check(shape(timedelta.max), firings[firing](timedelta.max), found, 10, twin=twin)
