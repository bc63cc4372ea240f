"""Changelogs of other databases: their messages as the rows of a table."""
