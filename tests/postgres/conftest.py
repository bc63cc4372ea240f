"""A real PostgreSQL for the tests of a worker, a database of it for each test."""

from __future__ import annotations

from itertools import count

import psycopg
import pytest

from penstock import sinks
from penstock.sinks import Target
from penstock.testing.servers.postgres import Postgres

NUMBERS = count()


@pytest.fixture(scope="session")
def server():
    """The server; a test that stops it starts one of its own."""
    with Postgres() as one:
        yield one


@pytest.fixture
def url(server):
    """An empty database."""
    name = f"test_{next(NUMBERS)}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"create database {name}")
    return server.url.rpartition("/")[0] + f"/{name}"


@pytest.fixture
def query(url):
    """Ask the database; a connection each time, as a reader has."""

    def run(text, *values):
        with psycopg.connect(url, autocommit=True) as connection:
            cursor = connection.execute(text, values or None)
            return cursor.fetchall() if cursor.description else None

    return run


@pytest.fixture
def open_writer(url, owner):
    """Open a writer of one output; the first run of a job unless told otherwise."""
    opened = []

    def make(output="hits", table="hits", key=(), schema=None, at=None, **who):
        sink = sinks.postgres(table, at or url, schema=schema)
        opened.append(sink.writer([Target(output, sink, key)], owner(**who)))
        return opened[-1]

    yield make
    for writer in opened:
        writer.close()
