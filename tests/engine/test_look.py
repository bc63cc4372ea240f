"""``penstock state``: what people see of a job's state, without Spark and always of one version."""

from __future__ import annotations

import builtins
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console
from typer.testing import CliRunner

from penstock import cli, jobfile, show_state
from penstock.compile.layout import Layout
from penstock.joins.latest_kernel import LatestKernel
from penstock.look import Look, read_key
from penstock.plan.errors import PenstockError
from penstock.run.fit import DOCUMENT, signature
from penstock.state import remote
from penstock.state.bucket import BucketState
from penstock.state.checkpoint import Checkpoint
from penstock.state.edge import DELETED, PARTITION, POSITION, SEQUENCE, StepClock
from penstock.state.keyed import KeyedTable
from penstock.state.manifest import Manifest
from penstock.state_names import Names, names_of
from penstock.testing.servers.s3 import S3

JOB = """\
from penstock import Job, sinks, sources
from penstock.windows import session, tumbling

job = Job("shop")
users = job.table("users", sources.files("users", "json", "id long, shop string, name string, v long, gone boolean"),
                  key=("id", "shop"), sequence="v", delete_when="gone")
users.to(sinks.memory("users"))
views = job.stream("views", sources.files("in", format="json", schema="url string, id long, shop string, at timestamp"),
                   time="at", lateness="10 minutes")
views.by("url").window(tumbling("1 hour"), emit="updates").agg(n="count(*)", half="count(*) / 2").to(
    sinks.memory("hourly"))
views.lookup(users, on=("id", "shop")).to(sinks.memory("named"))
"""
TEN = 1_767_261_600_000_000  # 2026-01-01 10:00 UTC
USER = pa.schema(
    {"id": pa.int64(), "shop": pa.string(), "name": pa.string(), f"{SEQUENCE}0": pa.int64()}
    | {DELETED: pa.bool_(), PARTITION: pa.int32(), POSITION: pa.int64()}
)
USERS = LatestKernel(("id", "shop"), ("name",), (f"{SEQUENCE}0",), False)


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("COLUMNS", "200")
    Path("shop.py").write_text(JOB)


def penstock(*words: str):
    return CliRunner().invoke(cli.app, ["state", "shop.py", *words])


def shown(*words: str) -> list[dict[str, object]]:
    result = penstock(*words)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def refused(*words: str) -> str:
    result = penstock(*words)
    assert result.exit_code == 1, result.output
    assert len(result.stderr.splitlines()) == 1
    return result.stderr.removeprefix("error: ").rstrip("\n")


def user(id_, shop, name, v, gone=False):
    return {"id": id_, "shop": shop, "name": name, f"{SEQUENCE}0": v, DELETED: gone, PARTITION: 0, POSITION: v}


class Shop:
    """The checkpoint of the job, batch after batch."""

    def __init__(self, folder="checkpoints/shop"):
        self.checkpoint = Checkpoint.open(folder)
        self.checkpoint.write_json(DOCUMENT, signature(Layout(jobfile.load("shop.py")), 2))
        self.epoch, self.batch = self.checkpoint.take_epoch(), -1
        self.sets = {"users": {}, "window_by_url": {}}

    def commit(self, *users, views=()):
        """Changes of users, by their id in two buckets; windows as they are held and shown."""
        self.batch += 1
        for bucket in (0, 1):
            own = [u for u in users if u["id"] % 2 == bucket]
            state = BucketState(self.checkpoint.files, "users", bucket, self.batch, self.sets["users"].get(bucket, {}))
            USERS.step(state, [pa.Table.from_pylist(own, USER)] if own else [], StepClock(0, 0))
            self.sets["users"][bucket] = state.sets()
        if views:
            state = BucketState(self.checkpoint.files, "window_by_url", 0, self.batch, {})
            urls, starts = [url for url, _ in views], [start for _, start in views]
            state.table("parts", ["__ps_key_0"], within=["slice_us"], time="slice_us").put(
                pa.table({"__ps_key_0": urls, "slice_us": starts, "state_0": [3] * len(urls)})
            )
            columns = {"__ps_key_0": urls, "start_us": starts, "end_us": [s + 3_600_000_000 for s in starts]}
            columns |= {"__ps_result_0": [3] * len(urls), "gone_us": columns["end_us"]}
            state.table("shown", ["__ps_key_0"], within=["start_us", "end_us"], time="gone_us").put(pa.table(columns))
            self.sets["window_by_url"][0] = state.sets()
        self.checkpoint.commit(Manifest(self.batch, self.epoch, self.sets))


@pytest.fixture
def shop():
    made = Shop()
    made.commit(user(1, "a", "ann", 1), user(2, "a", "bob", 1), user(3, "b,c", "cid", 1), views=[("/", TEN)])
    made.commit(user(2, "a", None, 2, gone=True), user(1, "a", "anne", 2))
    return made


def test_without_a_step_the_steps_are_listed(shop):
    users, window, lookup = shown()
    assert users == {
        "step": "users",
        "keeps": Layout(jobfile.load("shop.py")).stages[0].keeps(),
        "sets": ["latest"],
        "rows": 5,
        "bytes": sum(r.bytes for sets in shop.sets["users"].values() for r in sets["latest"]),
        "runs": 4,
        "batch": 1,
        "kept": [0, 1],
    }
    assert (window["step"], window["sets"]) == ("window_by_url", ["parts", "shown"])
    assert (lookup["step"], lookup["sets"], lookup["rows"]) == ("lookup_by_id_shop", [], 0)


def test_a_table_is_shown_as_it_is_without_deleted_keys_and_our_own_columns(shop):
    assert sorted(shown("users"), key=lambda row: row["id"]) == [
        {"id": 1, "shop": "a", "name": "anne"},
        {"id": 3, "shop": "b,c", "name": "cid"},
    ]
    with_ours = shown("users", "--internal")
    assert {r["id"]: (r["bucket"], r[DELETED], r[f"{SEQUENCE}0"]) for r in with_ours} == {
        1: (1, False, 2),
        2: (0, True, 2),
        3: (1, False, 1),
    }
    assert shown("users", "--at", "0", "--key", "2,a") == [{"id": 2, "shop": "a", "name": "bob"}]
    assert shown("users", "--key", "2,a") == []


@pytest.mark.parametrize("key", ['[3, "b,c"]', '["3", "b,c"]', '{"shop": "b,c", "id": 3}'])
def test_an_awkward_key_is_written_as_json(shop, key):
    assert "the key of step 'users' is id, shop; give a value for each" in refused("users", "--key", "3,b,c")
    assert shown("users", "--key", key) == [{"id": 3, "shop": "b,c", "name": "cid"}]


def test_windows_have_the_names_of_the_plan(shop):
    window = {"window_start": "2026-01-01T10:00:00+00:00", "window_end": "2026-01-01T11:00:00+00:00"}
    assert shown("window_by_url") == [{"url": "/", **window, "n": 3}]
    assert shown("window_by_url", "--set", "parts", "--key", "/") == [
        {"url": "/", "slice": "2026-01-01T10:00:00+00:00", "state_0": 3}
    ]
    assert shown("window_by_url", "--key", "/nowhere") == []


def test_a_query_sees_each_set_under_its_name_and_the_main_one_as_state(shop):
    assert shown("users", "--sql", "select max(name) as last, count(*) as n from state") == [{"last": "cid", "n": 2}]
    joined = "select url, n, state_0 from state join parts using (url)"
    assert shown("window_by_url", "--sql", joined) == [{"url": "/", "n": 3, "state_0": 3}]
    assert shown("users", "--at", "0", "--sql", "from latest order by id limit 1") == [
        {"id": 1, "shop": "a", "name": "ann"}
    ]


def test_a_query_that_cannot_be_answered_says_so_in_a_line(shop, monkeypatch):
    said = refused("window_by_url", "--sql", "select * from nothing")
    assert said.startswith("--sql: Catalog Error: Table with name nothing does not exist!")
    assert said.endswith('The views are "state", "parts", "shown".')
    assert refused("users", "--sql", " ") == "--sql: give a query that answers with rows."
    assert refused("lookup_by_id_shop", "--sql", "from state").endswith("holds no rows after batch 1.")
    assert refused("users", "--sql", "from state", "--key", "1,a").startswith("--sql stands alone")
    real = builtins.__import__

    def without_duckdb(name, *rest):
        if name == "duckdb":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_duckdb)
    assert refused("users", "--sql", "from state") == "--sql needs DuckDB: pip install 'penstock[sql]'."


def test_what_is_not_there_is_refused_by_name(shop):
    assert refused("user") == (
        "the job has no step 'user' with state; there is users, window_by_url, lookup_by_id_shop. Did you mean 'users'?"
    )
    assert refused("users", "--set", "shown") == "step 'users' has no set 'shown'; it has latest."
    assert refused("users", "--at", "7") == "batch 7 is not kept; kept are the batches 0 to 1."
    assert refused("users", "--key", "x,a") == "step 'users', set 'latest': id is int64, and ['x'] is none."
    assert refused("users", "--key", "[1").startswith("--key '[1' is no JSON")
    assert refused("--key", "1,a") == "name the step: penstock state shop.py STEP."
    assert "there is no checkpoint nowhere yet" in refused("--checkpoint", "nowhere")
    Path("shop.py").write_text(JOB.replace('Job("shop")', 'Job("other")'))
    assert refused("--checkpoint", "checkpoints/shop") == (
        "checkpoint checkpoints/shop belongs to the job 'shop', not to 'other'."
    )


def test_the_state_at_an_address_is_shown(monkeypatch):
    with S3() as server:
        for name, value in server.settings.items():
            monkeypatch.setenv(name, value)
        remote.connect.cache_clear()
        address = f"{server.url}/checkpoints/shop"
        assert f"there is no checkpoint {address} yet" in refused("--checkpoint", address)
        checked = ["check", "shop.py", "--checkpoint", address]
        assert f"checkpoint {address}: none yet, the first run makes it" in CliRunner().invoke(cli.app, checked).output
        Shop(address).commit(user(1, "a", "ann", 1))
        assert shown("users", "--checkpoint", address) == [{"id": 1, "shop": "a", "name": "ann"}]
        assert shown("users", "--checkpoint", address, "--key", "1,a") == [{"id": 1, "shop": "a", "name": "ann"}]


def test_of_an_empty_folder_the_first_run_makes_a_checkpoint(tmp_path):
    Path("empty").mkdir()
    assert "there is no checkpoint empty yet" in refused("--checkpoint", "empty")
    said = CliRunner().invoke(cli.app, ["check", "shop.py", "--checkpoint", "empty"])
    assert (said.exit_code, said.output.splitlines()[-1]) == (
        0,
        "checkpoint empty: none yet, the first run makes it",
    )
    Path("empty/thesis.txt").write_text("mine")
    assert "holds thesis.txt" in refused("--checkpoint", "empty")
    assert CliRunner().invoke(cli.app, ["check", "shop.py", "--checkpoint", "empty"]).exit_code == 1


def test_a_step_that_holds_nothing_yet_is_empty(shop):
    assert shown("lookup_by_id_shop") == shown("lookup_by_id_shop", "--key", "1,a") == []


def test_a_step_that_left_the_plan_is_shown_as_it_is_stored(shop):
    Path("shop.py").write_text(JOB[: JOB.index("views.by(")] + "views.to(sinks.memory('views'))\n")
    assert [line["keeps"] for line in shown() if line["step"] == "window_by_url"] == ["it is not in the plan any more"]
    assert shown("window_by_url", "--set", "parts") == [{"__ps_key_0": "/", "slice_us": TEN, "state_0": 3}]


def test_a_limit_says_how_many_there_are(shop):
    shop.commit(*(user(n, "z", f"n{n}", 9) for n in range(10, 110)))
    result = penstock("users", "--limit", "3")
    assert len(result.stdout.splitlines()) == 3
    assert result.stderr == "102 rows in step 'users', set 'latest', after batch 2, here are 3; --limit shows more\n"
    assert len(shown("users")) == 50


def test_on_a_terminal_there_are_tables(shop, monkeypatch, capsys):
    monkeypatch.setattr(show_state, "Console", lambda **options: Console(force_terminal=True, **options))
    look = Look(jobfile.load("shop.py"), "checkpoints/shop")
    show_state.show_steps(look.steps())
    said = capsys.readouterr().out
    assert "state after batch 1; kept are the batches 0 to 1" in said
    assert "the latest row of every key" in said
    show_state.show_rows(look.rows("window_by_url", None, 50))
    said = capsys.readouterr().out
    assert "1 row in step 'window_by_url', set 'shown' (there is also parts), after batch 1" in said
    assert "window_start" in said
    assert "2026-01-01T10:00:00+00:00" in said


def test_a_look_goes_on_while_the_job_runs_and_sweeps(shop):
    look = Look(jobfile.load("shop.py"), "checkpoints/shop")
    pinned = Look(jobfile.load("shop.py"), "checkpoints/shop", 0)
    for batch in range(30):
        shop.commit(*(user(n, "a", f"batch {batch}", 10 + batch) for n in (1, 2, 3)))
    shop.checkpoint.sweep(keep=1)
    assert look.key("users", None, "2,a", 50).rows.to_pylist() == [{"id": 2, "shop": "a", "name": "batch 29"}]
    found = look.sql("users", "select distinct name from state where shop = 'a'", 50)
    assert (found.rows.to_pylist(), found.told) == ([{"name": "batch 29"}], "step 'users' after batch 31")
    with pytest.raises(PenstockError, match="batch 0 was swept; kept are the batches 31 to 31"):
        pinned.rows("users", None, 50)


def test_a_key_is_searched_for_and_not_read_for(shop, monkeypatch):
    monkeypatch.setattr(KeyedTable, "scan", None)
    assert shown("users", "--key", "1,a") == [{"id": 1, "shop": "a", "name": "anne"}]


def test_looking_into_state_starts_no_spark(shop):
    words = [["state", "shop.py"], ["state", "shop.py", "users"], ["state", "shop.py", "users", "--key", "1,a"]]
    code = (
        f"import sys; from penstock.cli import app\nfor words in {words}: app(words, standalone_mode=False)\n"
        "assert not {'pyspark', 'py4j', 'duckdb'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_each_side_of_a_join_has_its_own_names():
    Path("shop.py").write_text(
        JOB.replace("views.lookup(users", 'views.rename(id="user").lookup(users').replace(
            'on=("id", "shop")', 'on={"user": "id", "shop": "shop"}, name="named"'
        )
    )
    (lookup,) = (step for step in Layout(jobfile.load("shop.py")).stages if step.name == "named")
    held = names_of(lookup, "rows")
    assert held.key == ("id", "shop")
    assert held.shown(pa.table({"bucket": [0], "user": [1], "shop": ["a"], "name": ["ann"]})).to_pylist() == [
        {"id": 1, "shop": "a", "name": "ann"}
    ]


def test_a_users_own_column_may_have_the_name_of_ours():
    rows = pa.table([[7], ["blue"], [1]], names=["bucket", "bucket", "gone_us"])
    assert Names(("bucket",)).shown(rows).to_pylist() == [{"bucket": "blue", "gone_us": 1}]


def test_a_key_of_one_column_is_taken_as_it_stands():
    assert read_key("a,b", ("url",), "s") == {"url": ["a,b"]}
    with pytest.raises(PenstockError, match="step 's' has no key"):
        read_key("a", (), "s")
