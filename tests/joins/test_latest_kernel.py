"""The kernel of changelogs against a twin that keeps every row and takes the greatest, over any cut and any order."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.joins.latest_kernel import UNTIL, LatestKernel
from penstock.plan.durations import BEGINNING_US, END_US
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.edge import BUCKET, DELETED, PARTITION, POSITION, TIME, WEIGHT, StepClock

KEYS = ("k", "j")
SEQUENCES = ("__ps_seq_0", "__ps_seq_1")
TYPES = {"k": pa.string(), "j": pa.int32(), "x": pa.int64(), "tags": pa.list_(pa.string())}
NAN = float("nan")
NOW = StepClock(5, 9)
# values by type, from the least to the greatest
ORDERED = {
    "long": (pa.int64(), [None, -(2**63), -1, 7]),
    "text": (pa.string(), [None, "", "a", "é"]),
    "double": (pa.float64(), [None, -1.5, 0.0, NAN]),
    "decimal": (pa.decimal128(38, 2), [None, Decimal("-1.10"), Decimal("0.20"), Decimal("12345678901234567890.10")]),
    "time": (pa.timestamp("us", "UTC"), [None, *(datetime(y, 1, 1, tzinfo=UTC) for y in (1960, 2024, 2025))]),
    "bool": (pa.bool_(), [None, False, True, True]),
}


@dataclass(frozen=True)
class Row:
    k: str | None
    j: int
    x: int | None
    tags: tuple[str, ...] | None
    deleted: bool
    places: tuple[int, int]  # of its sequences, among the ordered values of their type
    partition: int
    position: int
    time: int = 0

    @property
    def key(self):
        return self.k, self.j

    @property
    def values(self):
        return self.x, self.tags


class Twin:
    """What a changelog says, in lists; ``kinds`` are the types of the sequences that count."""

    def __init__(self, kinds, arrival_wins):
        self.kinds, self.arrival_wins, self.rows = kinds, arrival_wins, []

    def table(self):
        newest = {}
        for row in sorted(self.rows, key=self.order):
            newest[row.key] = row
        return Counter((*r.key, *r.values) for r in newest.values() if not r.deleted)

    def order(self, row):
        places = [min(p, 2) if k == "bool" else p for k, p in zip(self.kinds, row.places, strict=False)]
        return (*places, *([] if self.arrival_wins else [row.deleted]), row.partition, row.position)


def arrow(rows, kinds):
    columns = {name: pa.array([getattr(r, name) for r in rows], TYPES[name]) for name in TYPES}
    for at, kind in enumerate(kinds):
        type_, values = ORDERED[kind]
        columns[SEQUENCES[at]] = pa.array([values[r.places[at]] for r in rows], type_)
    columns |= {
        DELETED: pa.array([r.deleted for r in rows], pa.bool_()),
        TIME: pa.array([r.time for r in rows], pa.int64()),
        PARTITION: pa.array([r.partition for r in rows], pa.int32()),
        POSITION: pa.array([r.position for r in rows], pa.int64()),
        BUCKET: pa.array([0] * len(rows), pa.int32()),
    }
    table = pa.table(columns)
    # Spark says of some columns that they hold no nulls
    sure = {"j", DELETED, TIME, PARTITION, POSITION, BUCKET}
    return table.cast(pa.schema([f.with_nullable(f.name not in sure) for f in table.schema]))


class Play:
    """A kernel over real runs in a folder, batch after batch; the changes add up to a table."""

    def __init__(self, folder, kinds=("long",), arrival_wins=False, tasks=1, carried=("x", "tags"), **options):
        self.work = LatestKernel(KEYS, carried, SEQUENCES[: len(kinds)], arrival_wins, **options)
        self.kinds, self.tasks = kinds, tasks
        self.files = Checkpoint.open(folder).files
        self.sets, self.number, self.table, self.state = {}, 0, Counter(), None

    def batch(self, rows, clock=NOW):
        """The changes of a batch."""
        assert self.work.late_before(5) == self.work.doubtful_before(None) == BEGINNING_US
        self.number += 1
        parts = [rows[i :: self.tasks] for i in range(self.tasks)]
        packed = [self.work.combine(arrow(part, self.kinds), 5) for part in parts if part]
        for part, table in zip([p for p in parts if p], packed, strict=True):
            assert table.num_rows == len({r.key for r in part}), "a task sends one row for each key"
        return self.step(packed[::-1], clock)

    def step(self, tables, clock=NOW):
        """The changes that the rows of tasks make."""
        self.state = BucketState(self.files, "t", 0, self.number, self.sets)
        outcome = self.work.step(self.state, tables, clock)
        self.sets = self.state.sets()
        assert (outcome.wake_us, outcome.late, outcome.late_count) == (None, None, 0)
        if outcome.main is None:
            return []
        assert outcome.main.num_rows, "no results is None"
        assert outcome.main.column_names == [*KEYS, *self.work.carried, WEIGHT]
        changes = [tuple(tuple(v) if isinstance(v, list) else v for v in r.values()) for r in outcome.main.to_pylist()]
        self.apply(changes)
        return changes

    def apply(self, changes):
        """Change the table: what goes is there, what comes is not, no change changes nothing, none comes twice."""
        gone, come = (Counter(r[:-1] for r in changes if r[-1] == weight) for weight in (-1, 1))
        assert not gone & come, "a change that changes nothing"
        assert gone <= self.table, "a row is taken away that readers do not have"
        self.table = self.table - gone + come
        assert len({r[:2] for r in self.table}) == self.table.total(), "a key has two rows"

    def held(self):
        time = None if self.work.tombstones_us is None else UNTIL
        return self.state.table("latest", KEYS, time=time).scan()


parts = st.tuples(
    st.sampled_from(["a", "b", None]), st.integers(1, 2), st.sampled_from([None, 1, 2]),
    st.sampled_from([None, (), ("t",)]), st.sampled_from([False, False, True]),
    st.tuples(st.integers(0, 3), st.integers(0, 3)), st.integers(0, 2),
)  # fmt: skip
some_rows = st.lists(parts, max_size=25).flatmap(
    lambda found: st.permutations([Row(*p, position) for position, p in enumerate(found)])
)
some_kinds = st.lists(st.sampled_from(sorted(ORDERED)), max_size=2).map(tuple)


@settings(max_examples=120)
@given(rows=some_rows, kinds=some_kinds, arrival_wins=st.booleans(), tasks=st.integers(1, 3), data=st.data())
def test_after_every_batch_the_table_is_what_the_twin_has(rows, kinds, arrival_wins, tasks, data):
    twin = Twin(kinds, arrival_wins)
    with tempfile.TemporaryDirectory() as folder:
        play = Play(folder, kinds, arrival_wins, tasks)
        while rows:
            size = data.draw(st.integers(1, min(len(rows), 9)))
            came, rows = rows[:size], rows[size:]
            twin.rows += came
            before = play.table
            changes = play.batch(came)
            assert play.table == twin.table()
            assert len(changes) == ((before - play.table) + (play.table - before)).total(), "more than the net"
            assert play.held().num_rows == len({r.key for r in twin.rows}), "one row is held for each key"


@settings(max_examples=60)
@given(rows=some_rows, kinds=some_kinds, arrival_wins=st.booleans(), data=st.data())
def test_neither_order_nor_cut_has_a_say(rows, kinds, arrival_wins, data):
    tables = []
    for order in (rows, data.draw(st.permutations(rows))):
        with tempfile.TemporaryDirectory() as folder:
            play = Play(folder, kinds, arrival_wins)
            while order:
                size = data.draw(st.integers(1, len(order)))
                play.batch(order[:size])
                order = order[size:]
            tables.append(play.table)
    assert tables[0] == tables[1]


def row(position, place, x=1, deleted=False, partition=0):
    return Row("a", 1, x, ("t",), deleted, (place, 0), partition, position)


@pytest.fixture
def play(tmp_path):
    return lambda **options: Play(str(tmp_path), **options)


def test_an_older_sequence_never_replaces_a_newer_one(play):
    p = play()
    p.batch([row(1, 2, x=1)])
    assert p.batch([row(2, 1, x=2)]) == []
    assert p.table == Counter([("a", 1, 1, ("t",))])


def test_a_delete_stays_so_that_an_older_upsert_does_not_bring_the_row_back(play):
    p = play()
    assert p.batch([row(1, 3, deleted=True)]) == []
    assert p.held()["tags"].null_count == p.held()["x"].null_count == 1
    assert p.batch([row(2, 2, x=2)]) == []
    assert p.batch([row(3, 3, x=3)]) == [], "of equal sequences the delete wins"


def test_where_arrival_decides_an_upsert_after_a_delete_of_its_sequence_is_there(play):
    p = play(arrival_wins=True)
    p.batch([row(1, 3, deleted=True)])
    assert p.batch([row(3, 3, x=3)]) == [("a", 1, 3, ("t",), 1)]


def test_equal_values_with_a_newer_sequence_change_nothing_but_the_sequence(play):
    p = play()
    p.batch([row(1, 1, x=1)])
    assert p.batch([row(2, 3, x=1)]) == []
    assert p.batch([row(3, 2, x=9)]) == []


def test_a_row_that_comes_again_with_its_own_place_is_the_same_row(play):
    p = play(kinds=())
    p.batch([row(1, 0, x=1)])
    assert p.batch([row(1, 0, x=1)]) == []
    assert p.batch([row(1, 0, x=2)]) == [("a", 1, 1, ("t",), -1), ("a", 1, 2, ("t",), 1)]


def test_a_table_of_keys_alone_changes_when_they_come_and_go(play):
    p = play(carried=())
    assert p.batch([row(1, 1)]) == [("a", 1, 1)]
    assert p.batch([row(2, 2)]) == []
    assert p.batch([row(3, 3, deleted=True)]) == [("a", 1, -1)]


# deletes that are forgotten


class ForgetfulTwin(Twin):
    """The same with the winners alone, of which deletes are forgotten when their time is over."""

    def __init__(self, kinds, arrival_wins, tombstones_us, timed):
        super().__init__(kinds, arrival_wins)
        self.tombstones_us, self.timed, self.until = tombstones_us, timed, {}

    def batch(self, rows, clock):
        now = clock.previous_us if self.timed else clock.wall_us
        self.rows = [r for r in self.rows if not r.deleted or self.until[r] >= now]
        winners = {}
        for row in sorted([*self.rows, *rows], key=self.order):
            winners[row.key] = row
        for row in rows:
            self.until[row] = (row.time if self.timed else clock.wall_us) + self.tombstones_us
        self.rows = list(winners.values())


times = st.integers(0, 40)
some_timed_rows = st.lists(st.tuples(parts, times), max_size=25).map(
    lambda found: [Row(*p, position, time) for position, (p, time) in enumerate(found)]
)


@settings(max_examples=80)
@given(rows=some_timed_rows, kinds=some_kinds, arrival_wins=st.booleans(), tasks=st.integers(1, 3),
       tombstones_us=st.integers(0, 20), timed=st.booleans(), data=st.data())  # fmt: skip
def test_a_delete_is_remembered_for_its_time_and_then_forgotten(
    rows, kinds, arrival_wins, tasks, tombstones_us, timed, data
):
    twin = ForgetfulTwin(kinds, arrival_wins, tombstones_us, timed)
    with tempfile.TemporaryDirectory() as folder:
        play = Play(folder, kinds, arrival_wins, tasks, tombstones_us=tombstones_us, timed=timed)
        previous = wall = 0
        while rows:
            size = data.draw(st.integers(1, min(len(rows), 4)))
            came, rows = rows[:size], rows[size:]
            now, wall = previous + data.draw(st.integers(0, 15)), wall + data.draw(st.integers(0, 15))
            clock = StepClock(previous, now, 0, wall)
            twin.batch(came, clock)
            play.batch(came, clock)
            assert play.table == twin.table()
            assert play.held().num_rows == len(twin.rows), "one row for each key, and for each delete in its time"
            previous = now


def test_a_delete_is_remembered_to_the_last_instant_of_its_time(play):
    p = play(tombstones_us=10, timed=True)
    p.batch([Row("a", 1, 1, None, True, (3, 0), 0, 1, time=100)], StepClock(90, 100))
    assert p.batch([row(2, 2, x=2)], StepClock(110, 200)) == []
    assert p.batch([row(3, 2, x=3)], StepClock(111, 111)) == [("a", 1, 3, ("t",), 1)]


def test_living_rows_stay_though_time_ends_and_no_time_is_too_long(play):
    p = play(tombstones_us=2**70, timed=True)
    p.batch([row(1, 1, x=1), Row("b", 1, 1, None, True, (3, 0), 0, 2, time=2**62)])
    assert p.batch([row(2, 2, x=2)], StepClock(2**63 - 1, 2**63 - 1)) == [
        ("a", 1, 1, ("t",), -1),
        ("a", 1, 2, ("t",), 1),
    ]
    assert p.held()[UNTIL].to_pylist() == [END_US, END_US]


def test_without_a_time_for_deletes_state_is_as_it_always_was(play):
    p = play()
    p.batch([row(1, 1)])
    assert p.held().column_names == [*KEYS, "x", "tags", SEQUENCES[0], DELETED, PARTITION, POSITION]
    assert [run.time_low for run in p.sets["latest"]] == [None]


def test_state_is_bounded_by_living_keys_and_by_deletes_in_their_time(play):
    p, sizes = play(tombstones_us=1, timed=True), []
    for batch in range(220):  # five keys come, and go with the next batch
        come = [Row(f"{batch}-{i}", 1, 1, None, False, (1, 0), 0, batch * 10 + i, batch) for i in range(5)]
        go = [Row(f"{batch - 1}-{i}", 1, 1, None, True, (2, 0), 0, batch * 10 + 5 + i, batch) for i in range(5)]
        p.batch([*come, *go], StepClock(batch - 1, batch))
        sizes.append(p.state.rows)
        assert p.table.total() == 5
    assert p.held().num_rows <= 5 * (1 + 3)
    assert max(sizes[110:]) <= max(sizes[:110]), "what was forgotten goes from the files too, merge by merge"


# a compacted log


def compacted(rows, kinds, arrival_wins):
    """The log with only the last row of each key, a delete too, in its old place."""
    twin = Twin(kinds, arrival_wins)
    last = {r.key: r for r in sorted(rows, key=twin.order)}
    return [r for r in rows if last[r.key] is r]


@settings(max_examples=80)
@given(rows=some_rows, kinds=some_kinds, arrival_wins=st.booleans(), data=st.data())
def test_a_new_consumer_rebuilds_the_same_table_from_a_compacted_log(rows, kinds, arrival_wins, data):
    at = data.draw(st.integers(0, len(rows)))
    log, rest = rows[:at], rows[at:]
    tables, changes = [], []
    for read in (log, compacted(log, kinds, arrival_wins)):
        with tempfile.TemporaryDirectory() as folder:
            play = Play(folder, kinds, arrival_wins)
            while read:
                size = data.draw(st.integers(1, len(read)))
                play.batch(read[:size])
                read = read[size:]
            tables.append(play.table)
            changes.append(Counter(play.batch(rest) if rest else []))  # deletes hold older rows back as before
    assert tables[0] == tables[1]
    assert changes[0] == changes[1]


@settings(max_examples=40)
@given(rows=some_rows, kinds=some_kinds, arrival_wins=st.booleans())
def test_the_state_of_a_table_is_a_compacted_log_itself(rows, kinds, arrival_wins):
    with tempfile.TemporaryDirectory() as old, tempfile.TemporaryDirectory() as new:
        play, again = Play(old, kinds, arrival_wins), Play(new, kinds, arrival_wins)
        if rows:
            play.batch(rows)
            again.step([play.held()])
        assert again.table == play.table
