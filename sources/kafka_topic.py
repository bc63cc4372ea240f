"""A topic of Kafka: its messages as rows or as the changes of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.plan.errors import PlanError
from penstock.plan.needs import Need
from penstock.plan.schemas import schema as read_schema
from penstock.plan.written import written_at
from penstock.sources import kafka_avro, kafka_values
from penstock.sources.base import Source, Watch, as_texts
from penstock.sources.cdc.changelog import Changelog
from penstock.sources.cdc.formats import CHANGELOGS
from penstock.sources.kafka_connection import CLIENT, Connection, avro_need, check_topic, connection, kafka_need
from penstock.sources.kafka_start import Start, check_start, read_start, starting, told_start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.sources.kafka_broker import Broker

FORMATS = ("json", "csv", "avro", *CHANGELOGS)
BATCH_ROWS = 1_000_000
# what Spark's connector may be told besides, and its readers of one value: they pass over a name they do not know
CONNECTOR = (
    "minPartitions", "maxRecordsPerPartition", "groupIdPrefix", "minOffsetsPerTrigger", "maxTriggerDelay",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs",
)  # fmt: skip
TEXTS = ("dateFormat", "enableDateTimeParsingFallback", "locale", "timeZone", "timestampFormat", "timestampNTZFormat")
READERS = {
    "json": (
        "allowBackslashEscapingAnyCharacter", "allowComments", "allowNonNumericNumbers", "allowNumericLeadingZeros",
        "allowSingleQuotes", "allowUnquotedControlChars", "allowUnquotedFieldNames", "maxNestingDepth", "maxNumLen",
        "maxStringLen", *TEXTS,
    ),
    "csv": (
        "charToEscapeQuoteEscaping", "comment", "delimiter", "emptyValue", "escape", "ignoreLeadingWhiteSpace",
        "ignoreTrailingWhiteSpace", "maxCharsPerColumn", "maxColumns", "nanValue", "negativeInf", "nullValue",
        "positiveInf", "quote", "sep", "unescapedQuoteHandling", *TEXTS,
    ),
}  # fmt: skip
OURS = {
    "subscribe": "topic", "subscribePattern": "topic", "assign": "topic", "startingOffsets": "start",
    "startingTimestamp": "start", "startingOffsetsByTimestamp": "start", "maxOffsetsPerTrigger": "max_rows_per_batch",
    "includeHeaders": "columns",
}  # fmt: skip
POLL = {"kafkaConsumer.pollTimeoutMs": "30000"}


@dataclass(frozen=True)
class Kafka(Source):
    """A topic, where to read it from, and how its values are read."""

    topic: str
    connection: Connection
    format: str
    declared: pa.Schema
    start: Start = "earliest"
    beside: tuple[tuple[str, str], ...] = ()  # what is asked for besides the value, and its column
    max_rows: int | None = BATCH_ROWS
    reading: tuple[tuple[str, str], ...] = ()  # for the connector
    parsing: tuple[tuple[str, str], ...] = ()  # for the format
    avro_schema: str | None = field(default=None, repr=False)

    def __hash__(self) -> int:
        return hash((self.topic, self.connection, self.format, self.start, self.beside))

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.declared, *kafka_values.beside_schema(dict(self.beside))])

    @property
    def changelog(self) -> Changelog | None:
        return CHANGELOGS.get(self.format)

    @property
    def needs(self) -> tuple[Need, ...]:
        return kafka_need(self._step), *((avro_need(self._step),) if self.format == "avro" else ())

    @property
    def place(self) -> str:
        # not the servers: a cluster may be reached by other names
        return f"kafka topic {self.topic}"

    def describe(self) -> str:
        return f"{self.format} in Kafka topic {self.topic} at {self.connection}, from {told_start(self.start)}"

    def read(self, spark: SparkSession) -> DataFrame:
        step = self._step
        partitions: list[int] = []
        if isinstance(self.start, tuple):
            with self.open() as broker:
                partitions = list(broker.topic(self.topic).latest)
        options = {
            **self.connection.told(step, **POLL),
            **dict(self.reading),
            **starting(self.start, self.topic, partitions),
            "subscribe": self.topic,
            "failOnDataLoss": "true",
            "includeHeaders": str(bool({"headers", "id"} & dict(self.beside).keys())).lower(),
        }
        if self.max_rows is not None:
            options["maxOffsetsPerTrigger"] = str(self.max_rows)
        messages = spark.readStream.format("kafka").options(**options).load()
        if self.changelog is not None:
            return kafka_values.changes(messages, two_parts=self.format == "upsert")
        if self.avro_schema is not None:
            return kafka_values.avro_rows(messages, self.declared, dict(self.beside), self.avro_schema)
        return kafka_values.rows(messages, self.declared, self.format, dict(self.beside), dict(self.parsing))

    def check(
        self, spark: SparkSession, known: Mapping[str, Any], reached: Mapping[str, int] | None
    ) -> Mapping[str, Any]:
        from penstock.sources.kafka_broker import NoTopicError
        from penstock.sources.kafka_losses import check_topic_is_whole, topic_has_gone

        with self.open() as broker:
            try:
                there = broker.topic(self.topic)
            except NoTopicError:
                if reached is None:
                    raise
                raise topic_has_gone(self.topic, str(self.connection), self._step) from None
        if reached is None:
            check_start(self.start, self.topic, there, self._step)
        return check_topic_is_whole(self.topic, there, known, reached, self._step)

    def reached(self, offsets: Mapping[str, Any]) -> Mapping[str, int] | None:
        return offsets.get(self.topic)

    def open(self) -> Broker:
        """A client to ask the brokers with; close it."""
        from penstock.sources.kafka_broker import Broker

        return Broker(self.connection, self._step)

    def watch(self, known: Mapping[str, Any]) -> Watch:
        from penstock.sources.kafka_broker import TopicWatch

        return TopicWatch(self.open, self.topic, known, self._step)

    def without_secrets(self, text: str) -> str:
        return self.connection.without_secrets(text)

    @property
    def _step(self) -> str:
        return f"sources.kafka({self.topic!r})"


def kafka(
    topic: str,
    servers: str,
    format: str,  # noqa: A002  Spark's own word
    schema: Any,
    start: Any = "earliest",
    *,
    columns: Sequence[str] | Mapping[str, str] = (),
    max_rows_per_batch: int | None = BATCH_ROWS,
    avro_schema: Any = None,
    **options: Any,
) -> Kafka:
    """The messages of a Kafka topic.

    Rows: ``json``, ``csv`` or ``avro`` (plain Avro, written with the schema in ``avro_schema``, the JSON of a record;
    without it, with the one that follows from ``schema``: ``["null", type]`` for what may be null, times in
    microseconds). Changes, for ``job.table``: ``debezium``, ``maxwell`` or ``upsert`` (message key and value are
    JSON objects, and a value of null deletes); their ``schema`` is the row's, not the message's.

    ``start`` counts when the job has no checkpoint yet: ``"earliest"``, ``"latest"``, a time (text or ``datetime``,
    UTC unless it says otherwise; by the messages' own timestamps), or offsets by partition (``{0: 17}``; partitions
    that it does not name begin with the earliest). After that the checkpoint says where to go on. When the topic no
    longer has what comes next, the job is refused by name; nothing is skipped.

    ``columns`` asks for more than the value, by name or as ``{what: name}``: ``key`` (text), ``headers`` (array of
    ``key`` and binary ``value``), ``partition``, ``offset``, ``timestamp`` (the message's own, as the broker has it)
    and ``id``, which tells messages that were sent twice: see ``sinks.kafka``.

    Each partition has its own time, and the input's is the smallest of them. A value that cannot be read, or
    has a wrong type, or lacks a column that is declared ``not null``, is malformed, as in files; so is a message
    without a value, which is no event, and one with more in it than a row: text behind its JSON, or bytes before or
    behind its Avro, as a schema registry puts them. A value in Avro that its column's type cannot hold as it is
    has a wrong type: no number is rounded. The dead letter has its topic, partition and offset, and the text; bytes
    that are no UTF-8, and all of Avro, are kept as ``base64:...``.

    A batch takes ``max_rows_per_batch`` messages at most, spread over the partitions. ``options`` that begin with
    ``kafka.`` go to Kafka's clients, and their values may be secrets by reference (``"env:NAME"``, ``"file:PATH"``);
    others are those of Spark's connector, or of its reader of JSON or CSV, and what neither knows is refused.

    >>> kafka("clicks", "localhost:9092", "json", "url string, at timestamp", columns=["key", "offset"]).schema.names
    ['url', 'at', 'key', 'offset']
    """
    step = f"sources.kafka({topic!r})"
    check_topic(topic, step)
    if format not in FORMATS:
        raise PlanError(f"{step}: format={format!r}; there is {', '.join(FORMATS)}. ({written_at()})")
    declared = read_schema(schema, f"{step}: schema")
    reading, parsing = _sorted_options(format, options, step)
    if max_rows_per_batch is not None and (not isinstance(max_rows_per_batch, int) or max_rows_per_batch < 1):
        raise PlanError(
            f"{step}: max_rows_per_batch={max_rows_per_batch!r}; give a number of rows, or None. ({written_at()})"
        )
    if avro_schema is not None and format != "avro":
        raise PlanError(f"{step}: avro_schema= is for format='avro', not {format!r}. ({written_at()})")
    written = None
    if format == "avro":
        given = avro_schema is not None
        written = kafka_avro.given(avro_schema, declared, step) if given else kafka_avro.derived(declared, step)
    return Kafka(
        topic,
        connection(servers, {k: v for k, v in options.items() if k.startswith(CLIENT)}, step),
        format,
        declared,
        read_start(start, step),
        _beside(columns, declared, format, step),
        max_rows_per_batch,
        reading,
        parsing,
        written,
    )


def _sorted_options(format: str, options: Mapping[str, Any], step: str) -> tuple[tuple[tuple[str, str], ...], ...]:  # noqa: A002
    """The options for the connector, and those for the format; Spark does not tell case."""
    if any(name.casefold() == "failondataloss" for name in options):
        raise PlanError(
            f"{step}: failOnDataLoss stays true: what a topic has lost is never skipped. Leave it out. ({written_at()})"
        )
    own = {name: value for name, value in options.items() if not name.startswith(CLIENT)}
    ours, connector, reader = (
        {name.casefold(): name for name in names} for names in (OURS, CONNECTOR, READERS.get(format, ()))
    )
    for name in own:
        folded = name.casefold()
        if folded in ours:
            raise PlanError(f"{step}: {name} is what {OURS[ours[folded]]}= says; leave it out. ({written_at()})")
        if folded not in {**connector, **reader}:
            near = get_close_matches(folded, [*connector, *reader, *ours], 1, 0.7)
            meant = [f"{OURS[ours[n]]}=" if n in ours else repr({**connector, **reader}[n]) for n in near]
            hint = f" Did you mean {meant[0]}?" if meant else ""
            there = f"its reader of {format} has {', '.join(READERS[format])}; " if format in READERS else ""
            raise PlanError(
                f"{step}: there is no option {name!r}.{hint} Spark's connector has {', '.join(CONNECTOR)}; {there}"
                f"those of Kafka's clients begin with 'kafka.'. ({written_at()})"
            )
    reading = {name: value for name, value in own.items() if name.casefold() in connector}
    return as_texts(reading), as_texts({name: value for name, value in own.items() if name not in reading})


def _beside(columns: Any, declared: pa.Schema, format: str, step: str) -> tuple[tuple[str, str], ...]:  # noqa: A002
    """What is asked for besides the value, and the names of its columns."""
    if isinstance(columns, str):
        columns = (columns,)
    named = dict(columns) if isinstance(columns, Mapping) else {what: what for what in columns}
    for what, name in named.items():
        if not kafka_values.is_known(what):
            there = ", ".join(kafka_values.BESIDE)
            raise PlanError(f"{step}: columns= asks for {what!r}; there is {there}. ({written_at()})")
        if name in declared.names:
            raise PlanError(
                f"{step}: the schema has a column {name!r} of its own; ask for the message's under another name: "
                f"columns={{{what!r}: 'message_{what}'}}. ({written_at()})"
            )
    if named and format in CHANGELOGS:
        raise PlanError(
            f"{step}: {format} messages are changes of a table's row, which has no {next(iter(named))}; "
            f"leave columns= out. ({written_at()})"
        )
    return tuple(named.items())
