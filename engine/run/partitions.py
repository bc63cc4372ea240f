"""Which number to send along so that Spark's hash puts a row into the partition that we want."""

from __future__ import annotations

from functools import cache

_MASK = 0xFFFFFFFF


def _murmur3(value: int, seed: int = 42) -> int:
    """Spark's hash of an int: Murmur3, 32 bits, signed."""

    def rotate(x: int, by: int) -> int:
        return ((x << by) | (x >> (32 - by))) & _MASK

    k = value * 0xCC9E2D51 & _MASK
    k = rotate(k, 15) * 0x1B873593 & _MASK
    h = rotate(seed ^ k, 13) * 5 + 0xE6546B64 & _MASK
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - 2**32 if h >= 2**31 else h


@cache
def landing(partitions: int) -> tuple[int, ...]:
    """For each partition an int that Spark's hash partitioning puts there.

    Hashing the buckets themselves is uneven (8 buckets onto 2 partitions go 6 to 2), and Spark 4.0 has no
    way to name the partition.
    """
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < partitions:
        found.setdefault(_murmur3(candidate) % partitions, candidate)
        candidate += 1
    return tuple(found[p] for p in range(partitions))
