"""What the brokers say of a topic, asked through the client that Spark's connector brings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext

from penstock.plan.errors import RunError
from penstock.sources.kafka_connection import Connection
from penstock.sources.kafka_losses import check_topic_is_the_same

ANSWER_S = 30
SOON_S = 2


class NoTopicError(RunError):
    """The brokers know no such topic."""


class AwayError(RunError):
    """No broker answered."""


@dataclass(frozen=True)
class Topic:
    """A topic as it is now: its id, which no other topic ever has, and what its partitions hold."""

    id: str
    earliest: Mapping[int, int]  # partition -> the first offset that can still be read
    latest: Mapping[int, int]  # partition -> the offset that the next record will have


class Broker:
    """An open client; close it."""

    def __init__(self, connection: Connection, step: str) -> None:
        self._connection = connection
        self._step = step
        context = SparkContext._active_spark_context
        assert context is not None
        assert context._jvm is not None
        self._java: Any = context._jvm
        told = self._java.java.util.Properties()
        for name, value in connection.client(step).items():
            told.setProperty(name, value)
        clients = self._java.org.apache.kafka.clients.admin
        self._admin: Any = self._asked(lambda: clients.AdminClient.create(told), "")

    def topic(self, name: str, patience_s: int = ANSWER_S) -> Topic:
        """The topic; NoTopicError when there is none, AwayError when nobody answers."""
        described = self._asked(lambda: self._await(self._describe(name), patience_s), name)[name]
        partitions = sorted(int(part.partition()) for part in described.partitions())
        kinds = self._java.org.apache.kafka.clients.admin.OffsetSpec
        earliest = self._offsets(name, partitions, kinds.earliest(), patience_s)
        latest = self._offsets(name, partitions, kinds.latest(), patience_s)
        return Topic(str(described.topicId()), earliest, latest)

    def now(self, name: str, partitions: list[int], patience_s: int) -> tuple[str, Mapping[int, int]]:
        """A topic's id and the ends of partitions that are known, both asked at once."""
        kind = self._java.org.apache.kafka.clients.admin.OffsetSpec.latest()
        described = self._asked(lambda: self._describe(name), name)
        ends = self._offsets(name, partitions, kind, patience_s)
        told = self._asked(lambda: self._await(described, patience_s), name)[name]
        return str(told.topicId()), ends

    def close(self) -> None:
        """Let go of the connection, whatever it still waits for."""
        self._admin.close(self._java.java.time.Duration.ofSeconds(0))

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _describe(self, name: str) -> Any:
        names = self._java.java.util.ArrayList()
        names.add(name)
        return self._admin.describeTopics(names).allTopicNames()

    def _offsets(self, name: str, partitions: list[int], kind: Any, patience_s: int) -> dict[int, int]:
        place = self._java.org.apache.kafka.common.TopicPartition
        asked = self._java.java.util.HashMap()
        for partition in partitions:
            asked.put(place(name, partition), kind)
        said = self._asked(lambda: self._await(self._admin.listOffsets(asked).all(), patience_s), name)
        return {partition: int(said[place(name, partition)].offset()) for partition in partitions}

    def _await(self, future: Any, patience_s: int) -> Any:
        return future.get(patience_s, self._java.java.util.concurrent.TimeUnit.SECONDS)

    def _asked(self, question: Callable[[], Any], topic: str) -> Any:
        try:
            return question()
        except Py4JJavaError as error:
            raise self._refusal(error.java_exception, topic) from None
        except Py4JError as error:
            raise RunError(f"{self._step}: Kafka's client cannot be used: {error}") from None

    def _refusal(self, error: Any, topic: str) -> RunError:
        while error.getCause() is not None:
            error = error.getCause()
        kind = str(error.getClass().getSimpleName())
        said = self._connection.without_secrets(str(error.getMessage() or kind))
        if kind == "UnknownTopicOrPartitionException":
            return NoTopicError(
                f"{self._step}: there is no topic {topic!r} at {self._connection}. "
                "Create it, or correct the name or the servers."
            )
        if kind == "TimeoutException":
            return AwayError(
                f"{self._step}: no Kafka broker answers at {self._connection} ({said}). "
                "See that it runs and can be reached from here, or correct servers=."
            )
        return RunError(
            f"{self._step}: Kafka at {self._connection} refuses: {said} ({kind}). See to the servers and the options."
        )


class TopicWatch:
    """Asks how far a topic could be read, and whether it is the one that is known; opened by the first question."""

    def __init__(self, opened: Callable[[], Broker], topic: str, known: Mapping[str, Any], step: str) -> None:
        self._opened = opened
        self._topic = topic
        self._known = known
        self._step = step
        self._broker: Broker | None = None

    def ends(self, partitions: Sequence[int]) -> Mapping[int, int]:
        """The ends of partitions; empty when no broker answers within two seconds. A topic made anew is refused."""
        try:
            if self._broker is None:
                self._broker = self._opened()
            topic_id, ends = self._broker.now(self._topic, list(partitions), SOON_S)
        except RunError:
            return {}
        check_topic_is_the_same(self._topic, topic_id, self._known, self._step)
        return ends

    def close(self) -> None:
        """Let go of the client."""
        if self._broker is not None:
            self._broker.close()
            self._broker = None
