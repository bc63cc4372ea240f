"""Print the table of ours against Flink SQL; see ``python -m benchmarks.flink --help`` for a quick run."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.flink.environment import FLINK, install
from benchmarks.flink.inputs import inputs
from benchmarks.flink.measure import FEW, HEADER, measure, sides
from benchmarks.flink.queries import QUERIES
from benchmarks.flink.side import BACKENDS, HEAP, Flink
from benchmarks.machine import described, open_spark
from benchmarks.table import print_table


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flink", description=__doc__)
    names = [query.name for query in QUERIES]
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of a query")
    parser.add_argument("--runs", type=int, default=3, help="whole runs of each side")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="where Flink keeps its state; both")
    parser.add_argument("--no-ours", action="store_true", help="Flink alone")
    asked = parser.parse_args()
    install()
    print(f"{described()}; Flink {FLINK}, heap {HEAP}", flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-flink-") as place:
        folder = Path(place)
        few = inputs(QUERIES[0], folder, FEW)
        began = time.monotonic()
        with Flink(folder) as flink:
            flink.run(QUERIES[0], "heap", few.flink, folder / "cold", None)
            print(f"Flink's first run in a new process, {FEW:,} rows: {time.monotonic() - began:.1f} s", flush=True)
            spark = None if asked.no_ours else open_spark()
            lines = []
            for query in QUERIES:
                if query.name in (asked.only or names):
                    ways = dict(sides(query, flink, asked.backend or list(BACKENDS), spark))
                    lines += measure(query, ways, folder, asked.rows, asked.runs)
            print_table("whole runs", HEADER, lines)


if __name__ == "__main__":
    main()
