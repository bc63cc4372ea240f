"""``penstock doctor``: who holds time back, what comes next, what waits; and a torn tail that is mended for real."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock import CheckpointError, Job, cli, sinks, sources
from penstock import doctor as doctor_module
from penstock.compile.layout import Layout
from penstock.doctor import examine
from penstock.doctor_load import refused, skew
from penstock.doctor_time import Times
from penstock.run.batch import Engine
from penstock.run.begun import Begun
from penstock.run.clock import Clock, Rules, StepTime
from penstock.run.findings import Fault
from penstock.run.fit import DOCUMENT, signature
from penstock.run.query import start
from penstock.state import remote
from penstock.state.checkpoint import Checkpoint
from penstock.state.manifest import Manifest
from penstock.state.runs import Run
from penstock.testing.pushed import as_micros
from penstock.testing.servers.s3 import S3
from penstock.windows import tumbling

SCHEMA = "key string, at timestamp"
HOUR = 3_600_000_000
TEN = as_micros("2026-01-01 10:00:00", "ten")
WALL = as_micros("2026-01-02 00:00:00", "wall")


def joined(idle_after=None, how: str = "inner") -> Job:
    """Left and right that meet within an hour, counted by the hour."""
    job = Job("joined")
    streams = []
    for name, idle in (("left", None), ("right", idle_after)):
        source = sources.files(f"in/{name}", "json", SCHEMA)
        streams.append(job.stream(name, source, time="at", lateness="10 minutes", idle_after=idle))
    left, right = streams
    pairs = left.join(right.rename(at="then"), on="key", within="1 hour", how=how, name="pairs")
    pairs.by("key").window(tumbling("1 hour")).agg(n="count(*)").to(sinks.memory("joined"))
    return job


def manifest_of(job: Job, batches, counters=None, steps=None, wakes=None) -> Manifest:
    """The manifest after batches: each its minutes of wall time, and by input and partition the newest time."""
    layout = Layout(job)
    rules = {i.name: Rules.of(i) for i in layout.inputs if i.timed}
    times = {s.name: StepTime.of(s) for s in layout.stages}
    clock = Clock()
    for minutes, newest in batches:
        wall = WALL + int(minutes * 60_000_000)
        clock = clock.moved(rules, times, newest, wall)
    body = {
        "clock": clock.to_json(),
        "wakes": wakes or {},
        "wall_us": wall,
        "counters": {"rows": {}, "late": {}, "dead": {}, "out": {}, **(counters or {})},
    }
    return Manifest(len(batches) - 1, 1, steps or {}, body)


def stuck(job: Job, batches, minutes: int) -> list[tuple[bool, str]]:
    return list(Times(Layout(job), manifest_of(job, batches), WALL + minutes * 60_000_000).stuck())


SPOKE = (0, {"left": {0: TEN}, "right": {0: TEN}})


def test_an_input_that_has_never_spoken_is_named():
    ((hand, said),) = stuck(joined(), [(0, {"left": {0: TEN}})], 0)
    assert hand
    assert said.startswith("the input 'right' holds time back in 'pairs', 'window_by_key': it has brought no row yet.")
    assert "idle_after=... in job.stream('right', ...)" in said


def test_an_input_that_fell_silent_is_named_with_how_far_it_is_behind():
    ((hand, said),) = stuck(joined(), [SPOKE, (5, {"left": {0: TEN + 2 * HOUR}})], 5)
    assert hand
    assert "it has come to 2026-01-01 09:50:00Z, 'left' to 2026-01-01 11:50:00Z: 2 hours apart" in said
    assert "14 hours 15 minutes behind the wall clock" in said
    assert "its last row came 5 minutes ago (2026-01-02 00:00:00Z)" in said


def test_an_input_that_is_only_slower_needs_no_hand():
    batches = [SPOKE, (5, {"left": {0: TEN + 2 * HOUR}, "right": {0: TEN + HOUR}})]
    ((hand, said),) = stuck(joined(), batches, 5)
    assert not hand
    assert "the input 'right' holds time back" in said


def test_with_idle_after_it_says_when_time_goes_on_and_then_nobody_holds_it():
    batches = [SPOKE, (5, {"left": {0: TEN + 2 * HOUR}})]
    ((hand, said),) = stuck(joined("30 minutes"), batches, 5)
    assert not hand
    assert said.endswith("After 30 minutes of silence time goes on without it")
    assert stuck(joined("1 minute"), batches, 5) == []
    later = Times(Layout(joined("1 minute")), manifest_of(joined("1 minute"), batches), WALL)
    assert "it is idle, and time goes on without it" in list(later.inputs())[1]


def test_inputs_that_go_on_together_hold_nobody_back():
    assert stuck(joined(), [SPOKE], 60) == []


def test_the_partition_that_is_behind_is_named():
    batches = [(0, {"left": {0: TEN + HOUR, 1: TEN, 2: TEN + HOUR}, "right": {0: TEN + HOUR}}), (2, {"left": {0: TEN}})]
    ((hand, said),) = stuck(joined(), batches, 3)
    assert hand
    assert "the input 'left' holds time back" in said
    assert "of its 3 partitions 1 is the slowest, 1 hour behind 0; its last row came 3 minutes ago" in said


def test_when_all_have_fallen_silent_nobody_is_waited_for():
    together = [(0, {"left": {0: TEN + 7_000_000}, "right": {0: TEN}})]
    for minutes in (0, 5, 5_000):  # a job that runs once an hour is looked at some time later
        ((hand, said),) = stuck(joined(), together, minutes)
        assert not hand
        assert said.startswith("the input 'right' holds time back")
    # what came shortly after the last word of the slower one says nothing yet; what came a minute after it does
    assert [hand for hand, _ in stuck(joined(), [SPOKE, (0.5, {"left": {0: TEN + HOUR}})], 60)] == [False]
    assert [hand for hand, _ in stuck(joined(), [SPOKE, (1, {"left": {0: TEN + HOUR}})], 1)] == [True]


def test_a_partition_of_its_own_is_another_voice():
    both = {"left": {0: TEN + HOUR, 1: TEN}, "right": {0: TEN + HOUR}}
    assert [hand for hand, _ in stuck(joined(), [(0, both)], 60)] == [False]
    assert [hand for hand, _ in stuck(joined(), [(0, both), (2, {"left": {0: TEN + HOUR}})], 60)] == [True]


def test_what_comes_next_and_which_events_would_bring_it():
    job = joined()
    wakes = {"window_by_key": {"0": TEN + HOUR, "1": None}, "pairs": {"0": None}}
    times = Times(Layout(job), manifest_of(job, [SPOKE], wakes=wakes), WALL)
    assert list(times.next()) == [
        "'pairs' keeps 0 rows and waits for no time",
        "'window_by_key' keeps 0 rows; the next is due at 2026-01-01 11:00:00Z, its time is 2026-01-01 09:50:00Z: "
        "1 hour 10 minutes to go, with an event of 'left' at 2026-01-01 11:10:00Z and one of 'right' at "
        "2026-01-01 11:10:00Z or later",
    ]


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("step", ["pairs", "window_by_key"])
def test_those_events_bring_it_and_earlier_ones_do_not(how, step):
    job = joined(how=how)
    layout, due = Layout(job), TEN + HOUR
    wanted = Times(layout, manifest_of(job, [SPOKE]), WALL).wanted(step, due)
    rules = {i.name: Rules.of(i) for i in layout.inputs}
    times = {s.name: StepTime.of(s) for s in layout.stages}
    for early, comes in ((0, True), (1, False)):
        clock = Clock().moved(rules, times, {name: {0: us - early} for name, us in wanted.items()}, WALL)
        assert (clock.steps[step] >= due) == comes


def test_skew_and_many_refused_rows_are_worth_a_look():
    def run(rows):
        return Run("state/pairs/0/1-ab.arrow", rows, 0, 0, 0, 0, 100, 0)

    job = joined()
    buckets = {b: {"left": (run(9_000 if b == 3 else 100),)} for b in range(8)}
    counters = {"rows": {"left": 500, "right": 500}, "late": {"pairs": 100}, "dead": {"malformed": 50}}
    manifest = manifest_of(job, [SPOKE], counters, {"pairs": buckets})
    assert [said[:52] for said in skew(manifest)] == ["bucket 3 of step 'pairs' holds 93% of its 9,700 rows"]
    late, dead = refused(Layout(job), manifest)
    assert late.startswith("step 'pairs' refused 100 rows as late, 10.0% of those that came to it")
    assert dead == "50 rows are dead letters (malformed), 5.0% of those that came"
    even = {b: {"left": (run(1_000),)} for b in range(8)}
    assert not list(skew(manifest_of(job, [SPOKE], steps={"pairs": even})))


def test_the_clock_of_a_real_batch_says_the_same(tester):
    job = joined()
    t = tester(job)
    t.push("left", {"key": "a", "at": "2026-01-01 10:00:00"})
    engine = t._engine
    assert isinstance(engine, Engine)
    assert engine.manifest is not None
    (said,) = Times(Layout(job), engine.manifest, WALL).stuck()
    assert "'right' holds time back" in said[1]


FILE = """
import os
from penstock import Job, sinks, sources
from penstock.windows import tumbling
job = Job("torn")
source = sources.files(os.path.abspath("in"), "json", "key string, at timestamp")
views = job.stream("views", source, time="at", lateness="0 seconds")
views.by("key").window(tumbling("10 minutes")).agg(n="count(*)").to(sinks.sqlite("out.db", "n"))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "in").mkdir()
    (tmp_path / "torn.py").write_text(FILE)
    return tmp_path


def arrives(number: int, *minutes: int) -> None:
    rows = [{"key": "a", "at": f"2026-01-01 10:{m:02}:00"} for m in minutes]
    path = Path(f"in/{number}.json")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path, (1_800_000_000 + number, 1_800_000_000 + number))


def job_here() -> Job:
    scope: dict[str, Job] = {}
    exec(FILE, scope)
    return scope["job"]


def once(spark, fault=None) -> None:
    start(job_here(), spark, checkpoint="checkpoints/torn", once=True, fault=fault).wait()


def doctor(*words: str) -> tuple[int, str]:
    ended = CliRunner().invoke(cli.app, ["doctor", "torn.py", *words])
    return ended.exit_code, ended.output


def results() -> list[tuple[str, int]]:
    with sqlite3.connect("out.db") as database:
        return sorted(database.execute("select window_start, n from n").fetchall())


def test_a_torn_plan_of_a_batch_that_an_output_holds_is_mended_and_no_row_is_lost(folder, spark):
    def crash(point, batch):
        if (point, batch) == ("after_sink", 1):
            raise RuntimeError("killed")

    arrives(0, 1, 2)
    once(spark)
    arrives(1, 11, 12)  # closes the first window
    with pytest.raises(Exception, match="killed"):
        once(spark, crash)
    plan = Path("checkpoints/torn/spark/offsets/1")
    whole = plan.read_bytes()
    plan.write_bytes(b"")
    arrives(2, 13, 25)  # planned anew, batch 1 would take these too, and the output would skip them
    with pytest.raises(CheckpointError, match=r"spark/offsets/1 is empty: .*penstock doctor FILE --repair"):
        once(spark)
    assert results() == [("2026-01-01T10:00:00.000000Z", 2)]
    code, said = doctor()
    assert code == 1
    assert "broken  spark/offsets/1 is empty" in said
    assert "`penstock doctor torn.py --repair` writes it again as it was" in said
    code, said = doctor("--repair")
    assert code == 0, said
    assert plan.read_bytes() == whole
    assert "'views': 1 file not read yet, the first is" in said
    once(spark)
    assert results() == [("2026-01-01T10:00:00.000000Z", 2), ("2026-01-01T10:10:00.000000Z", 3)]

    Path("torn.py").write_text(FILE.replace("10 minutes", "20 minutes"))
    code, said = doctor()
    assert code == 1
    assert "broken  the job no longer fits its state; see the difference: penstock check torn.py" in said
    Path("torn.py").write_text(FILE)

    Path("checkpoints/torn/spark/commits/2").write_text("v1\n{")
    Path("checkpoints/torn/spark/metadata").unlink()
    with pytest.raises(CheckpointError, match=r"spark/metadata is missing"):
        once(spark)
    arrives(3, 26, 41)
    code, said = doctor("--repair")
    assert code == 0, said
    once(spark)
    assert [n for _, n in results()] == [2, 3, 2]
    assert "0 files not read yet" in doctor()[1]


def test_the_doctor_needs_no_spark(folder):
    Checkpoint.open("checkpoints/torn")
    code = (
        "import sys; from penstock.cli import app; app(['doctor', 'torn.py'], standalone_mode=False)\n"
        "assert 'pyspark' not in sys.modules"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said == "job 'torn', checkpoint checkpoints/torn, before its first batch; no run is alive\n"


def test_what_cannot_be_looked_at_is_refused_by_name(folder, tmp_path):
    assert "there is no checkpoint checkpoints/torn yet" in doctor()[1]
    (tmp_path / "no").mkdir()
    assert "there is no checkpoint no yet" in doctor("--checkpoint", "no")[1]
    (tmp_path / "no/thesis.txt").write_text("mine")
    assert "no is no checkpoint: it has no checkpoint.json but holds thesis.txt" in doctor("--checkpoint", "no")[1]
    with pytest.raises(CheckpointError, match="no checkpoint"):
        examine(job_here(), "nowhere")


def test_who_runs_the_job_is_told_by_the_lock(folder):
    checkpoint = Checkpoint.open("checkpoints/torn")
    with checkpoint.lock():
        assert f"; process {os.getpid()} runs it" in doctor()[1]
        lock, here = Path("checkpoints/torn/run.lock"), {"pid": os.getpid(), "host": socket.gethostname()}
        lock.write_text(json.dumps({**here, "host": "elsewhere"}))
        assert f"; process {os.getpid()} on elsewhere runs it" in doctor()[1]
        lock.write_text("")
        assert "; a run is beginning" in doctor()[1]
    lock.write_text(json.dumps(here))  # as after SIGKILL, when the number is another's by now
    assert "; no run is alive" in doctor()[1]
    lock.write_text(json.dumps({**here, "host": "elsewhere"}))  # whose lock may not be seen from here
    assert f"; process {os.getpid()} on elsewhere may run it" in doctor()[1]


def test_a_note_of_a_source_that_is_cut_is_told_and_does_not_end_the_doctor(folder, spark):
    arrives(0, 1, 2)
    once(spark)
    for name in ("0", ".0.crc"):
        Path(f"checkpoints/torn/spark/sources/0/{name}").write_text("v1")
    code, said = doctor()
    assert code == 1
    assert "broken  spark/sources/0/0" in said
    assert "rows in: 'views' 2" in said


@pytest.fixture(scope="module")
def s3():
    """A store that this process may use."""
    with S3() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.settings.items():
            patch.setenv(name, value)
        remote.connect.cache_clear()
        yield server.url


@pytest.fixture
def far(folder, s3):
    """A checkpoint on a store, after one batch and a commit of Spark's that is torn."""
    checkpoint = Checkpoint.open(f"{s3}/{folder.name}")
    layout = Layout(job_here())
    checkpoint.write_json(DOCUMENT, signature(layout, 8))
    manifest = manifest_of(job_here(), [(0, {"views": {0: TEN}})])
    plan = 'v1\n{"batchTimestampMs":1}\n-'
    body = {**manifest.body, **Begun(0, plan, "0f0e").to_body()}
    checkpoint.commit(replace(manifest, epoch=checkpoint.take_epoch(), body=body))
    for name, text in (("metadata", '{"id":"0f0e"}'), ("offsets/0", plan), ("commits/0", "v1")):
        checkpoint.files.store.create(f"spark/{name}", text.encode())
    return checkpoint


def test_on_a_store_nobody_can_see_whether_a_run_is_alive_and_a_repair_waits_for_a_word(far, monkeypatch):
    code, said = doctor("--checkpoint", far.path)
    assert code == 1
    assert "; whether a run is alive cannot be seen on an object store; the newest is run 1: process " in said
    assert "broken  spark/commits/0 is cut" in said
    before = far.files.store.names("", recursive=True)
    code, said = doctor("--checkpoint", far.path, "--repair")
    assert code == 1
    assert f"ends it. The newest is run 1: process {os.getpid()} on {socket.gethostname()}, begun 20" in said
    assert "See that it has ended, say so with PENSTOCK_NO_RUN_IS_ALIVE=yes in the environment" in said
    assert far.files.store.names("", recursive=True) == before
    assert far.newest_epoch() == 1
    monkeypatch.setenv("PENSTOCK_NO_RUN_IS_ALIVE", "yes")
    code, said = doctor("--checkpoint", far.path, "--repair")
    assert code == 0, said
    assert "moved spark/commits/0 to aside/1/spark/commits/0" in said
    assert far.newest_epoch() == 2


def test_on_a_store_what_is_broken_in_one_look_only_was_a_batch_on_its_way(far, monkeypatch):
    looks = []

    def half_sent(*_, **__):
        looks.append(Fault(f"spark/offsets/{len(looks)}", "is of another batch", "they belong to different copies"))
        return looks[-1:]

    monkeypatch.setattr(doctor_module, "faults", half_sent)
    code, said = doctor("--checkpoint", far.path)
    assert (code, len(looks)) == (0, 2)
    assert "  broken  " not in said


def test_a_repair_of_what_is_whole_ends_no_run(folder):
    checkpoint = Checkpoint.open("checkpoints/torn")
    epoch = checkpoint.take_epoch()
    assert "nothing to repair" in doctor("--repair")[1]
    assert checkpoint.newest_epoch() == epoch
