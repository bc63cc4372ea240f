"""What tests share: one small local Spark, testers on it; and for sinks an owner and rows that need no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

from penstock.job import Job
from penstock.run.session import session
from penstock.sinks import Changes, Owner, Rows
from penstock.sources.kafka_connection import avro_need, is_there, kafka_need
from penstock.testing import JobTester

# a push takes as long as the machine is busy: what is slow is not wrong
settings.register_profile(
    "penstock",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("penstock")


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """One session for all tests: ``local[2]``, UTC, two partitions, no page."""
    # for a Spark that has no connector yet the tests of Kafka are left out, by hand
    needs = (kafka_need(), avro_need()) if is_there() else ()
    return session(cores="2", ui=False, needs=needs)


@pytest.fixture
def tester(spark: SparkSession) -> Iterator[Callable[..., JobTester]]:
    """Make testers on the shared session; they are closed with the test."""
    made: list[JobTester] = []

    def make(job: Job, **options: object) -> JobTester:
        made.append(JobTester(job, spark=spark, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def owner():
    """Make an owner: the first run of a job, unless told otherwise; the batch after the newest was begun."""

    def make(job="shop", checkpoint="c1", epoch=1, committed=-1, begun=None, new=(), take_over=()):
        begun = committed + 1 if begun is None else begun
        return Owner(job, checkpoint, epoch, committed, begun, frozenset(new), frozenset(take_over))

    return make


@pytest.fixture
def changes():
    """Make the changes of a batch from lists of dicts."""

    def rows(listed, schema):
        return Rows(spark=None, table=pa.Table.from_pylist(listed, pa.schema(schema)))

    def make(listed, schema, deletes=None, delete_schema=None):
        removed = None if deletes is None else rows(deletes, delete_schema or schema)
        return Changes(rows(listed, schema), removed)

    return make


class Killed(Exception):
    """The crash that a test asked for."""


@pytest.fixture
def kill():
    """A crash to set as a writer's ``during``; ``kill.error`` is what it raises."""

    def crash():
        raise Killed

    crash.error = Killed
    return crash
