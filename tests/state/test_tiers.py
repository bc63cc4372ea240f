"""Few runs, however the sizes come."""

from __future__ import annotations

import doctest

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state import document, reader, runs, samekeys, tiers


def history(sizes: list[int]) -> tuple[list[int], int]:
    """The runs after adding runs of these sizes, and how many rows were written in all."""
    held: list[int] = []
    written = 0
    for size in sizes:
        held.append(size)
        written += size
        while chosen := tiers.choose(held):
            start, stop = chosen
            held[start:stop] = [sum(held[start:stop])]
            written += held[start]
    return held, written


@settings(deadline=None)
@given(st.lists(st.sampled_from([1, 2, 5, 30, 400, 10_000, 250_000]), max_size=400))
def test_the_number_of_runs_follows_the_logarithm_of_the_rows(sizes: list[int]) -> None:
    held, _ = history(sizes)
    assert sum(held) == sum(sizes)
    assert len(held) <= tiers.WIDTH * (tiers.tier(sum(sizes)) + 1)


def test_sizes_that_rise_and_fall_like_a_ruler_stay_few() -> None:
    ruler = [4 ** ((i & -i).bit_length() - 1) for i in range(1, 3000)]
    held, _ = history(ruler)
    assert len(held) <= tiers.WIDTH * (tiers.tier(sum(ruler)) + 1)


def test_a_row_is_written_a_few_times_and_not_once_a_batch() -> None:
    _, written = history([10] * 5000)
    assert written < 10 * 5000 * 8


def test_a_big_old_run_is_not_written_again_for_small_new_ones() -> None:
    held, written = history([1_000_000] + [1] * 1000)
    assert held[0] == 1_000_000
    assert written < 1_010_000


def test_the_examples_in_the_docstrings_run() -> None:
    for module in (tiers, document, runs, samekeys, reader):
        result = doctest.testmod(module)
        assert result.attempted
        assert not result.failed
