"""What may pass is tried again with growing pauses, counted, and given up within a minute; no time is spent here."""

from __future__ import annotations

import errno
import sqlite3
import threading
from collections import Counter
from dataclasses import dataclass, field

import pytest

from penstock.plan.errors import FencedError, SinkError, TransientSinkError
from penstock.run.counters import Counters
from penstock.run.outlets import Outlets
from penstock.run.retries import Retries
from penstock.sinks import Changes, Rows, Sink, Target, Writer, refusals


class Pauses(threading.Event):
    """An event that is not waited for: it moves a clock instead, and notes the pauses."""

    def __init__(self, stop_after=None):
        super().__init__()
        self.now = 0.0
        self.pauses = []
        self.stop_after = stop_after

    def wait(self, timeout):
        self.now += timeout
        self.pauses.append(timeout)
        return len(self.pauses) == self.stop_after


def retries(pauses):
    return Retries(pauses, clock=lambda: pauses.now)


def failing(times, error=None, value="done"):
    """A function that fails so often and then gives a value; ``calls`` counts."""

    def attempt():
        attempt.calls += 1
        if attempt.calls <= times:
            raise error or TransientSinkError("output 'hits': away.")
        return value

    attempt.calls = 0
    return attempt


def test_pauses_double_until_it_passes():
    pauses, failed = Pauses(), []
    assert retries(pauses).run(failing(4), lambda: failed.append(1)) == "done"
    assert pauses.pauses == [0.5, 1, 2, 4]
    assert len(failed) == 4


def test_after_forty_seconds_it_is_given_up_with_how_often_and_how_long():
    pauses = Pauses()
    with pytest.raises(SinkError, match=r"away\. It was tried 8 times in 40 seconds\. .* start the job again") as error:
        retries(pauses).run(failing(99), lambda: None)
    assert not isinstance(error.value, TransientSinkError)
    assert sum(pauses.pauses) == 40


def test_tries_that_take_long_count_too_but_not_the_work_before_the_first_failure():
    pauses = Pauses()

    def slow():
        pauses.now += 30  # the first try's 30 seconds are work, the second's are waiting
        raise TransientSinkError("away.")

    with pytest.raises(SinkError, match="tried 3 times in 62 seconds"):
        retries(pauses).run(slow, lambda: None)


def test_a_run_that_is_stopped_does_not_wait_for_the_rest():
    pauses = Pauses(stop_after=2)
    with pytest.raises(TransientSinkError):
        retries(pauses).run(failing(99), lambda: None)
    assert pauses.pauses == [0.5, 1]


@pytest.mark.parametrize("error", [SinkError("no"), FencedError("no"), KeyError("no")], ids=lambda e: type(e).__name__)
def test_what_does_not_pass_is_tried_once(error):
    attempt = failing(1, error)
    with pytest.raises(type(error)):
        retries(Pauses()).run(attempt, lambda: None)
    assert attempt.calls == 1


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ConnectionRefusedError("x"), True),
        (TimeoutError("x"), True),
        (OSError(errno.EBUSY, "x"), True),
        (sqlite3.OperationalError("database is locked"), True),
        (sqlite3.OperationalError("database table is locked: hits"), True),
        (OSError(errno.ENOSPC, "x"), False),
        (PermissionError(errno.EACCES, "x"), False),
        (FileNotFoundError(errno.ENOENT, "x"), False),
        (sqlite3.OperationalError("database or disk is full"), False),
        (sqlite3.OperationalError("attempt to write a readonly database"), False),
        (sqlite3.IntegrityError("constraint failed"), False),
    ],
    ids=str,
)
def test_what_disks_and_sqlite_say_is_told_apart(error, passes):
    with pytest.raises(SinkError) as caught, refusals.environment([], "out", "Look."):
        raise error
    assert isinstance(caught.value, TransientSinkError) is passes


@dataclass(frozen=True)
class Shaky(Sink):
    """A sink whose opening and whose writes fail so often before they succeed; ``there`` are batches it has."""

    label: str
    opens: object = field(default_factory=lambda: failing(0), compare=False)
    writes: object = field(default_factory=lambda: failing(0), compare=False)
    there: tuple[int, ...] = ()
    closed: list = field(default_factory=list, compare=False)

    name = place = property(lambda self: self.label)

    def describe(self):
        return self.label

    def writer(self, targets, owner):
        self.opens()
        return ShakyWriter(self)


class ShakyWriter(Writer):
    def __init__(self, sink):
        self.sink = sink

    def write(self, batch, changes):
        self.sink.writes()
        return batch not in self.sink.there

    def close(self):
        self.sink.closed.append(True)


@pytest.fixture
def opened(owner):
    def make(*shaky, pauses=None):
        return Outlets([Target(sink.label, sink) for sink in shaky], owner(), retries(pauses or Pauses()))

    return make


def batch_of(*names):
    return {name: Changes(Rows(None)) for name in names}


def test_retries_and_batches_that_were_there_are_counted_by_output(opened):
    outlets = opened(Shaky("a", writes=failing(2)), Shaky("b", there=(0,)), Shaky("c", opens=failing(1)))
    assert outlets.write(0, batch_of("a", "b", "c"), lambda: None) == (Counter(a=2, c=1), Counter(b=1))
    assert outlets.write(1, batch_of("a", "b", "c"), lambda: None) == (Counter(), Counter())


def test_a_place_that_does_not_open_closes_the_others(opened):
    first = Shaky("a")
    with pytest.raises(SinkError, match="tried 8 times"):
        opened(first, Shaky("b", opens=failing(99)))
    assert first.closed == [True]


def test_what_was_counted_is_kept_and_an_older_manifest_has_none():
    counters = Counters(retries=Counter(ctr=3), repeated=Counter(ctr=1))
    assert Counters.from_json(counters.to_json()) == counters
    assert Counters.from_json({"rows": {"in": 2}}) == Counters(rows=Counter({"in": 2}))
