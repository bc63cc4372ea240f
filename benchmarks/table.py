"""Figures as text in columns."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The median, and the least and the greatest in brackets.

    >>> spread([2.0, 1.0, 4.0])
    '2.00 (1.00 to 4.00)'
    """
    return f"{median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A title, then the columns, each as wide as it must be."""
    widths = [max(len(line[i]) for line in (header, *rows)) for i in range(len(header))]
    print(f"\n{title}")
    for line in (header, ["-" * w for w in widths], *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print(flush=True)
