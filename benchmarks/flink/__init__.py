"""The same queries in Flink SQL, measured beside ours: ``python -m benchmarks.flink`` from the repository's root."""
