"""Print the table of ratios; see ``python -m benchmarks --help`` for a quick run."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks import throughput
from benchmarks.cases import CASES
from benchmarks.machine import described, open_spark
from benchmarks.table import print_table


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [case.name for case in CASES]
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of a query, over five files")
    parser.add_argument("--runs", type=int, default=5, help="whole runs of each side")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=", ".join(names))
    asked = parser.parse_args()
    chosen = asked.only or names
    print(described())
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as place:
        folder = Path(place)
        spark = open_spark()
        lines = []
        for case in CASES:
            if case.name in chosen:
                lines.append(throughput.measure(case, spark, folder, asked.rows, asked.runs))
                print("  ".join(lines[-1]), flush=True)
        print_table("whole runs", throughput.HEADER, lines)


if __name__ == "__main__":
    main()
