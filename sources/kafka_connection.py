"""How Kafka is reached: its servers, what its clients are told, and what Spark needs for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from penstock.plan.errors import PlanError
from penstock.plan.needs import Need
from penstock.plan.secrets import is_reference, reveal, shown
from penstock.plan.written import written_at

CLIENT = "kafka."
SERVERS = "kafka.bootstrap.servers"
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
# the connectors that Maven has, by the version of Spark; they fit every Spark of theirs
CONNECTORS = {"4.0": "4.0.0", "4.1": "4.1.1", "4.2": "4.2.0"}
# a broker that is away is told of within a minute; Kafka's own clients try for two
PATIENCE = {"kafka.request.timeout.ms": "10000", "kafka.default.api.timeout.ms": "12000"}


@dataclass(frozen=True)
class Connection:
    """The servers, and the options of Kafka's clients, some of them references to secrets."""

    servers: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def told(self, step: str, **defaults: str) -> dict[str, str]:
        """What Spark's connector is told, secrets revealed: keep it out of messages and of what is stored."""
        given = {name: reveal(value, step) for name, value in self.options}
        patience = {} if PATIENCE.keys() & given.keys() else PATIENCE
        return {**patience, **defaults, **given, SERVERS: reveal(self.servers, step)}

    def client(self, step: str) -> dict[str, str]:
        """What a client of Kafka's own is told, secrets revealed."""
        return {name.removeprefix(CLIENT): value for name, value in self.told(step).items() if name.startswith(CLIENT)}

    def without_secrets(self, text: str) -> str:
        """Text of Kafka's or Spark's without the secrets that it may quote."""
        for name, value in (*self.options, ("", self.servers)):
            told = reveal(value, name) if is_reference(value) else value
            if told and (is_reference(value) or re.search(r"(?i)password|secret|jaas|token", name)):
                text = text.replace(told, "***")
        return text

    def __str__(self) -> str:
        return shown(self.servers)


def connection(servers: Any, options: Mapping[str, Any], step: str) -> Connection:
    """The connection that a job describes, refused when it makes no sense."""
    if not isinstance(servers, str) or not servers.strip():
        raise PlanError(f"{step}: servers={servers!r}; give host:port, several with commas. ({written_at()})")
    if SERVERS in options:
        raise PlanError(f"{step}: {SERVERS} is what servers= says; leave it out. ({written_at()})")
    return Connection(servers, as_texts(options))


def as_texts(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Options as Java writes them, in order."""
    return tuple(sorted((k, str(v).lower() if isinstance(v, bool) else str(v)) for k, v in options.items()))


def check_topic(topic: Any, step: str) -> str:
    """The topic, refused when no topic can have that name."""
    if not isinstance(topic, str) or not TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise PlanError(
            f"{step}: {topic!r} is no name of a topic: letters, digits, '.', '_' and '-', one topic. ({written_at()})"
        )
    return topic


def connector(artifact: str) -> str:
    """The Maven package of a connector that fits the Spark that is installed.

    >>> connector("spark-sql-kafka-0-10").rpartition(":")[0]
    'org.apache.spark:spark-sql-kafka-0-10_2.13'
    """
    of_spark = _spark()
    return f"org.apache.spark:{artifact}_2.13:{CONNECTORS.get(of_spark, f'{of_spark}.0')}"


def is_there() -> bool:
    """True when a connector is known for the Spark that is installed."""
    return _spark() in CONNECTORS


def _spark() -> str:
    return ".".join(version("pyspark").split(".")[:2])


def kafka_need() -> Need:
    """What Spark needs to read and write Kafka."""
    return Need("Kafka", connector("spark-sql-kafka-0-10"), "org.apache.spark.sql.kafka010.KafkaSourceProvider")


def avro_need() -> Need:
    """What Spark needs to read Avro."""
    return Need("Avro", connector("spark-avro"), "org.apache.spark.sql.avro.AvroFileFormat")
