"""Is a checkpoint whole: at any moment of a run, with any file of its tail damaged, and after the repair."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.plan.errors import CheckpointError, CheckpointInUseError
from penstock.run import begun
from penstock.run.begun import Begun
from penstock.run.findings import Fault
from penstock.run.repair import repair
from penstock.run.spark_log import beside
from penstock.run.wholeness import check_whole, faults
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.manifest import Manifest

QUERY = "0f0e"
BATCHES = 3


def plan(batch: int) -> str:
    """What Spark writes before a batch: two sources, of which the second has nothing yet."""
    head = {"batchWatermarkMs": 0, "batchTimestampMs": 1_800_000_000_000 + batch, "conf": {"a": "b" * 600}}
    return f'v1\n{json.dumps(head)}\n{{"logOffset":{batch}}}\n-'


def put(folder: Path, name: str, text: str) -> None:
    """Write a file as Hadoop does, its checksums beside it."""
    file, content = folder / name, text.encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    pieces = (zlib.crc32(content[at : at + 512]).to_bytes(4, "big") for at in range(0, len(content), 512))
    (folder / beside(name)).write_bytes(b"crc\0" + (512).to_bytes(4, "big") + b"".join(pieces))


def steps_of_a_run(folder: Path) -> Iterator[tuple[str, int]]:
    """Make a checkpoint as a run does, and stop after each thing that is written."""
    place = Checkpoint.open(folder)
    place.write_json("job.json", {"job": "shop"})
    epoch = place.take_epoch()
    yield "opened", -1
    put(folder, "spark/metadata", json.dumps({"id": QUERY}))
    yield "named", -1
    sets = {}
    for batch in range(BATCHES):
        put(folder, f"spark/sources/0/{batch}", f'v1\n{{"path":"file:///in/{batch}","timestamp":1,"batchId":{batch}}}')
        yield "noted", batch
        put(folder, f"spark/offsets/{batch}", plan(batch))
        yield "planned", batch
        begun.begin(place, Begun(batch, plan(batch), QUERY))
        yield "begun", batch
        state = BucketState(place.files, "clicks", 0, batch, sets)
        state.buffer("rows", time="at_us").add(pa.table({"at_us": [batch]}))
        sets = state.sets()
        body = Begun(batch, plan(batch), QUERY).to_body()
        place.commit(Manifest(batch, epoch, {"clicks": {0: sets}}, body))
        yield "committed", batch
        put(folder, f"spark/commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')
        yield "done", batch


MOMENTS = [
    "opened -1", "named -1",
    *(f"{what} {batch}" for batch in range(BATCHES) for what in ("noted", "planned", "begun", "committed", "done")),
]  # fmt: skip


def stopped(folder: Path, moment: str) -> Checkpoint:
    """A checkpoint whose run was killed at a moment."""
    for what, batch in steps_of_a_run(folder):
        if f"{what} {batch}" == moment:
            break
    return Checkpoint.open(folder, create=False)


def spark_goes_on(folder: Path) -> tuple[int, str | None]:
    """What Spark does when it starts: the batch that it runs, and by which plan; None when it makes a new one."""
    assert json.loads((folder / "spark/metadata").read_text())["id"] == QUERY
    planned = sorted(int(p.name) for p in (folder / "spark/offsets").glob("[0-9]*"))
    done = sorted(int(p.name) for p in (folder / "spark/commits").glob("[0-9]*"))
    if not planned:
        return 0, None
    last = planned[-1]
    assert last == 0 or last - 1 in planned, "Spark would say that the plan before does not exist"
    if done:
        assert (folder / f"spark/commits/{done[-1]}").read_text().startswith("v1\n{")
    return (last + 1, None) if done and done[-1] == last else (last, (folder / f"spark/offsets/{last}").read_text())


def goes_on_right(folder: Path) -> None:
    """No batch is left out, and one that may be written somewhere is made from the same plan again."""
    place = Checkpoint.open(folder, create=False)
    state = max(place.batches(), default=-1)
    batch, by = spark_goes_on(folder)
    assert batch in (state, state + 1)
    if batch == state + 1:
        latest = begun.begun(place)
        assert by is None or by == plan(batch)
        assert by is not None or latest is None or latest.batch < batch


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_that_was_killed_leaves_a_whole_checkpoint(tmp_path, moment):
    place = stopped(tmp_path / "ck", moment)
    assert list(faults(place, each_run=True)) == []
    check_whole(place)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-3])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    file.write_bytes(bytes(content))


def halve(file: Path) -> None:
    """Cut between two lines, so that what is left can be read; without the checksum that would tell."""
    content = file.read_text().rpartition("\n")[0]
    file.write_text(content)
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


DAMAGES: list[Callable[[Path], None]] = [cut, empty, flip, halve, Path.unlink]
TAIL = {
    f"spark/{kind}/{batch}": (kind, batch)
    for kind in ("offsets", "commits")
    for batch in (BATCHES - 2, BATCHES - 1)
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
@pytest.mark.parametrize("name", [*TAIL, "spark/metadata"])
@pytest.mark.parametrize("moment", MOMENTS[-5:])
def test_a_torn_tail_is_named_and_after_the_repair_the_job_goes_on_as_if_nothing_had_been(
    tmp_path, moment, name, damage
):
    place = stopped(tmp_path / "ck", moment)
    folder = Path(place.path)
    if not (folder / name).exists() or (damage is halve and name.endswith("metadata")):
        return
    kind, batch = TAIL.get(name, ("metadata", -1))
    damage(folder / name)
    found = list(faults(place))
    last = max(int(p.name) for p in (folder / "spark/commits").glob("[0-9]*")) if kind == "commits" else -1
    # Spark reads the newest commit only; without it, it runs the batch again
    harmless = kind == "commits" and (batch < last or damage is Path.unlink)
    harmless = harmless or (damage is Path.unlink and moment == f"planned {batch}")  # it plans that batch anew
    assert [fault.file for fault in found] == ([] if harmless else [name])
    if not harmless:
        assert found[0].repair is not None, found[0].said
        with pytest.raises(CheckpointError, match=name + ".*penstock doctor FILE --repair"):
            check_whole(place)
        before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and "spark" in p.parts}
        said = repair(place)
        assert said
        kept = {p.read_bytes() for p in (folder / "aside").rglob("*") if p.is_file()}
        gone = {p for p in before if not p.exists() or p.read_bytes() != before[p]}
        assert {before[p] for p in gone if before[p]} <= kept  # nothing is lost
    assert list(faults(place)) == []
    goes_on_right(folder)


def only(place: Checkpoint) -> Fault:
    (fault,) = faults(place, each_run=True)
    return fault


def done(folder: Path) -> Checkpoint:
    return stopped(folder, MOMENTS[-1])


def test_a_plan_that_nobody_kept_is_not_guessed(tmp_path):
    place = stopped(tmp_path, f"planned {BATCHES - 1}")
    (tmp_path / "begun.json").unlink()  # as an older Penstock leaves it
    empty(tmp_path / f"spark/offsets/{BATCHES - 1}")
    assert only(place).repair is None
    assert repair(place) == []


def test_spark_and_state_of_other_batches_are_refused(tmp_path):
    place = done(tmp_path / "all")
    older = tmp_path / "older"
    shutil.copytree(place.path, older)
    for batch in (1, 2):
        (older / f"manifest/{batch}.json").unlink()
    (older / "begun.json").unlink()
    fault = only(Checkpoint.open(older))
    assert fault.file == "spark/offsets/2"
    assert "different copies" in fault.said
    assert fault.repair is None
    for batch in (1, 2):
        (Path(place.path) / f"spark/offsets/{batch}").unlink()
    fault = only(place)
    assert fault.said.startswith("spark/offsets/2 is missing; Spark's part ends with batch 0: ours with batch 2")
    assert fault.repair is None


def test_a_state_that_lacks_the_last_batch_gets_it_again(tmp_path):
    place = done(tmp_path)
    (tmp_path / f"manifest/{BATCHES - 1}.json").unlink()
    assert only(place).file == f"spark/commits/{BATCHES - 1}"
    repair(place)
    assert list(faults(place)) == []
    goes_on_right(tmp_path)


def test_a_plan_or_a_query_of_another_copy_is_refused(tmp_path):
    place = done(tmp_path)
    put(tmp_path, f"spark/offsets/{BATCHES - 1}", plan(7))
    assert "is not the plan that the batch was made by" in only(place).said
    put(tmp_path, f"spark/offsets/{BATCHES - 1}", plan(BATCHES - 1))
    put(tmp_path, "spark/metadata", '{"id":"another"}')
    assert "is of query another, and the state of query 0f0e" in only(place).said


def test_a_batch_that_was_begun_by_another_plan_is_refused(tmp_path):
    place = stopped(tmp_path, "begun 1")
    begun.begin(place, Begun(1, plan(1), QUERY, job={"job": "shop"}))
    assert begun.before(place, Begun(1, plan(1), QUERY)) == Begun(1, plan(1), QUERY, job={"job": "shop"})
    assert begun.before(place, Begun(2, plan(2), QUERY)) is None
    for refused in (begun.before, begun.begin):
        with pytest.raises(CheckpointError, match="batch 1 was begun before, by another plan"):
            refused(place, Begun(1, plan(9), QUERY))


def test_a_plan_that_no_output_can_hold_is_made_anew(tmp_path):
    """A batch was at work and had not come to its outputs."""
    place = stopped(tmp_path, f"planned {BATCHES - 1}")
    empty(tmp_path / f"spark/offsets/{BATCHES - 1}")
    assert "had not come to its outputs" in only(place).said
    repair(place)
    assert spark_goes_on(tmp_path) == (BATCHES - 1, None)
    goes_on_right(tmp_path)


@pytest.mark.parametrize(("moment", "lost"), [("begun 2", True), ("committed 2", False)])
def test_a_batch_at_hand_whose_job_is_no_longer_known_is_told_with_its_repair(tmp_path, moment, lost):
    place = stopped(tmp_path, moment)
    flip(tmp_path / "begun.json")
    assert ("start the job as it was: outputs may hold batch 2" in only(place).said) == lost
    repair(place)
    assert list(faults(place)) == []
    goes_on_right(tmp_path)


@pytest.mark.parametrize(
    ("name", "damage", "said", "mended"),
    [
        ("job.json", flip, "job.json is damaged", False),
        ("job.json", Path.unlink, "job.json is missing", False),
        ("begun.json", flip, "begun.json is damaged", True),
        ("manifest/2.json", flip, "manifest/2.json cannot be read: it names the newest state", False),
        ("manifest/1.json", flip, "manifest/1.json cannot be read: an older version", True),
        ("epochs/1.json", Path.unlink, "epochs has lost run 1", False),
        ("spark/sources/0/1", empty, "spark/sources/0/1 is empty", False),
        ("spark/sources/0/2", Path.unlink, "spark/sources/0/2 is missing", False),
        ("spark", shutil.rmtree, "spark/offsets is empty or gone", False),
    ],
)
def test_every_other_file_is_looked_at(tmp_path, name, damage, said, mended):
    place = done(tmp_path)
    damage(tmp_path / name)
    fault = next(iter(faults(place)))
    assert fault.said.startswith(said)
    assert (fault.repair is not None) == mended
    if mended:
        repair(place)
        assert list(faults(place)) == []


def test_a_run_that_was_flipped_is_found_by_its_checksum_and_only_where_runs_are_read(tmp_path):
    place = done(tmp_path)
    (run, *_) = place.read(BATCHES - 1).runs()
    flip(tmp_path / run.path)
    assert list(faults(place)) == []
    assert only(place).said.startswith(f"step 'clicks', bucket 0, file {run.path} is damaged")
    (tmp_path / run.path).unlink()
    assert [fault.wrong for fault in faults(place)] == ["is missing"]


def test_files_that_no_plan_names_are_noted_again(tmp_path):
    place = stopped(tmp_path, "noted 2")
    empty(tmp_path / "spark/sources/0/2")
    assert repair(place) == [f"moved spark/sources/0/{n} to aside/1/spark/sources/0/{n}" for n in ("2", ".2.crc")]
    assert list(faults(place)) == []


def test_nothing_is_mended_while_a_run_lives(tmp_path):
    place = done(tmp_path)
    empty(tmp_path / "spark/commits/2")
    with place.lock(), pytest.raises(CheckpointInUseError):
        repair(place)
    assert (tmp_path / "spark/commits/2").exists()
