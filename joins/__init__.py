"""Joins of streams and tables in time; the first of them comes with the next version."""
