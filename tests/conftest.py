"""What tests share: one small local Spark, and testers on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

from penstock.job import Job
from penstock.run.session import session
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
    return session(cores="2", ui=False)


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
