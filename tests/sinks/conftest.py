"""What the tests of the sinks share: an owner, and rows that need no Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.sinks import Changes, Owner, Rows


@pytest.fixture
def owner():
    """Make an owner: the first run of a job, unless told otherwise."""

    def make(job="shop", checkpoint="c1", epoch=1, committed=-1):
        return Owner(job, checkpoint, epoch, committed)

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
