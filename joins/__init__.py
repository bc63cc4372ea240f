"""Joins of streams and tables in time."""
