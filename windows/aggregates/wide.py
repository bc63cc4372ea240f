"""Exact sums of 64- and 128-bit integers: a carry is never lost, and a sum that is too great is known.

A sum is kept as its low bits and its ``wraps``, how often it went past them: the value is
``low + wraps * 2**bits``. Overflow is then judged once, on the whole sum, and not on the way to it,
where it would depend on the order of the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.windows.aggregates.ordering import narrow
from penstock.windows.aggregates.reduction import Bounds, add_ranges

Words = npt.NDArray[np.int64]

LIMB = 32
LIMB_MASK = np.int64(2**LIMB - 1)


def sum_longs(values: Words, wraps: Words, lo: Bounds, hi: Bounds) -> tuple[Words, Words]:
    """The sums of 64-bit integers over ranges: low bits and wraps.

    >>> low, wraps = sum_longs(np.array([2**62, 2**62]), np.zeros(2, int), np.array([0]), np.array([2]))
    >>> int(low[0]) + int(wraps[0]) * 2**64 == 2**63
    True
    """
    carried = add_ranges(wraps, lo, hi) if wraps.any() else np.zeros(len(lo), np.int64)
    if stays_small(values, lo, hi):
        return add_ranges(values, lo, hi), carried
    limbs, over = sum_limbs(np.ascontiguousarray(values).view(np.uint32).reshape(-1, 2), lo, hi)
    return limbs.view(np.int64)[:, 0], carried + over


def sum_words(values: Words, wraps: Words, lo: Bounds, hi: Bounds) -> tuple[Words, Words]:
    """The sums of 128-bit integers, each two words with the low one first, over ranges."""
    carried = add_ranges(wraps, lo, hi) if wraps.any() else np.zeros(len(lo), np.int64)
    low = np.ascontiguousarray(values[:, 0])
    if narrow(values).all() and stays_small(low, lo, hi):
        sums = add_ranges(low, lo, hi)
        return np.stack((sums, sums >> 63), axis=1), carried
    limbs, over = sum_limbs(np.ascontiguousarray(values).view(np.uint32), lo, hi)
    return limbs.view(np.int64), carried + over


def stays_small(values: Words, lo: Bounds, hi: Bounds) -> bool:
    """True when no range of these values can leave 64 bits, by the greatest value and the longest range."""
    if not len(lo) or not len(values):
        return True
    greatest = max(-int(values.min()), int(values.max()))
    return greatest * int((hi - lo).max()) < 2**63


def sum_limbs(limbs: npt.NDArray[np.uint32], lo: Bounds, hi: Bounds) -> tuple[npt.NDArray[np.uint32], Words]:
    """The sums of numbers in two's complement, given as 32-bit limbs with the lowest first."""
    places = limbs.shape[1]
    sums = np.empty((len(lo), places), np.uint32)
    carry: Any = np.int64(0)
    for place in range(places):
        limb = np.ascontiguousarray(limbs[:, place])
        if place == places - 1:
            limb = limb.view(np.int32)  # the highest limb has the sign
        # sums of 32-bit limbs stay within 64 bits for two thousand million rows
        total = add_ranges(limb.astype(np.int64), lo, hi) + carry
        sums[:, place] = total & LIMB_MASK
        carry = total >> LIMB
    # the top limb now reads as signed: where that makes it negative, one more wrap makes up for it
    return sums, carry + (sums[:, -1] >> (LIMB - 1))
