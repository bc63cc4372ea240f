"""Speed, as ratios measured side by side in one run: ``python -m benchmarks`` from the repository's root."""
