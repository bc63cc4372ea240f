"""A real Kafka broker of one's own, on loopback, gone when it is closed."""

from __future__ import annotations

import base64
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock.plan.errors import PenstockError
from penstock.run import java
from penstock.run.jars import jars

PACKAGE = "org.apache.kafka:kafka_2.13:4.3.1"
READY_S = 60.0
POLL_S = 0.05
PORTS_TRIED = 3


@dataclass(frozen=True)
class Message:
    """A record of a topic, to be sent or as it was read; text is UTF-8, ``value=None`` is a tombstone."""

    value: bytes | str | None
    key: bytes | str | None = None
    partition: int | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None
    offset: int | None = None


class Kafka:
    """A broker with no topics; ``servers`` is its address.

    The broker's jars are fetched from Maven once (see ``penstock.run.jars``), the client is the package
    ``confluent-kafka``. ``stop()`` and ``kill()`` leave the data where they are and ``start()`` goes on with them,
    at the same address; what it held goes with the end of the ``with`` block. ``settings`` are the broker's own.

    >>> with Kafka() as broker:  # doctest: +SKIP
    ...     broker.create_topic("clicks", partitions=3)
    ...     broker.send("clicks", ['{"n": 1}'])
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.port = 0
        self._settings = dict(settings or {})
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-kafka-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._java: list[str] = []

    @property
    def servers(self) -> str:
        """The address, as ``sources.kafka`` takes it."""
        return f"127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        """True while the broker's process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process id of the broker, None when there is none."""
        return self._process.pid if self._process is not None else None

    def __enter__(self) -> Kafka:
        try:
            home = java.find()
            if home is None:
                raise PenstockError("a Kafka broker needs Java 17 or newer, and there is none.")
            libraries = jars(PACKAGE, beside_spark=False)[0].parent
            quick = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
            self._java = [str(home / "bin" / "java"), *quick, "-cp", f"{libraries}/*"]
            for _ in range(PORTS_TRIED):
                # another program may take a port between this line and the broker's own
                self._make()
                if self._begin():
                    return self
            raise PenstockError(f"Kafka does not start: {self._said()}")
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Start the broker again, on the same data and at the same address; nothing when it runs."""
        if not self.running and not self._begin():
            raise PenstockError(f"Kafka does not start again: {self._said()}")

    def stop(self) -> None:
        """Stop the broker in good order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the broker at once, as a crash does."""
        self._end(signal.SIGKILL)

    def close(self) -> None:
        """End the broker and remove all that it held."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """Make a topic; ``config`` are its settings, with ``_`` for ``.``: ``cleanup_policy="compact"``."""
        from confluent_kafka.admin import NewTopic

        told = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=told)
        self._ask(lambda admin: admin.create_topics([topic]))

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and return when the broker no longer has it."""
        self._ask(lambda admin: admin.delete_topics([name]))
        admin = self._admin()
        until = time.monotonic() + READY_S
        while name in admin.list_topics(timeout=READY_S).topics:
            if time.monotonic() > until:
                raise PenstockError(f"Kafka still has the topic {name!r} after {READY_S:.0f} seconds.")
            time.sleep(POLL_S)

    def forget(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the records of partitions before an offset, as the end of their retention does."""
        from confluent_kafka import TopicPartition

        offsets = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        self._ask(lambda admin: admin.delete_records(offsets))

    def send(self, topic: str, messages: Iterable[Message | str | bytes | None]) -> None:
        """Write messages, and return when the broker has them all; a bare value goes to partition 0."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5, "message.timeout.ms": 60_000})
        failed: list[Any] = []
        for one in messages:
            message = one if isinstance(one, Message) else Message(one, partition=0)
            more: dict[str, Any] = {} if message.partition is None else {"partition": message.partition}
            more |= {} if message.timestamp_ms is None else {"timestamp": message.timestamp_ms}
            while True:
                try:
                    producer.produce(
                        topic, value=message.value, key=message.key, headers=list(message.headers),
                        on_delivery=lambda error, _: failed.append(error) if error else None, **more,
                    )  # fmt: skip
                    break
                except BufferError:
                    producer.poll(0.1)
        left = producer.flush(READY_S)
        if failed or left:
            raise PenstockError(f"Kafka did not take {left + len(failed)} messages: {failed[:1]}")

    def read(self, topic: str, *, committed: bool = True) -> list[Message]:
        """All that a topic holds now, partition by partition."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer({
            "bootstrap.servers": self.servers, "group.id": uuid.uuid4().hex, "enable.auto.commit": False,
            "enable.partition.eof": True, "fetch.wait.max.ms": 20, "log_level": 3, "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        })  # fmt: skip
        try:
            partitions = consumer.list_topics(topic, timeout=READY_S).topics[topic].partitions
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
            return sorted(_read_to_the_end(consumer, len(partitions)), key=lambda m: (m.partition or 0, m.offset or 0))
        finally:
            consumer.close()

    def ends(self, topic: str) -> dict[int, int]:
        """The offset that the next message of each partition will have."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(topic, OffsetSpec.latest())

    def _offsets(self, topic: str, which: Any) -> dict[int, int]:
        from confluent_kafka import TopicPartition

        admin = self._admin()
        partitions = admin.list_topics(topic, timeout=READY_S).topics[topic].partitions
        asked = admin.list_offsets({TopicPartition(topic, p): which for p in partitions}, request_timeout=READY_S)
        return {at.partition: future.result().offset for at, future in asked.items()}

    def _admin(self) -> Any:
        try:
            from confluent_kafka.admin import AdminClient
        except ImportError:
            raise PenstockError("penstock.testing.servers.kafka needs a client: pip install confluent-kafka.") from None
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 3})

    def _ask(self, what: Any) -> None:
        admin = self._admin()  # its answers come only while it is held
        for future in what(admin).values():
            future.result(READY_S)

    def _make(self) -> None:
        """A folder for one node that is broker and controller."""
        self.port, controller = _free_ports(2)
        data = self._folder / "data"
        shutil.rmtree(data, ignore_errors=True)
        own = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.servers},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.servers}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(data),
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            **{f"{log}.topic.replication.factor": "1" for log in ("offsets", "share.coordinator.state")},
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "controlled.shutdown.enable": "false",
            # a broker that comes back is not let in while its former self counts as alive
            "broker.session.timeout.ms": "2000",
            "broker.heartbeat.interval.ms": "500",
            **self._settings,
        }
        told = self._folder / "server.properties"
        told.write_text("".join(f"{key}={value}\n" for key, value in own.items()))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = [*self._java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(told)]
        said = subprocess.run(command, capture_output=True, text=True, timeout=READY_S)
        if said.returncode:
            raise PenstockError(f"Kafka's storage cannot be made: {(said.stderr or said.stdout).strip()[-2000:]}")

    def _begin(self) -> bool:
        """Start the process and wait until it answers; False when it ends instead."""
        with (self._folder / "log").open("ab") as log:
            command = [*self._java, "kafka.Kafka", str(self._folder / "server.properties")]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + READY_S
        while self.running and time.monotonic() < until:
            if _answers(self.port) and self._has_broker():
                return True
            time.sleep(POLL_S)
        self.kill()
        return False

    def _has_broker(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            return bool(self._admin().list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(how)
        try:
            self._process.wait(READY_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(READY_S)
        self._process = None

    def _said(self) -> str:
        log = self._folder / "log"
        return log.read_text(errors="replace").strip()[-2000:] if log.exists() else "it said nothing"


def _read_to_the_end(consumer: Any, partitions: int) -> Iterator[Message]:
    from confluent_kafka import KafkaError

    ended: set[int] = set()
    until = time.monotonic() + READY_S
    while len(ended) < partitions:
        record = consumer.poll(1.0)
        if record is None:
            if time.monotonic() > until:
                raise PenstockError(f"Kafka sent nothing for {READY_S:.0f} seconds.")
            continue
        if record.error() is not None:
            if record.error().code() != KafkaError._PARTITION_EOF:
                raise PenstockError(f"Kafka: {record.error()}")
            ended.add(record.partition())
            continue
        yield Message(
            record.value(), record.key(), record.partition(), tuple(record.headers() or ()),
            record.timestamp()[1], record.offset(),
        )  # fmt: skip


def _answers(port: int) -> bool:
    with socket.socket() as attempt:
        attempt.settimeout(1)
        return attempt.connect_ex(("127.0.0.1", port)) == 0


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in held]
    finally:
        for one in held:
            one.close()
