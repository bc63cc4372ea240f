"""Keys that people ask for, against the same question asked of all rows."""

from __future__ import annotations

import struct
import tempfile
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock.state
from penstock.plan.errors import CheckpointError
from penstock.state.asked import asked
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.manifest import Manifest
from penstock.state.samekeys import comparable

SCHEMA = pa.schema({"k": pa.string(), "f": pa.float64(), "at_us": pa.int64(), "n": pa.int64()})
BUCKETS = 3

some_k = st.sampled_from(["a", "b", "", None])
some_f = st.sampled_from([0.0, -0.0, float("nan"), 1.5, None])
some_rows = st.lists(st.tuples(some_k, some_f, st.integers(0, 3)), max_size=30)


def write(folder: str, batches: list[list[tuple[str | None, float | None, int]]]) -> None:
    """Rows by key, by key and time, and by time alone; a row's bucket is that of its key, as everywhere."""
    checkpoint = Checkpoint.open(folder)
    epoch, sets, number = checkpoint.take_epoch(), {b: {} for b in range(BUCKETS)}, 0
    for batch, came in enumerate(batches):
        for bucket in range(BUCKETS):
            own = [r for r in came if sum(map(ord, repr(comparable(r[:2])))) % BUCKETS == bucket]
            rows = [(*r, number + i) for i, r in enumerate(own)]
            number += len(rows)
            state = BucketState(checkpoint.files, "s", bucket, batch, sets[bucket])
            state.buffer("buffer", time="at_us").add(table(rows))
            state.table("one", ["k", "f"]).put(table(distinct(rows, 2)))
            state.table("many", ["k", "f"], within=["at_us"], time="at_us").put(table(distinct(rows, 3)))
            state.table("many", ["k", "f"], within=["at_us"], time="at_us").drop_before(1)
            state.table("more", ["k", "f", "n"]).put(table(rows))
            sets[bucket] = state.sets()
        checkpoint.commit(Manifest(batch, epoch, {"s": sets}))


def table(rows: list[tuple[object, ...]]) -> pa.Table:
    return pa.table([pa.array([r[i] for r in rows], field.type) for i, field in enumerate(SCHEMA)], schema=SCHEMA)


def distinct(rows: list[tuple[object, ...]], width: int) -> list[tuple[object, ...]]:
    return list({comparable(r[:width]): r for r in rows}.values())


@settings(max_examples=60)
@given(
    batches=st.lists(some_rows, min_size=1, max_size=4),
    keys=st.lists(st.tuples(some_k, some_f), min_size=1, max_size=4),
)
def test_what_is_found_is_what_a_look_at_all_rows_finds(batches, keys) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(folder, batches)
        state = penstock.state.open(folder)
        wanted = {"k": [k for k, _ in keys], "f": [f for _, f in keys]}
        for name in state.sets("s"):
            everything = state.table("s", name).to_pylist()
            found = state.find("s", wanted, name)
            assert found.schema.names == ["bucket", *SCHEMA.names]
            naive = [r for key in keys for r in everything if comparable([r["k"], r["f"]]) == comparable(list(key))]
            assert sorted(map(str, found.to_pylist())) == sorted(map(str, naive))
            asks = [comparable([r["k"], r["f"]]) for r in found.to_pylist()]
            assert asks == [comparable([r["k"], r["f"]]) for r in naive], "in the order of asking"


@pytest.fixture
def state(tmp_path: Path) -> penstock.state.StateReader:
    write(str(tmp_path), [[("a", 1.5, 1), ("a", 1.5, 2), ("b", 1.5, 3)]])
    return penstock.state.open(tmp_path)


def test_part_of_a_key_and_more_than_the_key(state) -> None:
    assert state.find("s", {"k": "a"}, "one")["k"].to_pylist() == ["a"]
    assert state.find("s", {"k": "a", "f": 1.5, "at_us": 2}, "many")["at_us"].to_pylist() == [2]
    assert state.find("s", {"at_us": [3, 1]}, "buffer")["at_us"].to_pylist() == [3, 1]
    asks = pa.table({"f": pa.array([1.5], pa.float32()), "k": ["b"]})
    assert state.find("s", asks, "one")["k"].to_pylist() == ["b"]


def test_what_cannot_be_asked_is_told(state) -> None:
    with pytest.raises(CheckpointError, match=r"^step 's', set 'one' has no column 'kk'; it has k, f, at_us, n\.$"):
        state.find("s", {"kk": 1}, "one")
    with pytest.raises(CheckpointError, match=r"^step 's', set 'one': f is double, and 'x' is none\.$"):
        state.find("s", {"f": "x"}, "one")
    with pytest.raises(CheckpointError, match=r"^step 's', set 'one': f is double, and string is none\.$"):
        state.find("s", pa.table({"f": ["x"]}), "one")
    with pytest.raises(CheckpointError, match="name the columns of the keys to find"):
        state.find("s", {}, "one")


def test_a_search_reads_no_file_whole(tmp_path: Path, state) -> None:
    """A value that nobody asked for may be wrong: a checksum would have found it."""
    for run in Checkpoint.open(tmp_path).read(0).runs():
        content = (tmp_path / run.path).read_bytes()
        assert struct.pack("<d", 1.5) in content
        (tmp_path / run.path).write_bytes(content.replace(struct.pack("<d", 1.5), struct.pack("<d", 2.5)))
    assert state.find("s", {"k": "nobody", "f": 0.0}, "one").num_rows == 0
    with pytest.raises(CheckpointError, match="is damaged"):
        state.table("s", "one")


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("7", pa.int32(), 7),
        ("1.20", pa.decimal128(10, 2), Decimal("1.20")),
        ("2026-01-01", pa.date32(), datetime(2026, 1, 1).date()),
        ("2026-01-01 10:00:00", pa.timestamp("us", "UTC"), datetime(2026, 1, 1, 10, tzinfo=UTC)),
        ("2026-01-01T11:00:00+01:00", pa.timestamp("us", "UTC"), datetime(2026, 1, 1, 10, tzinfo=UTC)),
        ("2026-01-01T10:00:00", pa.timestamp("us"), datetime(2026, 1, 1, 10)),
        ("true", pa.bool_(), True),
        ("a", pa.binary(), b"a"),
        ("a", pa.string(), "a"),
    ],
    ids=str,
)
def test_text_becomes_a_value_of_the_keys_type(text, kind, value) -> None:
    assert asked({"k": text}, pa.schema({"k": kind}), "here")["k"].to_pylist() == [value]
