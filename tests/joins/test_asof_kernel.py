"""The as-of kernel against a twin in plain Python, over any cut, any interleaving, any order.

The twin keeps every version and looks at all of them for each event. After every batch the results, the late
rows of both sides and what is held are the twin's.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.joins.asof_kernel import AsOfKernel
from penstock.plan.durations import BEGINNING_US, END_US
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.edge import BUCKET, DELETED, LATE, PARTITION, POSITION, TIME, StepClock

KEYS = ("k", "j")
SEQUENCES = ("__ps_seq_0", "__ps_seq_1")
TYPES = {"k": pa.string(), "j": pa.int32(), "x": pa.int64(), "y": pa.string(), "tags": pa.list_(pa.int64())}
RIGHT = ("y", "tags")
RIGHT_TYPES = tuple(TYPES[name] for name in RIGHT)


@dataclass(frozen=True)
class Event:
    k: str | None
    j: int | None
    time: int
    partition: int
    position: int
    x: int

    @property
    def key(self):
        return self.k, self.j


@dataclass(frozen=True)
class Version:
    k: str | None
    j: int | None
    time: int
    partition: int
    position: int
    deleted: bool
    number: int | None
    text: str | None

    @property
    def key(self):
        return self.k, self.j

    @property
    def y(self):
        return f"v{self.position}"

    @property
    def tags(self):
        return [self.position] if self.position % 2 else None


class Twin:
    """What an as-of join means, in lists."""

    def __init__(self, work):
        self.work = work
        self.versions, self.waiting = [], []

    def batch(self, events, versions, previous, now):
        """The answers of a batch, and the late rows of both sides."""
        oldest = previous - self.work.history_us
        late = [e for e in events if e.time < oldest], [v for v in versions if v.time < previous]
        self.versions += [v for v in versions if v.time >= previous]
        self.waiting += [e for e in events if e.time >= oldest]
        due = [e for e in self.waiting if e.time < now]
        self.waiting = [e for e in self.waiting if e.time >= now]
        return self.answers(due), *late

    def answers(self, events):
        pairs = [(e, self.version_at(e.key, e.time)) for e in events]
        return [(e, v) for e, v in pairs if v is not None or self.work.how == "left"]

    def version_at(self, key, time):
        found = self.newest([v for v in self.versions if v.key == key and None not in key and v.time <= time])
        if found is None or found.deleted:
            return None
        tolerance = self.work.tolerance_us
        return None if tolerance is not None and found.time < time - tolerance else found

    def newest(self, versions):
        return max(versions, key=lambda v: (v.time, *self.order(v)), default=None)

    def order(self, v):
        sequence = [(s is not None, s) if s is not None else (False,) for s in (v.number, v.text)]
        by = sequence[: len(self.work.sequences)]
        return (*by, *([] if self.work.arrival_wins else [v.deleted]), v.partition, v.position)

    def needed(self, key, bound):
        """The versions of a key that an event from ``bound`` on can need."""
        own = [v for v in self.versions if v.key == key and None not in key]
        own = [v for v in own if v == self.newest([w for w in own if w.time == v.time])]
        before = self.newest([v for v in own if v.time < bound])
        return {v for v in own if v.time >= bound or (v == before and not v.deleted)}


LATE_EVENT = pa.struct([("position", pa.int64())])


def arrow(rows, work, edge, previous, with_late):
    """Rows as they come to a kernel."""
    names = ["k", "j", "y", "tags"] if edge else ["k", "j", "x"]
    columns = {name: pa.array([getattr(r, name) for r in rows], TYPES[name]) for name in names}
    if edge:
        columns[DELETED] = pa.array([r.deleted for r in rows], pa.bool_())
        columns[SEQUENCES[0]] = pa.array([r.number for r in rows], pa.int64())
        columns[SEQUENCES[1]] = pa.array([r.text for r in rows], pa.string())
    columns |= {
        TIME: pa.array([r.time for r in rows], pa.int64()),
        PARTITION: pa.array([r.partition for r in rows], pa.int32()),
        POSITION: pa.array([r.position for r in rows], pa.int64()),
        BUCKET: pa.array([0] * len(rows), pa.int32()),
    }
    if with_late:
        doubtful = work.doubtful_before(edge, previous)
        told = [{"position": r.position} if r.time < doubtful else None for r in rows]
        columns[LATE] = pa.array(told, LATE_EVENT)
    table = pa.table(columns)
    # Spark says of some columns that they hold no nulls
    sure = {DELETED, TIME, PARTITION, POSITION, BUCKET}
    return table.cast(pa.schema([f.with_nullable(f.name not in sure) for f in table.schema]))


class Play:
    """A kernel over real runs in a folder, batch after batch, called as a stage calls it."""

    def __init__(self, work, folder, tasks=1, with_late=True):
        self.work, self.tasks, self.with_late = work, tasks, with_late
        self.files = Checkpoint.open(folder).files
        self.sets, self.wake, self.number, self.state = {}, None, 0, None

    def batch(self, events, versions, previous, now):
        """The results, the positions of late rows of both sides, and how many were late."""
        self.number += 1
        self.state = None
        packed = [self.packed(edge, rows, previous) for edge, rows in enumerate((events, versions))]
        clock = StepClock(BEGINNING_US if previous is None else previous, now)
        if not events and not versions and (self.wake is None or self.wake > clock.now_us):
            return [], [], [], 0
        self.state = BucketState(self.files, "j", 0, self.number, self.sets)
        outcome = self.work.step(self.state, packed, clock)
        assert outcome.wake_us is None or outcome.wake_us > clock.now_us, "it wakes for the past and never sleeps"
        self.sets, self.wake = self.state.sets(), outcome.wake_us
        late = [[] if t is None else t["position"].to_pylist() for t in (outcome.late, outcome.late_right)]
        if outcome.main is None:
            return [], *late, outcome.late_count
        assert outcome.main.num_rows, "no results is None"
        assert outcome.main.column_names == ["k", "j", "x", "y", "tags", TIME, PARTITION, POSITION]
        assert outcome.main.schema.field("tags").type == TYPES["tags"]
        return [tuple(r.values()) for r in outcome.main.to_pylist()], *late, outcome.late_count

    def packed(self, edge, rows, previous):
        parts = [rows[i :: self.tasks] for i in range(self.tasks)]
        tables = [arrow(part, self.work, edge, previous, self.with_late) for part in parts if part]
        return [self.work.combine(edge, table, previous) for table in tables][::-1]

    def held(self):
        """The versions that are held, as key and position."""
        rows = self.state.table("versions", KEYS, within=(TIME,)).scan().to_pylist()
        return {((r["k"], r["j"]), r[POSITION]) for r in rows}


def shown(event, version):
    right = (None, None) if version is None else (version.y, version.tags)
    return (event.k, event.j, event.x, *right, event.time, event.partition, event.position)


keys = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, 1, 1, 2, None]))
event_parts = st.tuples(keys, st.integers(-10, 20), st.integers(0, 2))
version_parts = st.tuples(
    keys, st.integers(-10, 20), st.integers(0, 2), st.sampled_from([False, False, True]),
    st.sampled_from([None, 1, 2]), st.sampled_from([None, "p", "q"]),
)  # fmt: skip


@st.composite
def batches(draw, drift=8):
    """Batches as (events, versions, how far the clock goes on, None when it does not begin)."""
    found, position = [], 0
    for number in range(draw(st.integers(1, 7))):
        # times drift upwards, so that some rows are late and others are far ahead
        events, versions = [], []
        for (k, j), time, partition in draw(st.lists(event_parts, max_size=8)):
            events.append(Event(k, j, time + drift * number, partition, position, position * 10))
            position += 1
        for (k, j), time, partition, deleted, *sequence in draw(st.lists(version_parts, max_size=8)):
            versions.append(Version(k, j, time + drift * number, partition, position, deleted, *sequence))
            position += 1
        found.append((events, versions, draw(st.sampled_from([0, 4, 8, 12, 30]))))
    return found


kernels = st.builds(
    lambda how, tolerance, history, sequences, arrival: AsOfKernel(
        KEYS, ("x",), RIGHT, how, tolerance, history, SEQUENCES[:sequences], arrival, RIGHT_TYPES
    ),
    st.sampled_from(["left", "inner"]),
    st.none() | st.integers(0, 15),
    st.sampled_from([0, 0, 1, 6, 25]),
    st.integers(0, 2),
    st.booleans(),
)


@settings(max_examples=100)
@given(work=kernels, found=batches(), tasks=st.integers(1, 3), with_late=st.booleans(), starts=st.booleans())
def test_the_kernel_gives_what_the_twin_gives(work, found, tasks, with_late, starts):
    twin, bound = Twin(work), BEGINNING_US
    previous = -5 if starts else None
    with tempfile.TemporaryDirectory() as folder:
        play = Play(work, folder, tasks, with_late)
        for events, versions, step in [*found, ([], [], None)]:
            known = BEGINNING_US if previous is None else previous
            now = END_US + 5 if step is None else (known if previous is not None else -5) + step
            expected, late_events, late_versions = twin.batch(events, versions, known, now)
            got, late, late_right, late_count = play.batch(events, versions, previous, now)
            assert got == [shown(*pair) for pair in sorted(expected, key=lambda p: (p[0].time, *arrival(p[0])))]
            assert late_count == len(late_events) + len(late_versions)
            if with_late:
                assert sorted(late) == sorted(e.position for e in late_events)
                assert sorted(late_right) == sorted(v.position for v in late_versions)
            if play.state is not None:
                bound = min(now, END_US) - work.history_us
                answered = {e.key for e, _ in expected} if work.how == "left" else set()
                touched = answered | {v.key for v in versions if v not in late_versions}
                check_held(twin, play.held(), touched, bound)
            previous = now
        assert play.wake is None
        assert "waiting" not in play.sets


def arrival(row):
    return row.partition, row.position


def check_held(twin, held, touched, bound):
    """Of touched keys exactly what is needed is held, and of a key that was deleted long ago nothing."""
    for key in {v.key for v in twin.versions}:
        needed = {(key, v.position) for v in twin.needed(key, bound)}
        own = {h for h in held if h[0] == key}
        assert needed <= own, "a version is lost"
        if key in touched or not needed:
            assert own == needed, "a version is held for ever"


@settings(max_examples=60)
@given(work=kernels, found=batches(drift=0), data=st.data(), tasks=st.integers(1, 3))
def test_how_inputs_interleave_and_are_cut_has_no_say(work, found, data, tasks):
    events = [e for part, _, _ in found for e in part]
    versions = [v for _, part, _ in found for v in part]
    rows = data.draw(st.permutations([*events, *versions]))
    got, previous = [], None
    with tempfile.TemporaryDirectory() as folder:
        play = Play(work, folder, tasks)
        while rows:
            size = data.draw(st.integers(1, len(rows)))
            came, rows = rows[:size], rows[size:]
            # as far as time may go with nothing that is still to come being late, or less far
            latest = min((r.time for r in rows), default=99)
            now = max(latest - data.draw(st.sampled_from([0, 3, 40])), -50 if previous is None else previous)
            out, late, late_right, late_count = play.batch(
                [r for r in came if isinstance(r, Event)], [r for r in came if isinstance(r, Version)], previous, now
            )
            assert (late, late_right, late_count) == ([], [], 0)
            got += out
            previous = now
        got += play.batch([], [], previous, END_US + 1)[0]
    twin = Twin(work)
    twin.versions = versions
    assert sorted(got, key=repr) == sorted((shown(*p) for p in twin.answers(events)), key=repr)


def kernel(**changes):
    plain = {
        "how": "left",
        "tolerance_us": None,
        "history_us": 0,
        "sequences": SEQUENCES[:1],
        "right_types": RIGHT_TYPES,
    }
    return AsOfKernel(KEYS, ("x",), RIGHT, **{**plain, **changes})


def event(time, position=0, key="a"):
    return Event(key, 1, time, 0, position, position)


def version(time, position, key="a", deleted=False, number=None):
    return Version(key, 1, time, 0, position, deleted, number, None)


@pytest.fixture
def play(tmp_path):
    return lambda **changes: Play(kernel(**changes), str(tmp_path))


def ys(results):
    return [(r[5], r[3]) for r in results]


def test_an_event_waits_until_the_watermark_is_after_it(play):
    p = play()
    assert p.batch([event(10)], [version(4, 1)], None, 10)[0] == []
    assert p.wake == 11
    assert ys(p.batch([], [version(10, 2)], 10, 11)[0]) == [(10, "v2")]


def test_an_event_before_the_watermark_is_answered_while_history_keeps_its_versions(play):
    p = play(history_us=5)
    p.batch([], [version(1, 1), version(12, 2), version(16, 3), version(20, 4)], None, 20)
    out, late, _, count = p.batch([event(14, 5), event(15, 6), event(17, 7)], [], 20, 20)
    assert ys(out) == [(15, "v2"), (17, "v3")]
    assert (late, count) == ([5], 1)


def test_a_late_version_is_refused_and_not_placed(play):
    p = play(history_us=50)
    p.batch([], [version(1, 1)], None, 20)
    assert p.batch([], [version(19, 2)], 20, 20)[2:] == ([2], 1)
    assert ys(p.batch([event(19, 3)], [], 20, 30)[0]) == [(19, "v1")]


def test_a_delete_at_the_watermark_still_wins_over_what_comes_with_an_older_sequence(play):
    p = play()
    p.batch([], [version(10, 1, number=1), version(20, 2, deleted=True, number=7)], None, 20)
    p.batch([], [version(20, 3, number=3)], 20, 20)
    assert ys(p.batch([event(20, 4), event(21, 5)], [], 20, 30)[0]) == [(20, None), (21, None)]


def test_a_delete_that_takes_the_place_of_a_version_and_is_old_at_once_leaves_neither(play):
    p = play()
    p.batch([], [version(10, 1, number=1)], None, 5)
    p.batch([], [version(10, 2, deleted=True, number=2)], 5, 20)
    assert p.held() == set()
    assert ys(p.batch([event(25, 3)], [], 20, 30)[0]) == [(25, None)]


def test_a_key_without_any_version_is_padded_with_nulls_of_the_right_types(play):
    assert ys(play().batch([event(3)], [], None, 5)[0]) == [(3, None)]


def test_nothing_is_left_of_keys_that_were_deleted_and_never_seen_again(play):
    p = play(history_us=3)
    previous = None
    for n in range(200):
        time = 10 * n
        p.batch(
            [], [version(time, 2 * n, f"k{n}"), version(time + 1, 2 * n + 1, f"k{n}", deleted=True)], previous, time
        )
        previous = time
        assert len(p.held()) <= 4
    assert sum(run.live for runs in p.sets.values() for run in runs) < 100, "what merges leave behind grows"


def test_the_newest_version_of_a_living_key_is_kept_for_ever(play):
    p = play()
    p.batch([], [version(1, 1), version(2, 2)], None, 5)
    p.batch([], [version(7, 3, "b")], 5, 10**15)
    assert ys(p.batch([event(10**15 + 1, 4)], [], 10**15, 10**15 + 9)[0]) == [(10**15 + 1, "v2")]
