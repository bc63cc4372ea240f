"""The fault harness: all cases of the promise, done to real processes, each with its evidence."""

from __future__ import annotations

from importlib import import_module

from faults.case import CASES, Case

MODULES = ("crashes", "soak", "drivers", "surgery", "places", "arrivals", "dirty", "changes")


def every_case() -> dict[int, Case]:
    """All cases by number."""
    for name in MODULES:
        import_module(f"faults.{name}")
    return dict(sorted(CASES.items()))
