"""The job: inputs, outputs, and the few ways to run it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from penstock.joins.versions import latest, names_of
from penstock.operators.clock import corrections
from penstock.plan import text
from penstock.plan.durations import Duration, duration
from penstock.plan.errors import PlanError
from penstock.plan.expressions import check
from penstock.plan.input import Input, check_append_only, check_plain, read_input, read_table
from penstock.plan.needs import Need
from penstock.plan.node import Node, check_step_name, walk
from penstock.plan.output import Output, check_names, write_output
from penstock.plan.written import written_at
from penstock.sinks.base import Sink
from penstock.sources.base import Source
from penstock.stream import Stream
from penstock.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.run.query import Run


class Job:
    """A stream job: what it reads, what it makes of it, where that goes.

    Building one needs no Java and no Spark. ``name`` is lower case, digits and underscores.

    >>> from penstock import Job, sinks, sources
    >>> from penstock.windows import tumbling
    >>> job = Job("shop")
    >>> views = job.stream("views", sources.files("in", format="json", schema="url string, at timestamp"),
    ...                    time="at", lateness="10 minutes")
    >>> hourly = views.by("url").window(tumbling("1 hour")).agg(n="count(*)").to(sinks.memory("hourly"))
    >>> print(job.explain())
    job 'shop'
    output 'hourly' to memory hourly (append)
      window 'window_by_url' by url, tumbling 1 hour: n = count(*)
      | keeps partial aggregates per key and slice, until the watermark passes their last window; lag 0 seconds
        stream 'views' from json files in in: time at, lateness 10 minutes
    dead letters: none, a bad row stops the job
    <BLANKLINE>
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise PlanError(
                f"Job({name!r}): a job's name is lower case, digits and underscores, and begins with a letter. "
                f"({written_at()})"
            )
        self.name = name
        self._inputs: dict[str, Input] = {}
        self._outputs: dict[str, Output] = {}
        self._dead_letters: Sink | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self._plan() == other._plan()

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Job({self.name!r}: {', '.join(self._inputs)} -> {', '.join(self._outputs)})"

    def _plan(self) -> tuple[object, ...]:
        return self.name, self._inputs, self._outputs, self._dead_letters

    @property
    def inputs(self) -> tuple[Input, ...]:
        """What the job reads, in the order in which it was written."""
        return tuple(self._inputs.values())

    @property
    def outputs(self) -> tuple[Output, ...]:
        """What the job writes, in the order in which it was written."""
        return tuple(self._outputs.values())

    @property
    def dead_letter_sink(self) -> Sink | None:
        """Where rows go that cannot be used, None when they stop the job."""
        return self._dead_letters

    def stream(
        self,
        name: str,
        source: Source,
        *,
        time: str | None,
        lateness: Duration | None = None,
        idle_after: Duration | None = None,
        max_ahead: Duration = "1 day",
    ) -> Stream:
        """An append-only stream of events.

        ``time`` is the event-time column (None: the batch's wall time). ``lateness`` is how far behind the
        newest event an event may arrive; an event exactly that far behind is on time. ``idle_after`` lets
        time go on while this input is silent. An event without a time, or further than ``max_ahead`` ahead
        of the wall clock, is bad: it goes to the dead letters and never moves time.

        >>> from penstock import Job, sources
        >>> Job("shop").stream("ticks", sources.rate(), time="timestamp", lateness="0 seconds").columns
        ('timestamp', 'value')
        """
        self._check_input(name, "stream")
        check_append_only(source, f"stream({name!r})")
        node = read_input(name, source, time, lateness, idle_after, max_ahead, f"stream({name!r})")
        self._inputs[name] = node
        return Stream(self, node)

    def _check_input(self, name: str, kind: str) -> None:
        check_step_name(name, f"{kind}({name!r})")
        if name in self._inputs:
            raise PlanError(
                f"{kind}({name!r}): the job has an input of that name already "
                f"({self._inputs[name].written_at}). ({written_at()})"
            )

    def table(
        self,
        name: str,
        source: Source,
        *,
        key: str | tuple[str, ...],
        sequence: str | tuple[str, ...] | None = None,
        time: str | None = None,
        lateness: Duration | None = None,
        idle_after: Duration | None = None,
        max_ahead: Duration = "1 day",
        delete_when: str | None = None,
        history: Duration | None = None,
        tombstones: Duration | None = None,
    ) -> Table:
        """A changelog read as a table: the latest row per ``key``, by ``sequence`` (else ``time``, else arrival).

        ``delete_when`` is a predicate for rows that delete their key. An older sequence never replaces a newer
        one, and a deleted key does not come back by an older row. ``time`` and ``lateness`` are needed by
        ``asof``, and then the table holds time back as a stream does; ``history`` is how long an event may be
        late and still be answered. ``tombstones`` is how long a deleted key is remembered, by event time where
        the table has one, else by wall time; for ever when left out. A row without its key is a dead letter. A
        source of changes (``debezium``, ``maxwell``, ``upsert``) knows its own deletes and its own order, and
        takes neither ``sequence`` nor ``delete_when``; the time of a delete is when the source said it.

        >>> from penstock import Job, sources
        >>> source = sources.files("in", format="json", schema="id long, name string, gone boolean")
        >>> Job("shop").table("users", source, key="id", delete_when="gone").key
        ('id',)
        """
        self._check_input(name, "table")
        node = read_table(name, source, names_of(key), time, lateness, idle_after, max_ahead, history)
        order, step = names_of(sequence), f"table({name!r})"
        check_plain(source, step, sequence=order, delete_when=delete_when)
        for column in order:
            node.columns.require(column, f"{step}: sequence={column!r}")
        if delete_when is not None:
            check(delete_when, node.columns, f"{step}: delete_when={delete_when!r}")
        kept = None if tombstones is None else duration(tombstones, f"{step}: tombstones")
        self._inputs[name] = node
        return Table(self, latest(name, node, node.key_columns, order, delete_when, kept))

    def dead_letters(self, sink: Sink) -> None:
        """Send rows that cannot be used to ``sink``: malformed, without a usable time, late where a step says so.

        The sink gets ``reason``, ``input``, ``step``, ``place``, ``row`` and ``batch``. Without dead letters
        such a row stops the job, with an error that names it.

        >>> from penstock import Job, sinks
        >>> Job("shop").dead_letters(sinks.memory("dead"))
        """
        if not isinstance(sink, Sink):
            raise PlanError(f"dead_letters: the sink is one of penstock.sinks, not {sink!r}. ({written_at()})")
        if self._dead_letters is not None:
            raise PlanError(f"dead_letters: the job has dead letters already. ({written_at()})")
        self._dead_letters = sink

    @property
    def needs(self) -> tuple[Need, ...]:
        """What Spark must have to run the job, each once."""
        sinks = [output.sink for output in self.outputs]
        sinks += [self._dead_letters] if self._dead_letters is not None else []
        places: list[Source | Sink] = [*(node.source for node in self.inputs), *sinks]
        return tuple(dict.fromkeys(need for place in places for need in place.needs))

    def run(
        self,
        spark: SparkSession | None = None,
        *,
        checkpoint: str | None = None,
        once: bool = False,
        trigger: Duration | None = None,
        buckets: int | None = None,
        take_over: Iterable[str] = (),
    ) -> None:
        """Run until stopped; with ``once`` take all that is there now, then stop.

        ``checkpoint`` is a folder of its own, ``checkpoints/<job>`` when left out. ``trigger`` is the least
        time between two batches. Ctrl-C and SIGTERM end it after the batch at hand. ``buckets`` is how many
        parts the state is split into, by key; left out, as many as there are, and four a core in a new checkpoint.

        ``take_over`` are outputs whose places this run takes whoever wrote them, as they are: what stands there
        stays, and the next batch is written to it. Where the place is this run's anyway it does nothing.
        """
        from penstock.run.query import run

        run(self, spark, checkpoint=checkpoint, once=once, trigger=trigger, buckets=buckets, take_over=take_over)

    def start(
        self,
        spark: SparkSession | None = None,
        *,
        checkpoint: str | None = None,
        once: bool = False,
        trigger: Duration | None = None,
        buckets: int | None = None,
        take_over: Iterable[str] = (),
    ) -> Run:
        """Run without blocking: gives a ``Run`` with ``status()``, ``stop()`` and ``wait()``."""
        from penstock.run.query import start

        return start(
            self, spark, checkpoint=checkpoint, once=once, trigger=trigger, buckets=buckets, take_over=take_over
        )

    def run_batch(self, inputs: Mapping[str, DataFrame], spark: SparkSession | None = None) -> dict[str, DataFrame]:
        """The same job over bounded frames, one for each input: nothing is late and every window closes."""
        from penstock.run.bounded import run_batch

        return run_batch(self, inputs, spark)

    def explain(self) -> str:
        """The plan as an indented text: each step with its name, keys, the state it keeps, its bound and its lag."""
        dead = self._dead_letters.describe() if self._dead_letters is not None else None
        return text.explain(self.name, [o.drawn() for o in self.outputs], dead)

    def graph(self) -> str:
        """The plan as a Mermaid flow chart.

        >>> from penstock import Job
        >>> Job("shop").graph()
        'flowchart LR\\n'
        """
        return text.graph([o.drawn() for o in self.outputs])

    def _add_output(self, node: Node, sink: Sink, name: str | None, key: str | tuple[str, ...] | None) -> None:
        output = write_output(node, sink, name, key)
        if output.name in self._outputs:
            raise PlanError(
                f"output {output.name!r}: the job has an output of that name already "
                f"({self._outputs[output.name].written_at}); give one another name=. ({written_at()})"
            )
        shared = [o for o in self.outputs if o.sink == output.sink and o.sink.transactional]
        if shared:
            raise PlanError(
                f"output {output.name!r}: {sink.describe()} is the output {shared[0].name!r} already "
                f"({shared[0].written_at}); give it another place. ({written_at()})"
            )
        check_names((*self.outputs, output))
        corrections(o.node for o in (*self.outputs, output))
        if output.name == "dead_letters":
            raise PlanError(f"output 'dead_letters': that name is for job.dead_letters(...). ({written_at()})")
        foreign = [n.name for n in walk(output.node) if isinstance(n, Input) and self._inputs.get(n.name) != n]
        if foreign:
            raise PlanError(f"output {output.name!r}: the input {foreign[0]!r} is of another job. ({written_at()})")
        self._outputs[output.name] = output
