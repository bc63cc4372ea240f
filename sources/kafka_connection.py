"""How Kafka is reached: its servers, what its clients are told, and what Spark needs for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from penstock.plan.errors import PlanError, RunError
from penstock.plan.needs import Need
from penstock.plan.secrets import is_reference, reveal, shown
from penstock.plan.written import written_at
from penstock.sources.base import as_texts

CLIENT = "kafka."
SERVERS = "kafka.bootstrap.servers"
SECRET = re.compile(r"(?i)password|secret|jaas|token|keystore[.]key")
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
        return {**self.patience, **defaults, **given, SERVERS: reveal(self.servers, step)}

    @property
    def patience(self) -> Mapping[str, str]:
        """How long a client waits, where nobody says it."""
        return {} if PATIENCE.keys() & dict(self.options).keys() else PATIENCE

    def client(self, step: str) -> dict[str, str]:
        """What a client of Kafka's own is told, secrets revealed."""
        return {name.removeprefix(CLIENT): value for name, value in self.told(step).items() if name.startswith(CLIENT)}

    def without_secrets(self, text: str) -> str:
        """Text of Kafka's or Spark's without the secrets that it may quote."""
        for name, value in (*self.options, ("", self.servers)):
            told = value if SECRET.search(name) else ""
            if is_reference(value):
                with suppress(RunError):  # what cannot be read was not told to anybody
                    told = reveal(value, name)
            text = text.replace(told, "***") if told else text
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


def check_topic(topic: Any, step: str) -> str:
    """The topic, refused when no topic can have that name."""
    if not isinstance(topic, str) or not TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise PlanError(
            f"{step}: {topic!r} is no name of a topic: letters, digits, '.', '_' and '-', one topic. ({written_at()})"
        )
    return topic


def connector(artifact: str, step: str) -> str:
    """The Maven package of a connector that fits the Spark that is installed, refused where none is known."""
    if not is_there():
        raise RunError(f"{step}: there is no Kafka connector for PySpark {version('pyspark')}. Use PySpark 4.0.")
    return f"org.apache.spark:{artifact}_2.13:{CONNECTORS[_spark()]}"


def is_there() -> bool:
    """True when a connector is known for the Spark that is installed."""
    return _spark() in CONNECTORS


def _spark() -> str:
    return ".".join(version("pyspark").split(".")[:2])


def kafka_need(step: str = "Kafka") -> Need:
    """What Spark needs to read and write Kafka."""
    return Need("Kafka", connector("spark-sql-kafka-0-10", step), "org.apache.spark.sql.kafka010.KafkaSourceProvider")


def avro_need(step: str = "Kafka") -> Need:
    """What Spark needs to read Avro."""
    return Need("Avro", connector("spark-avro", step), "org.apache.spark.sql.avro.AvroFileFormat")
