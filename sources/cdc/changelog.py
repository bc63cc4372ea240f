"""From messages to rows: the frame that every format of changes shares, wherever its messages come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from penstock.plan.expressions import literal, quoted
from penstock.sources.base import ARRIVAL, DELETED, IGNORED, MALFORMED, MESSAGE, PLACE, SAID, SEQUENCE
from penstock.sources.cdc.values import Values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Columns of our own on the way from a message to its rows.
KEY = "__ps_key"  # a message's key, where messages come in two parts
READ = "__ps_read"  # the message in its frame
ENVELOPE = "__ps_envelope"  # what the format keeps around the row, and the rows, as texts
OP = "__ps_op"  # what a change does: upsert, delete, ignore, malformed
ROW = "__ps_row"  # its row, a struct of texts


@dataclass(frozen=True)
class Subject:
    """What a changelog is about: a table's columns, its key, and what errors call it."""

    schema: pa.Schema
    key: tuple[str, ...]
    told: str


@dataclass(frozen=True)
class Changelog(ABC):
    """A format of changes: how a message says what was done to which row, and what comes after what.

    All of it is Spark SQL text over a message: a format names what it needs and one pipeline runs it.
    """

    name: ClassVar[str]
    values: ClassVar[Values]

    @abstractmethod
    def opened(self, columns: str, two_parts: bool) -> Mapping[str, str]:
        """The columns that the others read, ``ENVELOPE`` among them; ``columns`` are the fields of a row of texts."""

    @abstractmethod
    def changes(self, table: Subject) -> str:
        """The changes of a message: an array of structs of what is done, and the row; empty for none."""

    @abstractmethod
    def order(self) -> tuple[str, ...]:
        """What puts messages in order, the most telling first; nothing: the order of arrival."""

    @abstractmethod
    def said(self) -> str | None:
        """When the message was said, in microseconds; None when messages do not tell."""

    def rows(self, messages: DataFrame, table: Subject) -> DataFrame:
        """Messages as rows: the table's columns, and the hidden ones of a changelog.

        ``messages`` has its text in ``value``, may have a ``key``, and keeps the hidden columns that it has. A
        value that is not of its column's type makes the message malformed, and its place names the column.
        """
        kept = [c for c in messages.columns if c.startswith("__ps_") and not c.startswith(ARRIVAL)]
        if PLACE not in kept:
            messages, kept = messages.selectExpr("*", f"cast(null AS string) AS {PLACE}"), [*kept, PLACE]
        told = self._told(messages)
        changes = self._changes(messages, table, kept, told)
        return self._judged(self._read(changes, table, [*kept, MESSAGE, *told]), table)

    def _told(self, messages: DataFrame) -> dict[str, str]:
        """What a message says besides its rows: its place in the order, and its time."""
        order = self.order() or [c for c in messages.columns if c.startswith(ARRIVAL)]
        told = {f"{SEQUENCE}{i}": text for i, text in enumerate(order)}
        said = self.said()
        return told if said is None else {**told, SAID: said}

    def _changes(self, messages: DataFrame, table: Subject, kept: list[str], told: Mapping[str, str]) -> DataFrame:
        """A row for each change, what it does in ``OP`` and its texts in ``ROW``."""
        arrival = [c for c in messages.columns if c.startswith(ARRIVAL)]
        parts = [f"`key` AS {KEY}"] if "key" in messages.columns else []
        frame = messages.selectExpr(*kept, *arrival, f"`value` AS {MESSAGE}", *parts)
        for name, text in self.opened(self.values.texts(table.schema), bool(parts)).items():
            frame = frame.selectExpr("*", f"{text} AS {name}")
        each = f"inline({self.changes(table)}) AS ({OP}, {ROW})"
        return frame.selectExpr(*kept, MESSAGE, *_as(told), *_as(self.values.named(table.schema)), each)

    def _read(self, changes: DataFrame, table: Subject, hidden: list[str]) -> DataFrame:
        """The table's columns, from their texts."""
        for staged in self.values.staged(table.schema, ROW):
            changes = changes.selectExpr("*", *_as(staged))
        columns = [self.values.read(i, field, ROW).alias(field.name) for i, field in enumerate(table.schema)]
        return changes.select(*hidden, OP, ROW, *columns)

    def _judged(self, rows: DataFrame, table: Subject) -> DataFrame:
        """The rows, those that cannot be used with the message and the column."""
        wrong = "__ps_wrong"
        column = f"concat(coalesce(concat({PLACE}, ', '), ''), 'column ', {wrong})"
        made = {c: quoted(c) for c in rows.columns if c not in (OP, ROW)} | {
            PLACE: f"CASE WHEN {wrong} IS NULL THEN {PLACE} ELSE {column} END",
            MALFORMED: f"CASE WHEN {OP} = 'malformed' OR {wrong} IS NOT NULL THEN coalesce({MESSAGE}, 'null') END",
            DELETED: f"{OP} = 'delete'",
            IGNORED: f"{OP} = 'ignore'",
        }
        return rows.selectExpr("*", f"CASE {' '.join(self._wrong(table))} END AS {wrong}").selectExpr(*_as(made))

    def _wrong(self, table: Subject) -> list[str]:
        """The first column whose value is not of its type, or is missing; of a delete the key is all that counts."""
        found = []
        for field in table.schema:
            value = quoted(field.name)
            missing = "" if field.nullable else f"{value} IS NULL OR "
            unread = f"{value} IS NULL AND {self.values.text(field, ROW)} IS NOT NULL"
            done = "('upsert', 'delete')" if field.name in table.key else "('upsert')"
            found.append(f"WHEN {OP} IN {done} AND ({missing}{unread}) THEN {literal(field.name)}")
        return found


def change(done: str, row: str) -> str:
    """One change of a message, as Spark SQL."""
    return f"struct({done} AS op, {row} AS row)"


def blank(or_null: bool) -> str:
    """True for a message of no more than white space, or none at all; or a JSON null."""
    nothing = literal(r"^\s*(null)?\s*$" if or_null else r"^\s*$")
    return f"({MESSAGE} IS NULL OR {MESSAGE} RLIKE {nothing})"


def is_null(name: str) -> str:
    """True when a field of the message is there, and null: reading it as a struct does not tell."""
    return f"is_variant_null(try_variant_get(try_parse_json({MESSAGE}), '$.{name}'))"


def _as(columns: Mapping[str, str]) -> list[str]:
    return [f"{text} AS {quoted(name)}" for name, text in columns.items()]
