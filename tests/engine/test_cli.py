"""The command line: what it finds in a file, what it says of it, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from penstock import cli, jobfile
from penstock.compile.layout import Layout
from penstock.plan.errors import RunError
from penstock.run.dead_letters import SCHEMA
from penstock.run.fit import DOCUMENT, signature
from penstock.state.checkpoint import Checkpoint
from penstock.state.manifest import Manifest

JOB = """\
from penstock import Job, sinks, sources
from penstock.windows import tumbling

job = Job("shop")
views = job.stream("views", sources.files("in", format="json", schema="url string, at timestamp"),
                   time="at", lateness="10 minutes")
views.by("url").window(tumbling("1 hour")).agg(n="count(*)").to(sinks.parquet("out/hourly"))
"""


@pytest.fixture(autouse=True)
def _a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # a job's folder is put there
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("COLUMNS", "200")


def penstock(*words: str):
    return CliRunner().invoke(cli.app, list(words))


def refused(*words: str) -> str:
    """What a command says on stderr when it ends with exit code 1, which is one message and no trace."""
    result = penstock(*words)
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    assert result.stderr.startswith("error: ")
    return result.stderr.removeprefix("error: ").rstrip("\n")


# what it finds


def test_explain_and_graph_show_the_plan():
    Path("shop.py").write_text(JOB)
    job = jobfile.load("shop.py")
    assert penstock("explain", "shop.py").stdout == job.explain()
    assert penstock("graph", "shop.py").stdout == job.graph()


def test_a_job_is_taken_by_name_and_under_two_names_is_still_one():
    Path("two.py").write_text('from penstock import Job\na = Job("first")\nb = Job("second")\n')
    Path("alias.py").write_text('from penstock import Job\na = Job("first")\nb = a\n')
    assert penstock("explain", "two.py:b").stdout.startswith("job 'second'")
    assert penstock("explain", "alias.py").stdout.startswith("job 'first'")
    assert refused("explain", "two.py") == "two.py holds 2 jobs: a, b. Name the one you mean: two.py:a."
    assert refused("explain", "two.py:c") == "two.py has no job 'c'; there is a, b."


def test_the_main_part_of_a_file_does_not_run_and_its_neighbours_are_found():
    Path("jobs").mkdir()
    Path("jobs/names_of_jobs.py").write_text('NAME = "from_neighbour"\n')
    Path("jobs/shop.py").write_text(
        "from penstock import Job\nfrom names_of_jobs import NAME\njob = Job(NAME)\n"
        'if __name__ == "__main__":\n    raise RuntimeError\n'
    )
    assert penstock("explain", "jobs/shop.py").stdout.startswith("job 'from_neighbour'")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1\n", "broken.py holds no job at its top level. Write one there: job = Job('my_job')."),
        ("x = 1\ny = x / 0\n", "broken.py does not import: ZeroDivisionError: division by zero (broken.py:2)"),
        ("import json\njson.loads('')\n", "broken.py does not import: JSONDecodeError: Expecting value: line 1 "
         "column 1 (char 0) (broken.py:2)"),
        ("import no_such_thing\n", "broken.py does not import: ModuleNotFoundError: No module named "
         "'no_such_thing' (broken.py:1)"),
        ("\ndef f(:\n", "broken.py does not import: SyntaxError: invalid syntax (broken.py:2)"),
        ("import sys\nsys.exit('no settings')\n", "broken.py does not import: SystemExit: no settings (broken.py:2)"),
        (JOB.replace('by("url")', 'by("ulr")'),
         "by('ulr'): no such column; the input 'views' has url, at. Did you mean 'url'? (broken.py:7)"),
    ],
    ids=["no job", "an error", "an error further in", "an import", "syntax", "an exit", "a plan"],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_told_with_the_users_own_line(source, said):
    Path("broken.py").write_text(source)
    assert refused("explain", "broken.py") == said


def test_a_file_that_is_not_there():
    Path("shop.py").write_text(JOB)
    assert refused("check", "shp.py") == "shp.py: no such file. Did you mean shop.py?"
    assert refused("check", "nowhere/x.py") == "nowhere/x.py: no such file. Give the path of a Python file."
    assert refused("check", ".") == ". is a folder. Name the file in it that holds the job."


def test_a_file_with_the_name_of_a_module_in_use_is_refused():
    Path("signal.py").write_text(JOB)
    assert refused("check", "signal.py") == (
        "signal.py has the name of the module 'signal', which is in use. Rename the file."
    )
    assert sys.modules["signal"] is signal


def test_trace_shows_where_an_error_came_from():
    Path("broken.py").write_text("x = 1 / 0\n")
    result = penstock("--trace", "explain", "broken.py")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert "ZeroDivisionError" in result.stderr
    assert "error: broken.py does not import" in result.stderr


def test_trace_shows_javas_own_trace(capsys):
    error = RunError("the run failed: no space left", java="java.io.IOException: no space left\n\tat some.Class")
    cli.report(error, trace=False)
    assert capsys.readouterr().err == "error: the run failed: no space left\n"
    cli.report(error, trace=True)
    assert "\tat some.Class" in capsys.readouterr().err


# check


def checkpointed(folder: str) -> Checkpoint:
    """A checkpoint as the job of ``shop.py`` begins it."""
    checkpoint = Checkpoint.open(folder)
    checkpoint.write_json(DOCUMENT, signature(Layout(jobfile.load("shop.py")), 8))
    return checkpoint


def test_check_says_what_the_job_is():
    Path("shop.py").write_text(JOB)
    result = penstock("check", "shop.py")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "job 'shop'",
        "  reads   stream 'views' from json files in in: time at, lateness 10 minutes",
        "  keeps   window 'window_by_url' by url, tumbling 1 hour: n = count(*)",
        "  writes  output 'hourly' to parquet files in out/hourly (append)",
        "  a bad row stops it: no dead letters",
        "checkpoint checkpoints/shop: none yet, the first run makes it",
    ]
    assert not Path("checkpoints").exists()


def test_check_refuses_a_job_without_output():
    Path("shop.py").write_text('from penstock import Job\njob = Job("shop")\n')
    assert refused("check", "shop.py") == "the job 'shop' has no output; add one with .to(...)."


def test_check_holds_the_job_against_its_checkpoint():
    Path("shop.py").write_text(JOB)
    checkpointed("checkpoints/shop")
    fits = penstock("check", "shop.py")
    assert fits.exit_code == 0
    assert fits.stdout.splitlines()[-1] == "checkpoint checkpoints/shop: empty, no batch is done yet"

    Path("shop.py").write_text(JOB.replace("1 hour", "2 hours").replace('n="count(*)"', 'n="count(url)"'))
    assert penstock("check", "shop.py").exit_code == 0  # nothing is kept yet that it could not fit
    place = Checkpoint.open("checkpoints/shop")
    place.commit(Manifest(0, place.take_epoch()))
    said = refused("check", "shop.py").splitlines()
    assert said[1:3] == [
        "  step 'window_by_url': window was tumbling 1 hour and is tumbling 2 hours: needs a rebuild",
        "  step 'window_by_url': aggregates was n = count(*) and is n = count(url): needs a rebuild, "
        "of count(url) nothing is kept",
    ]


def test_check_refuses_a_folder_that_is_no_checkpoint_or_of_another_job():
    Path("shop.py").write_text(JOB)
    checkpointed("ck")
    Path("other.py").write_text(JOB.replace('Job("shop")', 'Job("other")'))
    assert "belongs to the job 'shop', not to 'other'" in refused("check", "other.py", "--checkpoint", "ck")
    Path("no").mkdir()
    assert "none yet" in penstock("check", "shop.py", "--checkpoint", "no").stdout  # a run makes one of it too
    Path("no", "letter.txt").touch()
    assert "is no checkpoint" in refused("check", "shop.py", "--checkpoint", "no")


# dead letters

LETTER = {"batch": 3, "reason": "malformed", "input": "views", "step": None, "place": "in/1.json", "row": "{"}


def job_with_dead_letters(sink: str) -> None:
    Path("shop.py").write_text(f"{JOB}job.dead_letters({sink})\n")


def test_dead_letters_in_sqlite_are_lines_of_json():
    job_with_dead_letters('sinks.sqlite("out.db", "dead")')
    assert penstock("dead-letters", "shop.py").stdout == ""
    connection = sqlite3.connect("out.db")
    connection.execute("create table dead (batch, reason, input, step, place, row)")
    values = [tuple((LETTER | {"batch": n}).values()) for n in (3, 2, 1)]
    connection.executemany("insert into dead values (?, ?, ?, ?, ?, ?)", values)
    connection.commit()
    connection.close()
    shown = penstock("dead-letters", "shop.py", "--limit", "2").stdout.splitlines()
    assert [json.loads(line) for line in shown] == [LETTER | {"batch": 2}, LETTER]


def test_dead_letters_in_parquet_are_lines_of_json():
    job_with_dead_letters('sinks.parquet("dead")')
    Path("dead").mkdir()
    pq.write_table(pa.Table.from_pylist([LETTER], SCHEMA), "dead/dead_letters-3.parquet")
    assert json.loads(penstock("dead-letters", "shop.py").stdout) == LETTER


def test_an_output_to_take_over_that_the_job_does_not_have_is_refused():
    Path("shop.py").write_text(JOB)
    said = refused("run", "shop.py", "--once", "--take-over", "no", "--take-over", "hits")
    assert said.startswith("take over 'no': the job 'shop' has no such output; it has ")
    assert not Path("checkpoints").exists()


def test_dead_letters_on_a_terminal_are_a_table():
    table = cli.letter_table([LETTER])
    assert [column.header for column in table.columns] == ["batch", "reason", "from", "place", "row"]
    assert [str(next(iter(column.cells))) for column in table.columns] == ["3", "malformed", "views", "1.json", "{"]


ELSEWHERE = {
    "memory": ('sinks.memory("dead")', "memory dead", "in the process that runs the job, as sinks.memory(...).rows()"),
    "delta": ('sinks.delta("dead")', "delta table dead", "Spark reads that table"),
    "kafka": ('sinks.kafka("dead", "b:9092")', "Kafka topic dead at b:9092", "they are the messages of that topic"),
    "console": ("sinks.console()", "the console", "they were printed where the job runs"),
    "call": ("sinks.call(print)", "function print", "they are wherever it puts them"),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_dead_letters_that_cannot_be_read_from_here_are_said_to_be_where_they_are(case):
    sink, described, where = ELSEWHERE[case]
    job_with_dead_letters(sink)
    said = refused("dead-letters", "shop.py")
    assert said.startswith(f"the dead letters go to {described}, which cannot be read from here: ")
    assert where in said
    assert said.endswith("or send them to sinks.sqlite(...), sinks.parquet(...) or sinks.postgres(...).")


def test_dead_letters_that_are_not_there_or_damaged():
    Path("shop.py").write_text(JOB)
    assert "keeps no dead letters: a bad row stops it" in refused("dead-letters", "shop.py")
    job_with_dead_letters('sinks.sqlite("shop.py", "dead")')
    assert "file is not a database" in refused("dead-letters", "shop.py")
    job_with_dead_letters('sinks.postgres("dead", "postgresql://127.0.0.1:1/shop")')
    assert "cannot read table 'dead' in postgresql://" in refused("dead-letters", "shop.py")


# the program itself


def program(*words: str, **options) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from penstock.cli import main; main()", *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **options
    )


def test_looking_at_a_job_does_not_import_spark():
    job_with_dead_letters('sinks.parquet("dead")')
    checkpointed("checkpoints/shop")
    words = [["explain", "shop.py"], ["graph", "shop.py"], ["check", "shop.py"], ["dead-letters", "shop.py"]]
    code = (
        f"import sys; from penstock.cli import app\nfor words in {words}: app(words, standalone_mode=False)\n"
        "assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_the_version_and_an_unknown_demo():
    assert penstock("--version").stdout == "penstock 0.1.0\n"
    assert refused("demo", "nothing") == "there is no demo 'nothing'; there is page_views."


def test_run_once_ends_with_0_and_finds_functions_beside_the_job():
    Path("jobs").mkdir()
    Path("in").mkdir()
    Path("in/1.json").write_text('{"url": "/", "at": "2026-01-01T10:00:00Z"}\n')
    # Spark's Python processes import the function by name, from a folder that is not the working directory
    Path("jobs/upper_case.py").write_text("def upper(rows):\n    return rows.assign(url=rows.url + '!')\n")
    Path("jobs/shop.py").write_text(
        "from upper_case import upper\n"
        + JOB.replace("views.by(", 'views.map_pandas(upper, "url string, at timestamp").to(sinks.parquet("out/all"))\n'
        "views.by(")
    )  # fmt: skip
    running = program("run", "jobs/shop.py", "--once", "--checkpoint", "ck")
    said, complained = running.communicate()
    assert running.returncode == 0, complained
    assert [json.loads(line)["rows"] for line in said.splitlines()] == [1]
    assert pq.read_table("out/all").column("url").to_pylist() == ["/!"]
    assert "can be kept" in penstock("check", "jobs/shop.py", "--checkpoint", "ck").stdout
    held = penstock("state", "jobs/shop.py", "window_by_url", "--checkpoint", "ck").stdout
    assert json.loads(held) == {"url": "/", "slice": "2026-01-01T10:00:00+00:00", "state_0": 1}


def test_a_run_that_fails_ends_with_1_and_one_message():
    Path("in").mkdir()
    Path("in/1.json").write_text("no json\n")
    Path("shop.py").write_text(JOB)
    running = program("run", "shop.py", "--once")
    _, complained = running.communicate()
    assert running.returncode == 1
    assert "Traceback" not in complained
    assert "\tat " not in complained
    assert "error: the input 'views' has a row that cannot be used (malformed)" in complained


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_run_that_is_stopped_ends_with_0(number):
    Path("in").mkdir()
    Path("in/1.json").write_text('{"url": "/", "at": "2026-01-01T10:00:00Z"}\n')
    Path("shop.py").write_text(JOB)
    running = program("run", "shop.py")
    assert running.stdout is not None
    assert json.loads(running.stdout.readline())["batch"] == 0
    tell = os.killpg if number == signal.SIGINT else os.kill  # a terminal tells the whole group
    tell(running.pid, number)
    _, complained = running.communicate()
    assert running.returncode == 0, complained
    assert "Traceback" not in complained
