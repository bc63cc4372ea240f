"""Print the table of ratios; see ``python -m benchmarks --help`` for a quick run."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks import first, growth, throughput
from benchmarks.cases import CASES
from benchmarks.machine import described, open_spark
from benchmarks.table import print_table

PARTS = ("first", "rows", "state")


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [*(case.name for case in CASES), *PARTS]
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of a query, over five files")
    parser.add_argument("--runs", type=int, default=5, help="whole runs of each side, batches of each size")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--state", type=int, default=10_000_000, help="the most rows of state")
    parser.add_argument("--no-defaults", action="store_true", help="leave out PySpark with its defaults")
    asked = parser.parse_args()
    chosen = asked.only or names
    print(described(), flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as place:
        folder = Path(place)
        if "first" in chosen:  # before there is a Spark of this process, which would share the cores
            print_table("cold start", first.HEADER, first.measure(folder, asked.runs))
        spark = open_spark()
        lines = []
        for case in CASES:
            if case.name in chosen:
                lines.append(throughput.measure(case, spark, folder, asked.rows, asked.runs, not asked.no_defaults))
                print("  ".join(lines[-1]), flush=True)
        if lines:
            print_table("whole runs", throughput.HEADER, lines)
        if "rows" in chosen:
            lines = growth.by_rows(spark, folder, asked.runs, asked.rows)
            print_table("from a file's appearance to its commit", growth.ROWS_HEADER, lines)
        if "state" in chosen:
            lines = growth.by_state(spark, folder, asked.runs, asked.state)
            print_table("a batch of 1,000 rows", growth.STATE_HEADER, lines)


if __name__ == "__main__":
    main()
