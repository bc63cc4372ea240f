"""Aggregates over ranges of sorted rows: what each keeps, how it merges, what it gives."""
