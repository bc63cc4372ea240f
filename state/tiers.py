"""Which neighbouring runs to merge, so that their number grows with the logarithm of the rows.

A run's tier is the power of four that its rows reach. Eight runs of a tier become one of a higher tier, so a
row is written again at most once per tier. Only neighbours are merged: their order is their age.
"""

from __future__ import annotations

from collections.abc import Sequence

WIDTH = 8


def tier(rows: int) -> int:
    """The power of four that a number of rows reaches.

    >>> [tier(rows) for rows in (0, 1, 3, 4, 15, 16, 1000)]
    [0, 0, 0, 1, 1, 2, 4]
    """
    return max(rows, 1).bit_length() - 1 >> 1


def choose(rows: Sequence[int]) -> tuple[int, int] | None:
    """The next slice of runs to merge, given the rows of each from the oldest to the newest, or None.

    A slice holds eight runs of its highest tier; smaller ones between them are taken along.

    >>> choose([500, 1, 1, 1, 1, 1, 1, 1])
    >>> choose([500, 1, 1, 1, 1, 1, 1, 1, 1])
    (1, 9)
    """
    if len(rows) < WIDTH:
        return None
    tiers = [tier(count) for count in rows]
    for highest in sorted(set(tiers), reverse=True):
        start = 0
        for stop in [*(i for i, one in enumerate(tiers) if one > highest), len(tiers)]:
            if tiers[start:stop].count(highest) >= WIDTH:
                return start, stop
            start = stop + 1
    if len(rows) > WIDTH * (tier(sum(rows)) + 1):
        # sizes that rise and fall can keep every tier below eight neighbours: merge where it costs least
        start = min(range(len(rows) - WIDTH + 1), key=lambda i: sum(rows[i : i + WIDTH]))
        return start, start + WIDTH
    return None
