"""Where results go: one function for each kind of sink, and what a sink is."""

from penstock.sinks.base import Changes, Owner, Rows, Sink, Target, Writer
from penstock.sinks.call_function import call
from penstock.sinks.console_table import console
from penstock.sinks.delta_table import delta
from penstock.sinks.kafka_topic import kafka
from penstock.sinks.memory_rows import memory
from penstock.sinks.parquet_files import parquet
from penstock.sinks.postgres_table import postgres
from penstock.sinks.sqlite_table import sqlite

__all__ = [
    "parquet",
    "sqlite",
    "postgres",
    "delta",
    "kafka",
    "console",
    "memory",
    "call",
    "Sink",
    "Writer",
    "Target",
    "Owner",
    "Changes",
    "Rows",
]
