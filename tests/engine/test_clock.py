"""Time is data: how the clock moves, without Spark."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from penstock.run.clock import Clock, Rules, StepTime

WALL = 1_000_000
ONE = {"a": Rules(10, None, False)}
STEP = {"s": StepTime(("a",), 0)}


def test_the_watermark_is_the_newest_event_less_the_lateness_and_never_goes_back():
    clock = Clock().moved(ONE, STEP, {"a": {0: 100}}, WALL)
    assert clock.steps == {"s": 90}
    assert clock.moved(ONE, STEP, {"a": {0: 50}}, WALL).steps == {"s": 90}
    assert clock.moved(ONE, STEP, {"a": {0: 101}}, WALL).steps == {"s": 91}


def test_the_slowest_partition_holds_time_so_that_a_backlog_loses_nothing():
    clock = Clock().moved(ONE, STEP, {"a": {0: 1000, 1: 100}}, WALL)
    assert clock.steps == {"s": 90}
    assert clock.moved(ONE, STEP, {"a": {1: 900}}, WALL).steps == {"s": 890}


def test_an_input_that_has_said_nothing_holds_time():
    rules = {"a": Rules(0, None, False), "b": Rules(0, 60, False)}
    steps = {"s": StepTime(("a", "b"), 0), "only_a": StepTime(("a",), 5)}
    clock = Clock().moved(rules, steps, {"a": {0: 100}}, WALL)
    assert clock.steps == {"only_a": 95}  # its inputs alone, less its lag
    idle = clock.moved(rules, steps, {}, WALL + 60)
    assert idle.steps == {"s": 100, "only_a": 95}
    awake = idle.moved(rules, steps, {"b": {0: 3}}, WALL + 61)  # judged as any other: time does not go back
    assert awake.steps == {"s": 100, "only_a": 95}


def test_an_idle_partition_stops_holding_time_and_holds_it_again_when_it_speaks():
    rules = {"a": Rules(0, 60, False)}
    clock = Clock().moved(rules, STEP, {"a": {0: 100, 1: 10}}, WALL)
    later = clock.moved(rules, STEP, {"a": {0: 200}}, WALL + 60)
    assert later.steps == {"s": 200}
    back = later.moved(rules, STEP, {"a": {0: 500, 1: 300}}, WALL + 61)
    assert back.steps == {"s": 300}


def test_when_all_are_idle_time_stands():
    rules = {"a": Rules(0, 60, False)}
    clock = Clock().moved(rules, STEP, {"a": {0: 100}}, WALL)
    assert clock.moved(rules, STEP, {}, WALL + 1000).steps == {"s": 100}


def test_processing_time_is_the_walls():
    rules = {"a": Rules(0, None, True)}
    assert Clock().moved(rules, STEP, {}, WALL).steps == {"s": WALL}


@given(
    st.lists(
        st.dictionaries(st.sampled_from("ab"), st.dictionaries(st.integers(0, 2), st.integers(-50, 50), min_size=1))
    )
)
def test_time_never_goes_back_and_survives_the_manifest(batches):
    rules = {"a": Rules(3, 5, False), "b": Rules(0, None, False)}
    steps = {"s": StepTime(("a", "b"), 2), "t": StepTime(("b",), 0)}
    clock = Clock()
    for wall, newest in enumerate(batches):
        moved = clock.moved(rules, steps, newest, wall)
        assert all(moved.steps[s] >= t for s, t in clock.steps.items())
        assert Clock.from_json(json.loads(json.dumps(moved.to_json()))) == moved
        clock = moved


def test_a_table_that_is_loaded_holds_nobody_back_and_moves_nobody():
    rules = {"s": Rules(0, 60_000_000), "t (loading)": Rules(loads=True)}
    steps = {"w": StepTime(("s", "t (loading)"), 0)}
    clock = Clock().moved(rules, steps, {"s": {0: 100}, "t (loading)": {0: 5}}, 0)
    assert clock.steps == {}  # the table still comes
    clock = clock.moved(rules, steps, {"s": {0: 200}}, 1)
    assert clock.steps == {"w": 200}
    clock = clock.moved(rules, steps, {"t (loading)": {0: 6}}, 120_000_001)  # the stream is idle now
    assert clock.steps == {"w": 200}
    assert clock.moved(rules, steps, {"s": {0: 300}}, 120_000_002).steps == {"w": 300}
