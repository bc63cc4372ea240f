"""The rule that drops repeats, against all that crashes and zombies can do to a topic."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from penstock.sinks.kafka_repeats import Repeats

PARTITIONS = 3


def message(batch, row):
    said = {"job": "shop", "output": "out", "checkpoint": "c1", "batch": str(batch), "row": str(row)}
    return [(name, text.encode()) for name, text in said.items()]


@st.composite
def topics(draw):
    """A topic as a writer leaves it that crashes, sends again, and whose former selves wake up and go on sending."""
    sizes = draw(st.lists(st.integers(0, 8), min_size=1, max_size=5))
    logs = [[] for _ in range(PARTITIONS)]

    def send(batch, rows):
        for row in rows:
            logs[row % PARTITIONS].append((batch, row))

    for batch, size in enumerate(sizes):
        rows = list(range(size))
        for _ in range(draw(st.integers(0, 2))):
            # a try that fails: any of its rows may be there, in any order
            send(batch, draw(st.lists(st.sampled_from(rows), unique=True)) if rows else [])
        send(batch, draw(st.permutations(rows)))
        zombie = draw(st.integers(0, batch))
        send(zombie, draw(st.lists(st.sampled_from(range(sizes[zombie])), unique=True)) if sizes[zombie] else [])
    return sizes, logs


def read(logs, restart_at):
    """What a reader takes that is itself restarted, going on with what it kept."""
    seen, taken = Repeats(), []
    number = 0
    for partition, log in enumerate(logs):
        for batch, row in log:
            if number == restart_at:
                seen = Repeats.from_json(json.loads(json.dumps(seen.to_json())))
            number += 1
            if seen.is_new(partition, message(batch, row)):
                taken.append((batch, row))
    return taken


@given(topics(), st.integers(0, 40))
def test_each_row_is_taken_once_whatever_was_sent_again(topic, restart_at):
    sizes, logs = topic
    assert sorted(read(logs, restart_at)) == [(batch, row) for batch, size in enumerate(sizes) for row in range(size)]


def test_messages_of_others_and_of_other_checkpoints_are_never_repeats():
    seen = Repeats()
    assert seen.is_new(0, message(3, 1))
    other = [(n, b"c2" if n == "checkpoint" else v) for n, v in message(0, 1)]
    assert seen.is_new(0, other)
    assert seen.is_new(1, message(3, 1))
    assert seen.is_new(0, None)
    assert seen.is_new(0, [("trace", b"x")])
    assert not seen.is_new(0, message(2, 9))
