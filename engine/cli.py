"""The command line: ``penstock run``, ``check``, ``explain``, ``graph``, ``state``, ``dead-letters``, ``demo``.

Nothing here imports Spark before a job runs: looking at a job takes no longer than importing it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import traceback
from collections import Counter
from contextlib import closing
from functools import singledispatch
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

import penstock
from penstock import jobfile
from penstock.plan.errors import PenstockError, PlanError, RunError
from penstock.sinks.base import Sink
from penstock.sinks.call_function import CallFunction
from penstock.sinks.console_table import ConsoleTable
from penstock.sinks.delta_table import DeltaTable
from penstock.sinks.kafka_topic import KafkaTopic
from penstock.sinks.local_path import local_path
from penstock.sinks.memory_rows import MemoryRows
from penstock.sinks.parquet_files import ParquetFiles
from penstock.sinks.postgres_table import PostgresTable
from penstock.sinks.sqlite_table import SqliteTable, quoted

#: Where dead letters are that this program does not read.
WHERE: dict[type[Sink], str] = {
    DeltaTable: "Spark reads that table, with spark.read.format('delta').load(...)",
    KafkaTopic: "they are the messages of that topic",
    MemoryRows: "they are in the process that runs the job, as sinks.memory(...).rows(), and end with it",
    ConsoleTable: "they were printed where the job runs",
    CallFunction: "they are wherever it puts them",
}


class Commands(TyperGroup):
    """All commands; an error of ours ends any of them with one message and exit code 1."""

    def invoke(self, ctx: Any) -> Any:  # typer does not export its context's class
        try:
            return super().invoke(ctx)
        except PenstockError as error:
            report(error, trace=ctx.params["trace"])
            raise typer.Exit(1) from None


def report(error: PenstockError, *, trace: bool) -> None:
    """Say what went wrong, on stderr; Python's and Java's traces only when somebody asks for them."""
    if trace:
        sys.stderr.write("".join(traceback.format_exception(error)))
        if isinstance(error, RunError) and error.java:
            sys.stderr.write(f"\nJava's own trace:\n{error.java}\n")
    # not wrapped: a message that is cut at a column cannot be searched for or copied
    Console(stderr=True).print(Text(f"error: {error}", "red"), soft_wrap=True)


app = typer.Typer(cls=Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
File = Annotated[str, typer.Argument(metavar="FILE", help="The job's file, or file.py:name when it holds several.")]
CheckpointFolder = Annotated[
    str | None, typer.Option("--checkpoint", metavar="DIR", help="The checkpoint; checkpoints/<job> when left out.")
]

Buckets = Annotated[
    int | None, typer.Option("--buckets", metavar="N", min=1, help="Split the state into so many parts.")
]


def say_version(asked: bool) -> None:
    """Print the version and end."""
    if asked:
        typer.echo(f"penstock {penstock.__version__}")
        raise typer.Exit


@app.callback()
def options(
    trace: Annotated[bool, typer.Option("--trace", help="Show Python's and Java's traces of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=say_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Stream processing for Python teams, on Spark."""


@app.command()
def run(
    file: File,
    once: Annotated[bool, typer.Option("--once", help="Take all that is there now, then stop.")] = False,
    checkpoint: CheckpointFolder = None,
    buckets: Buckets = None,
    take_over: Annotated[
        list[str] | None,
        typer.Option("--take-over", metavar="OUTPUT", help="Take this output's place, whoever wrote it, as it stands."),
    ] = None,
) -> None:
    """Run a job until it is stopped: Ctrl-C and SIGTERM end it after the batch at hand."""
    jobfile.load(file).run(checkpoint=checkpoint, once=once, buckets=buckets, take_over=take_over or ())


@app.command()
def check(file: File, checkpoint: CheckpointFolder = None, buckets: Buckets = None) -> None:
    """Build a job and say what it is; where it has a checkpoint, what changed, and whether its state can be kept."""
    from penstock import check as checking

    job = jobfile.load(file)
    typer.echo(checking.summary(job))
    typer.echo(checking.held_against(job, checkpoint or os.path.join("checkpoints", job.name), buckets))


@app.command()
def explain(file: File) -> None:
    """Show a job's plan: each step with the state that it keeps, what bounds it, and its lag."""
    typer.echo(jobfile.load(file).explain(), nl=False)


@app.command()
def graph(file: File) -> None:
    """Show a job's plan as a Mermaid flow chart."""
    typer.echo(jobfile.load(file).graph(), nl=False)


@app.command()
def state(
    file: File,
    step: Annotated[str | None, typer.Argument(metavar="STEP", help="The step; without it all are listed.")] = None,
    checkpoint: CheckpointFolder = None,
    kept: Annotated[
        str | None, typer.Option("--set", metavar="NAME", help="Which of the step's sets; the main one when left out.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="K", help="One key: a value, several as a,b in the key's order, or JSON.")
    ] = None,
    at: Annotated[
        int | None, typer.Option(metavar="BATCH", help="The state after an older batch that is kept.")
    ] = None,
    sql: Annotated[
        str | None, typer.Option(metavar="QUERY", help="Ask DuckDB: each set is a view, the main one also 'state'.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show so many rows.")] = 50,
    internal: Annotated[bool, typer.Option("--internal", help="Show our own columns and deleted keys too.")] = False,
) -> None:
    """Look into a job's state, running or stopped: a table on a terminal, a line of JSON each elsewhere."""
    from penstock.look import Look
    from penstock.show_state import show_rows, show_steps

    job = jobfile.load(file)
    look = Look(job, checkpoint or os.path.join("checkpoints", job.name), at)
    if sql is not None and (key is not None or kept is not None):
        raise PenstockError("--sql stands alone: name the set, and the key, in the query.")
    if step is None:
        if sql is not None or key is not None or kept is not None:
            raise PenstockError(f"name the step: penstock state {file} STEP.")
        show_steps(look.steps())
    elif sql is not None:
        show_rows(look.sql(step, sql, limit, internal=internal))
    elif key is not None:
        show_rows(look.key(step, kept, key, limit, internal=internal))
    else:
        show_rows(look.rows(step, kept, limit, internal=internal))


@app.command()
def doctor(
    file: File,
    checkpoint: CheckpointFolder = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Mend what can be mended safely: files are moved aside, none is deleted.")
    ] = False,
) -> None:
    """Is the checkpoint whole, why is nothing coming out, what waits; ends with 1 when something needs a hand."""
    from penstock.doctor import examine, mend

    job = jobfile.load(file)
    folder = checkpoint or os.path.join("checkpoints", job.name)
    if repair:
        for line in mend(job, folder) or ["nothing to repair"]:
            typer.echo(line)
    named = file if checkpoint is None else f"{file} --checkpoint {checkpoint}"
    found = examine(job, folder, named)
    typer.echo("\n".join(found.lines))
    if found.needs_a_hand:
        raise typer.Exit(1)


@app.command()
def replay(
    file: File,
    begin: Annotated[str, typer.Option("--from", metavar="TIME", help="The first event time, UTC unless it says.")],
    name: Annotated[str, typer.Option("--to-output", metavar="NAME", help="The new output, beside the job's own.")],
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="The event time to stop before.")] = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="WHICH", help="Which of the job's outputs, when it has several.")
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint", metavar="DIR", help="The replay's own; checkpoints/<job>-replay-NAME if left out."
        ),
    ] = None,
) -> None:
    """Run old events through the job as it is now, into an output of another name; a running job is not touched."""
    from penstock.replay import prepared
    from penstock.replay import replay as run_replay

    job = jobfile.load(file)
    again, asked = prepared(job, begin, name, end, output)
    live = os.path.join("checkpoints", job.name)
    for line in run_replay(again, asked, checkpoint or f"{live}-replay-{name}", live):
        typer.echo(line)


@app.command("dead-letters")
def dead_letters(
    file: File,
    limit: Annotated[int, typer.Option(min=1, help="Show so many of the newest.")] = 20,
) -> None:
    """Show the rows that a job could not use: a table on a terminal, a line of JSON each elsewhere."""
    job = jobfile.load(file)
    sink = job.dead_letter_sink
    if sink is None:
        raise PlanError(
            f"the job {job.name!r} keeps no dead letters: a bad row stops it. Send them somewhere with "
            "job.dead_letters(...)."
        )
    letters = sorted(kept_letters(sink), key=lambda letter: int(letter["batch"]))
    console = Console()
    if not console.is_terminal:
        for letter in letters[-limit:]:
            typer.echo(json.dumps(letter))
        return
    counts = Counter(letter["reason"] for letter in letters)
    told = ", ".join(f"{n:,} {reason}" for reason, n in counts.most_common())
    console.print(f"{len(letters):,} dead letters in {sink.describe()}{': ' + told if told else ''}", highlight=False)
    if letters:
        console.print(letter_table(letters[-limit:]))


def letter_table(letters: list[dict[str, Any]]) -> Table:
    """Dead letters for a terminal, the place without its folders."""
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("batch", "reason", "from", "place", "row"):
        table.add_column(column, overflow="fold")
    for letter in letters:
        source = letter["step"] or letter["input"]
        cells = (letter["batch"], letter["reason"], source, os.path.basename(letter["place"] or ""), letter["row"])
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in cells))
    return table


@singledispatch
def kept_letters(sink: Sink) -> list[dict[str, Any]]:
    """The dead letters in a sink, read from outside the run; empty before the first."""
    raise PenstockError(
        f"the dead letters go to {sink.describe()}, which cannot be read from here: {WHERE[type(sink)]}. "
        "Look there, or send them to sinks.sqlite(...), sinks.parquet(...) or sinks.postgres(...)."
    )


@kept_letters.register
def kept_in_sqlite(sink: SqliteTable) -> list[dict[str, Any]]:
    """From a table, which the first batch makes."""
    database = local_path(sink.path)
    if not database.exists():
        return []
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            known = connection.execute("select 1 from sqlite_master where name = ?", (sink.table,)).fetchone()
            rows = connection.execute(f"select * from {quoted(sink.table)}") if known else ()
            return [dict(row) for row in rows]
    except sqlite3.Error as error:
        raise PenstockError(f"cannot read {sink.describe()}: {error}.") from error


@kept_letters.register
def kept_in_parquet(sink: ParquetFiles) -> list[dict[str, Any]]:
    """From a folder of files, the batches that have appeared."""
    import pyarrow.parquet as pq

    files = sorted(local_path(sink.path).glob("[!_.]*.parquet"))
    return [letter for file in files for letter in pq.read_table(file).to_pylist()]


@kept_letters.register
def kept_in_postgres(sink: PostgresTable) -> list[dict[str, Any]]:
    """From a table, which the first batch makes."""
    return sink.database().rows(sink.table, sink.schema)


@app.command()
def demo(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Which demo; there is page_views.")] = "page_views",
) -> None:
    """Play an hour of a web shop's page views through a real stream, and look at the result."""
    from penstock.demo import play

    play(name, Path(".penstock/demo"))


def main() -> None:
    """The program ``penstock``."""
    app()
