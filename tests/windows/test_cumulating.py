"""Cumulating windows as people write them."""

from __future__ import annotations

import pickle

import pytest

from penstock.plan.errors import PlanError
from penstock.windows import cumulating


def test_a_cumulating_window_is_a_value():
    shape = cumulating("2 minutes", "10 minutes")
    assert pickle.loads(pickle.dumps(shape)) == shape == cumulating("120 seconds", "600 seconds")
    assert shape.describe() == "cumulating 2 minutes up to 10 minutes"


@pytest.mark.parametrize(("step", "size"), [("3 minutes", "10 minutes"), ("10 minutes", "5 minutes")])
def test_a_size_that_is_no_multiple_of_the_step_is_refused_with_both_and_the_line(step, size):
    says = rf"^cumulating: size='{size}' is no multiple of step='{step}'.*\(.*test_cumulating\.py:\d+\)$"
    with pytest.raises(PlanError, match=says):
        cumulating(step, size)


@pytest.mark.parametrize(
    ("step", "size"), [("0 seconds", "1 minute"), ("1 minute", "0 minutes"), ("1 minute", "1 month")]
)
def test_lengths_that_are_none_are_refused(step, size):
    with pytest.raises(PlanError, match=r"^cumulating: (step|size)="):
        cumulating(step, size)


def test_a_cumulating_bucket_wakes_at_the_next_step_and_keeps_the_slices_of_its_size():
    shape = cumulating("2 microseconds", "10 microseconds")
    assert [shape.wake(-10, t) for t in (-10, -9, -8, -1)] == [-8, -8, -6, 0]
    assert shape.wake(4, -7) == 6
    assert [shape.kept_from(t) for t in (-11, -10, -1, 0, 9)] == [-20, -10, -10, 0, 0]
    assert [shape.closing_before(t) for t in (-3, -2, 5)] == [-4, -2, 4]
