"""Print the table of ratios; see ``python -m benchmarks --help`` for a quick run."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks import first, growth, held, shapes, throughput
from benchmarks.cases import CASES as WINDOWS
from benchmarks.joins import INTERVALS, LOOKUP
from benchmarks.machine import described, open_spark
from benchmarks.table import print_table

CASES = (*WINDOWS, *INTERVALS, LOOKUP)
PARTS = ("first", "shapes", "rows", "state", "keys", "held")


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [*(case.name for case in CASES), *PARTS]
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of a query, over five files")
    parser.add_argument("--runs", type=int, default=5, help="whole runs of each side, batches of each size")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--state", type=int, help="the most rows of state, twice --rows unless given")
    parser.add_argument("--no-defaults", action="store_true", help="leave out PySpark with its defaults")
    asked = parser.parse_args()
    chosen = asked.only or names
    most = asked.state or 2 * asked.rows
    print(described(), flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as place:
        folder = Path(place)
        if "first" in chosen:  # before there is a Spark of this process, which would share the cores
            print_table("cold start", first.HEADER, first.measure(folder, asked.runs))
        if "shapes" in chosen:
            print_table("an interval join of ours", shapes.HEADER, shapes.measure(folder, asked.runs, asked.rows))
        if not set(chosen) - {"first", "shapes"}:
            return
        spark = open_spark()
        lines = []
        for case in CASES:
            if case.name in chosen:
                lines += throughput.measure(case, spark, folder, asked.rows, asked.runs, not asked.no_defaults)
        if lines:
            print_table("whole runs", throughput.HEADER, lines)
        if "rows" in chosen:
            lines = growth.by_rows(spark, folder, asked.runs, asked.rows)
            print_table("from a file's appearance to its commit", growth.ROWS_HEADER, lines)
        if "state" in chosen:
            lines = growth.by_state(spark, folder, asked.runs, most)
            print_table("a batch of 1,000 rows", growth.STATE_HEADER, lines)
        if "keys" in chosen:
            lines = list(held.by_keys(spark, folder, asked.runs, most))
            print_table("a batch of changes to a table", held.TABLE_HEADER, lines)
        if "held" in chosen:
            lines = list(held.by_join(spark, folder, asked.runs, most))
            print_table("a batch against the rows that a join holds", held.JOIN_HEADER, lines)


if __name__ == "__main__":
    main()
