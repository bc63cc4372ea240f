"""A real broker for all tests of a worker, topics of their own for each test, and runs that end."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.job import Job
from penstock.run.query import Run, start
from penstock.testing.servers.kafka import Kafka

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def broker() -> Iterator[Kafka]:
    """One broker on loopback; where none can be had the tests fail."""
    with Kafka() as running:
        yield running


@pytest.fixture
def topic(broker: Kafka) -> Callable[..., str]:
    """Make a topic that no other test has."""

    def make(name: str = "topic", partitions: int = 1) -> str:
        called = f"{name}-{next(NUMBERS)}"
        broker.create_topic(called, partitions)
        return called

    return make


@pytest.fixture
def once(spark: SparkSession, tmp_path: Path) -> Callable[..., Run]:
    """Run a job over all that is there now."""

    def run(job: Job, **options: Any) -> Run:
        running = start(job, spark, checkpoint=str(tmp_path / f"checkpoint-{job.name}"), once=True, **options)
        running.wait()
        return running

    return run


@pytest.fixture
def table() -> Callable[[Path, str], list[tuple[Any, ...]]]:
    """The rows of a table in SQLite, in an order of their own."""

    def rows(path: Path, name: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(path) as database:
            return sorted(database.execute(f'select * from "{name}"').fetchall(), key=repr)

    return rows
