"""A checkpoint on an object store: the same histories as on a file system, and what only an object store does."""

from __future__ import annotations

import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.exceptions import AlreadyExistsError

from penstock.plan.errors import CheckpointError, FencedError
from penstock.state import copies, remote
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.manifest import Manifest
from penstock.state.store import Store
from penstock.testing.servers.s3 import S3


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a store, which this process may use; copies of runs stay in a folder of the test."""
    with S3() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.settings.items():
            patch.setenv(name, value)
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("copies")))
        remote.connect.cache_clear()
        yield server.url


@pytest.fixture
def address(s3: str) -> str:
    return f"{s3}/{uuid.uuid4().hex}"


NAMES = st.sampled_from(["1.json", "a/1.json", "a/2.json", "a/10.json", "a/b/3.json", "ab/4.json", "a/x y+ü.json"])
FOLDERS = st.sampled_from(["", "a", "a/b", "ab", "nowhere"])
CALLS = st.one_of(
    st.tuples(st.just("create"), NAMES, st.binary(max_size=9)),
    st.tuples(st.just("replace"), NAMES, st.binary(max_size=9)),
    st.tuples(st.sampled_from(["delete", "read", "size"]), NAMES),
    st.tuples(st.just("names"), FOLDERS, st.booleans()),
    st.tuples(st.just("numbers"), FOLDERS),
)


class Naive:
    """A store in a dict."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def create(self, name: str, content: bytes) -> None:
        if name in self.files:
            raise FileExistsError
        self.files[name] = content

    def replace(self, name: str, content: bytes) -> None:
        self.files[name] = content

    def delete(self, name: str) -> None:
        self.files.pop(name, None)

    def read(self, name: str) -> bytes:
        if name not in self.files:
            raise FileNotFoundError
        return self.files[name]

    def size(self, name: str) -> int | None:
        return len(self.files[name]) if name in self.files else None

    def names(self, folder: str, recursive: bool = False) -> list[str]:
        below = f"{folder}/" if folder else ""
        found = (name for name in self.files if name.startswith(below))
        return sorted(name for name in found if recursive or "/" not in name[len(below) :])

    def numbers(self, folder: str) -> list[int]:
        stems = (name.rpartition("/")[2].removesuffix(".json") for name in self.names(folder))
        return sorted(int(stem) for stem in stems if stem.isdecimal())


def answer(store: Any, call: tuple[Any, ...]) -> Any:
    try:
        return getattr(store, call[0])(*call[1:])
    except (FileExistsError, FileNotFoundError) as error:
        return type(error)


@settings(max_examples=60)
@given(history=st.lists(CALLS, max_size=25))
def test_both_stores_answer_every_history_as_a_dict_does(s3: str, history: list[tuple[Any, ...]]) -> None:
    naive, far = Naive(), Store.at(f"{s3}/{uuid.uuid4().hex}")
    with tempfile.TemporaryDirectory() as folder:
        near = Store.at(f"{folder}/store")
        for call in history:
            expected = answer(naive, call)
            assert answer(near, call) == expected, f"file system: {call}"
            assert answer(far, call) == expected, f"object store: {call}"


def test_of_many_that_create_one_file_at_once_one_wins(address: str) -> None:
    store = Store.at(address)

    def create(who: int, name: str) -> list[str]:
        try:
            store.create(name, str(who).encode())
        except FileExistsError:
            return []
        return [f"{name} {who}"]

    with ThreadPoolExecutor(8) as pool:
        tries = [pool.submit(create, who, f"epochs/{n}.json") for n in range(20) for who in range(8)]
        winners = sorted(won for one in tries for won in one.result())
    assert winners == sorted(f"epochs/{n}.json {store.read(f'epochs/{n}.json').decode()}" for n in range(20))


def test_a_creation_whose_answer_was_lost_is_known_to_be_its_own(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put = obstore.put

    def put_and_asked_again(*arguments: Any, **options: Any) -> None:
        put(*arguments, **options)
        raise AlreadyExistsError("412")

    store = Store.at(address)
    with monkeypatch.context() as patch:
        patch.setattr(obstore, "put", put_and_asked_again)
        store.create("epochs/1.json", b"mine")
    with pytest.raises(FileExistsError):
        store.create("epochs/1.json", b"mine")


def test_a_store_on_which_the_second_creation_wins_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put = obstore.put

    def careless(*arguments: Any, mode: str = "", **options: Any) -> Any:
        return put(*arguments, **options)

    monkeypatch.setattr(obstore, "put", careless)
    with pytest.raises(CheckpointError, match="does not honour If-None-Match"):
        Checkpoint.open(address)
    assert Store.at(address).names("", recursive=True) == []


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


def dying(monkeypatch: pytest.MonkeyPatch, dies_at: int | None, after: bool) -> Callable[[], int]:
    """Be killed at the n-th change to the store, before it or after it; how many changes there were."""
    changes = 0

    def dies(real: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any, **options: Any) -> Any:
            nonlocal changes
            changes += 1
            if dies_at is not None and changes >= dies_at:
                if after and changes == dies_at:
                    real(*arguments, **options)
                raise Killed
            return real(*arguments, **options)

        return change

    for name in ("put", "delete"):
        monkeypatch.setattr(obstore, name, dies(getattr(obstore, name)))
    return lambda: changes


def work(checkpoint: Checkpoint, batch: int, epoch: int) -> None:
    """A batch that puts a row in a table and adds one to a buffer."""
    latest = checkpoint.latest()
    state = BucketState(checkpoint.files, "step", 0, batch, latest.steps["step"][0] if latest else {})
    state.table("table", key=["k"]).put(pa.table({"k": [batch % 3, 7], "v": [batch, batch]}))
    state.buffer("buffer", time="at_us").add(pa.table({"at_us": [batch]}))
    checkpoint.commit(Manifest(batch, epoch, {"step": {0: state.sets()}}))
    checkpoint.sweep(keep=2)


def content(checkpoint: Checkpoint) -> list[Any]:
    latest = checkpoint.latest()
    if latest is None:
        return []
    state = BucketState(checkpoint.files, "step", 0, 10**6, latest.steps["step"][0])
    times = state.buffer("buffer", time="at_us").read(None, None)
    return [sorted(map(str, state.table("table", key=["k"]).scan().to_pylist())), times.to_pylist()]


def three_batches(s3: str) -> tuple[Checkpoint, int]:
    checkpoint = Checkpoint.open(f"{s3}/{uuid.uuid4().hex}")
    epoch = checkpoint.take_epoch()
    for batch in range(3):
        work(checkpoint, batch, epoch)
    return checkpoint, epoch


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_batch_killed_at_any_put_is_there_or_not_at_all(
    s3: str, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    calm, epoch = three_batches(s3)
    before = content(calm)
    with monkeypatch.context() as patch:
        changes = dying(patch, None, after)
        work(calm, 3, epoch)
    expected, outcomes = content(calm), []
    assert expected != before
    for dies_at in range(1, changes() + 1):
        checkpoint, epoch = three_batches(s3)
        with monkeypatch.context() as patch:
            dying(patch, dies_at, after)
            with pytest.raises(Killed):
                work(checkpoint, 3, epoch)
        again = Checkpoint.open(checkpoint.path)
        again.verify()
        committed = 3 in again.batches()
        assert content(again) == (expected if committed else before), f"killed at change {dies_at}"
        outcomes.append(committed)
        again.sweep_orphans()
        if not committed:
            work(again, 3, again.take_epoch())
        again.sweep(keep=2)
        assert content(again) == expected, f"run again after a kill at change {dies_at}"
        named = {run.path for one in again.batches() for run in again.read(one).runs()}
        assert set(Store.at(again.path).names("state", recursive=True)) == named
    assert outcomes == sorted(outcomes)  # one moment decides
    assert {False, True} == set(outcomes)


def test_the_newest_run_takes_over_and_the_older_one_is_fenced(address: str) -> None:
    old, new = Checkpoint.open(address), Checkpoint.open(address)
    with old.lock():
        first = old.take_epoch()
        work(old, 0, first)
        with new.lock():
            second = new.take_epoch()
            with pytest.raises(FencedError, match=f"run {second} .* has taken over; this is run {first}"):
                work(old, 1, first)
            work(new, 1, second)
    assert new.batches() == [0, 1]


def test_a_run_that_begins_leaves_what_the_one_before_it_may_still_commit(address: str) -> None:
    old, new = Checkpoint.open(address), Checkpoint.open(address)
    epoch = old.take_epoch()
    work(old, 0, epoch)
    state = BucketState(old.files, "step", 0, 1, {})
    state.table("table", key=["k"]).put(pa.table({"k": [1], "v": [1]}))
    with new.lock():
        new.sweep_orphans()
        old.commit(Manifest(1, epoch, {"step": {0: state.sets()}}))  # the new run has no epoch yet
        assert new.take_epoch() > epoch
        new.verify()
    orphan = old.files.write("step", 0, 2, pa.table({"at_us": [1]}), "at_us")  # and here the old one ends
    new.sweep_orphans()
    assert orphan.path in Store.at(address).names("state", recursive=True)
    state = BucketState(new.files, "step", 0, 2, new.read(1).steps["step"][0])
    state.table("table", key=["k"]).put(pa.table({"k": [1], "v": [2]}))
    new.commit(Manifest(2, epoch + 1, {"step": {0: state.sets()}}))
    new.sweep(keep=1)
    assert orphan.path not in Store.at(address).names("state", recursive=True)
    new.verify()


def test_at_an_address_there_is_none_yet_or_one_or_something_else(s3: str, address: str) -> None:
    assert Checkpoint.find(address) is None
    assert Store.at(address).names("", recursive=True) == []
    made = Checkpoint.open(address)
    found = Checkpoint.find(address)
    assert found is not None
    assert found.id == made.id
    Store.at(f"{address}-b").create("thesis.txt", b"mine")
    with pytest.raises(CheckpointError, match=r"is no checkpoint: it has no checkpoint.json but holds thesis.txt"):
        Checkpoint.find(f"{address}-b")


def test_a_run_is_read_from_its_copy_and_fetched_where_there_is_none(address: str) -> None:
    checkpoint = Checkpoint.open(address)
    run = checkpoint.files.write("step", 0, 0, pa.table({"at_us": [1, 2]}), "at_us")
    copy = Path(copies.path_of(checkpoint.path, run.path))
    assert copy.stat().st_mode & 0o777 == 0o600
    copy.unlink()  # as on another machine
    assert checkpoint.files.open(run).column("at_us").to_pylist() == [1, 2]
    copy.write_bytes(b"flipped" + copy.read_bytes()[7:])
    with pytest.raises(CheckpointError, match="its checksum is not the one"):
        checkpoint.files.open(run)
    Store.at(address).delete(run.path)
    assert not copy.exists()
    with pytest.raises(CheckpointError, match="is missing"):
        checkpoint.files.open(run)


def test_a_copy_that_nobody_has_used_for_long_goes_when_another_comes(address: str) -> None:
    checkpoint = Checkpoint.open(address)
    runs = [checkpoint.files.write("step", 0, n, pa.table({"at_us": [n]}), "at_us") for n in range(2)]
    old, used = (Path(copies.path_of(checkpoint.path, run.path)) for run in runs)
    for copy in (old, used):
        os.utime(copy, (1, 1))
    checkpoint.files.open(runs[1])
    checkpoint.files.write("step", 0, 2, pa.table({"at_us": [2]}), "at_us")
    assert (old.exists(), used.exists()) == (False, True)
    assert checkpoint.files.open(runs[0]).num_rows == 1  # fetched again


NO_ADDRESS = [
    "hdfs://name/path",
    "s3://",
    "s3://key:secret@bucket/x",
    "s3://secret@bucket/x",
    "s3://bucket/x?token=1",
    "abfss://container:secret@account.dfs.core.windows.net/x",
    "abfss://secret@elsewhere.example/x",
    "abfss://container@account.dfs.core.windows.net/secret@x",
    "abfss://container@account.dfs.core.windows.net/?token=1",
    "abfss://container@account.dfs.core.windows.net/x#token",
]


@pytest.mark.parametrize("address", NO_ADDRESS)
def test_an_address_that_is_none_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(CheckpointError, match="credentials are in the environment") as refused:
        Checkpoint.open(address)
    assert "secret" not in str(refused.value)
    assert "token" not in str(refused.value)


@pytest.mark.parametrize("end", ["dfs.core.windows.net", "blob.core.windows.net", "dfs.fabric.microsoft.com"])
@pytest.mark.parametrize("scheme", ["abfs", "abfss", "ABFSS"])
def test_an_address_of_azure_may_name_its_account(scheme: str, end: str) -> None:
    store = Store.at(f"{scheme}://checkpoints@account1.{end}/shop/")
    assert store.root == f"{scheme.lower()}://checkpoints@account1.{end}/shop"
    client = remote.connect(store.root)
    assert (client.prefix, client.config["container_name"]) == ("shop", "checkpoints")
    assert client.config["account_name"] == "account1"


def test_the_mark_of_a_creation_may_stand_on_every_store() -> None:
    assert re.fullmatch("[a-z]+", remote.WRITER)  # Azure takes names of C#, and proxies drop those with _


def test_a_store_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch, s3: str) -> None:
    with pytest.raises(CheckpointError, match=r"s3://no-such-bucket/x.*: the object store does not do it"):
        Checkpoint.open("s3://no-such-bucket/x")
