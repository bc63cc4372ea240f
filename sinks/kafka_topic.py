"""Send results to a Kafka topic: a stream's rows, or a table's changes by their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.plan.columns import check_unique
from penstock.plan.errors import PlanError, RunError, SinkError, TransientSinkError
from penstock.plan.needs import Need
from penstock.plan.written import written_at
from penstock.sinks import refusals
from penstock.sinks.base import Changes, Owner, Sink, Target, Writer
from penstock.sinks.kafka_messages import messages
from penstock.sources.kafka_connection import CLIENT, Connection, check_topic, connection, kafka_need

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# a broker that is away is told of soon, and the batch is tried again; Kafka's own producer waits for two minutes
BLOCK = {"kafka.max.block.ms": "10000"}
DELIVERY, DELIVERY_MS = "kafka.delivery.timeout.ms", 15_000
# what a producer waits for until it gives up, with Kafka's own numbers: it refuses to give up before that
WAITS = {"kafka.request.timeout.ms": "30000", "kafka.linger.ms": "5"}
TRANSACTION = "kafka.transactional.id"
# records of one try must stand in the topic in the order in which they were sent, and none be lost or doubled by it
KEPT = {"kafka.acks": ("all", "-1"), "kafka.enable.idempotence": ("true",)}
NEXT_MOVE = "See that the brokers run and can be reached from here."
MAY_PASS = (
    "TimeoutException", "NetworkException", "DisconnectException", "NotEnoughReplicas", "NotLeaderOrFollower",
    "LeaderNotAvailable", "BrokerNotAvailable", "CoordinatorNotAvailable", "OutOfOrderSequence", "KafkaStorage",
)  # fmt: skip


def kafka(topic: str, servers: str, *, key: str | Sequence[str] | None = None, **options: Any) -> KafkaTopic:
    """Send to a Kafka topic, which must exist.

    A Stream's rows: the value is the row as a JSON object; with ``key`` the message key is those columns as a JSON
    object, and rows of equal key go to one partition. A Table's changes: key and value so too, the key that of the
    table and no other, and a delete is a null value; ``sources.kafka(..., format="upsert")`` reads it. Times are
    ISO 8601 in UTC with microseconds, binary is base64.

    At least once: after a crash the batch at hand is sent again. Each message says in its headers which row it is:
    ``job``, ``output``, ``checkpoint``, ``batch`` and ``row``, and a row that is sent again says the same and goes to
    the same partition. Readers drop repeats by them: ``penstock.sinks.kafka_repeats.Repeats`` is the rule, and in
    a job it is ``sources.kafka(..., columns=["id"])`` and ``.deduplicate("id", within="1 second")``.

    ``options`` begin with ``kafka.`` and go to Kafka's producer; values may be secrets by reference
    (``"env:NAME"``, ``"file:PATH"``). ``acks=all`` and idempotence are not for choice, and there are no transactions.

    >>> kafka("ctr", "localhost:9092").describe()
    'Kafka topic ctr at localhost:9092'
    """
    step = f"sinks.kafka({topic!r})"
    check_topic(topic, step)
    for name, value in options.items():
        if not name.startswith(CLIENT):
            raise PlanError(
                f"{step}: there is no option {name!r}; those of Kafka begin with 'kafka.'. ({written_at()})"
            )
        if name in KEPT and str(value).lower() not in KEPT[name]:
            raise PlanError(f"{step}: {name}={value!r} could lose or mix up rows; leave it out. ({written_at()})")
    if TRANSACTION in options:
        raise PlanError(
            f"{step}: {TRANSACTION} makes a producer that sends in transactions only, and nothing begins a "
            f"transaction here; leave it out. ({written_at()})"
        )
    keys = () if key is None else (key,) if isinstance(key, str) else check_unique(tuple(key), f"{step}: key")
    place = connection(servers, options, step)
    least = least_delivery_ms({**place.patience, **dict(place.options)})
    told = dict(place.options).get(DELIVERY, "")
    if told.isdecimal() and int(told) < least:
        raise PlanError(
            f"{step}: {DELIVERY}={told} is less than a request and its linger may take, which no producer accepts; "
            f"give at least {least}, or leave it out. ({written_at()})"
        )
    return KafkaTopic(topic, place, keys)


def least_delivery_ms(options: Mapping[str, str]) -> int:
    """How long a producer must be given to deliver a record: what is no number it refuses itself.

    >>> least_delivery_ms({"kafka.request.timeout.ms": "1500"})
    1505
    """
    waits = ({**WAITS, **options}[name] for name in WAITS)
    return sum(int(text) for text in waits if text.isdecimal())


def producer(connection: Connection, step: str) -> dict[str, str]:
    """What Spark's connector is told to send with, secrets revealed."""
    told = connection.told(step, **BLOCK)
    return {DELIVERY: str(max(DELIVERY_MS, least_delivery_ms(told))), **told}


@dataclass(frozen=True)
class KafkaTopic(Sink):
    """A topic; ``key`` are the columns of a stream's message key."""

    topic: str
    connection: Connection
    key: tuple[str, ...] = ()

    upserts: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.topic

    @property
    def place(self) -> str:
        return f"kafka {self.connection}/{self.topic}"

    @property
    def needs(self) -> tuple[Need, ...]:
        return (kafka_need(f"sinks.kafka({self.topic!r})"),)

    def describe(self) -> str:
        return f"Kafka topic {self.topic} at {self.connection}"

    def check_key(self, output: str, key: tuple[str, ...]) -> None:
        if self.key and key and set(self.key) != set(key):
            raise PlanError(
                f"output {output!r}: sinks.kafka({self.topic!r}) has key={', '.join(self.key)}, and the rows that go "
                f"there are a table's, by {', '.join(key)}: its messages have that key. Leave it out. ({written_at()})"
            )

    def writer(self, targets: Sequence[Target], owner: Owner) -> KafkaWriter:
        if len(targets) > 1:
            raise refusals.shared(targets, self.describe())
        return KafkaWriter(self, targets[0], owner)


class KafkaWriter(Writer):
    """Sends each batch with Spark's connector; keeps no ledger."""

    def __init__(self, sink: KafkaTopic, target: Target, owner: Owner) -> None:
        self.sink = sink
        self.target = target
        self.owner = owner
        self.partitions = self._partitions()

    def write(self, batch: int, changes: Mapping[str, Changes]) -> bool:
        change = changes[self.target.output]
        frame = change.rows.to_spark()
        self._check_columns(frame.columns)
        deletes = change.deletes.to_spark() if change.deletes is not None else None
        said = {
            "job": self.owner.job,
            "output": self.target.output,
            "checkpoint": self.owner.checkpoint,
            "batch": str(batch),
        }
        upserts = self.target.key
        self._send(messages(frame, deletes, upserts or self.sink.key, said, self.partitions, net=bool(upserts)))
        self.worst_moment()
        return True

    def _send(self, sent: DataFrame) -> None:
        from penstock.compile.failures import SPARK_ERRORS, root_cause

        options = producer(self.sink.connection, self._step)
        try:
            sent.write.format("kafka").options(**options).option("topic", self.sink.topic).save()
        except SPARK_ERRORS as error:
            text = str(error)
            if "kafka" not in text.lower():
                raise  # of the rows, not of the topic
            said = self.sink.connection.without_secrets(root_cause(error))
            passes = any(sign in text for sign in MAY_PASS)
            raise refusals.cannot_write([self.target], self.sink.describe(), said, NEXT_MOVE, passes=passes) from None

    def _check_columns(self, columns: Sequence[str]) -> None:
        for name in self.sink.key:
            if name not in columns:
                raise SinkError(
                    f"output {self.target.output!r}: {self._step} has key={name!r}; the rows have {', '.join(columns)}."
                )

    def _partitions(self) -> int:
        from penstock.sources.kafka_broker import AwayError, Broker

        try:
            with Broker(self.sink.connection, self._step) as broker:
                return len(broker.topic(self.sink.topic).latest)
        except RunError as error:
            kind = TransientSinkError if isinstance(error, AwayError) else SinkError
            raise kind(f"{refusals.outputs_of([self.target])}: {error}") from None

    @property
    def _step(self) -> str:
        return f"sinks.kafka({self.sink.topic!r})"
