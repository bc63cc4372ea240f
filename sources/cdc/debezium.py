"""Debezium's messages: what a row was before and is after, and where in the source's log that stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from penstock.plan.expressions import literal, quoted
from penstock.sources.base import MESSAGE, PLACE, STOP
from penstock.sources.cdc.changelog import ENVELOPE, READ, Changelog, Subject, blank, change, is_null
from penstock.sources.cdc.debezium_values import FIELDS, FIELDS_TYPE, DebeziumValues
from penstock.sources.cdc.values import Values, read, unframed

WHOLE = "__ps_whole"  # the message: an envelope, or one in its wrapper
PLACES = ("lsn", "scn", "file", "pos", "row", "commit_lsn", "change_lsn", "event_serial_no", "ord")
SOURCE = f"struct<{', '.join(f'`{name}`: string' for name in ('ts_ms', 'db', 'schema', 'table', *PLACES))}>"


@dataclass(frozen=True)
class Debezium(Changelog):
    """Envelopes with ``before``, ``after``, ``op`` and ``source``, with or without the schema beside them."""

    name: ClassVar[str] = "debezium"
    values: ClassVar[Values] = DebeziumValues()

    def opened(self, columns: str, two_parts: bool) -> Mapping[str, str]:
        row = f"struct<{columns}>"
        fields = {"op": "string", "before": row, "after": row, "ts_ms": "string", "source": SOURCE}
        envelope = ", ".join(f"`{name}`: {kind}" for name, kind in fields.items())
        whole = f"{envelope}, `payload`: struct<{envelope}>, `schema`: struct<`fields`: {FIELDS_TYPE}>"
        alone = ", ".join(f"'{name}', {WHOLE}.`{name}`" for name in fields)
        return {
            READ: read(MESSAGE, whole),
            WHOLE: unframed(READ),
            ENVELOPE: f"coalesce({WHOLE}.payload, named_struct({alone}))",
            FIELDS: f"get(filter({WHOLE}.schema.fields, f -> f.field IN ('after', 'before')), 0).fields",
        }

    def changes(self, table: Subject) -> str:
        e = ENVELOPE
        upserts = f"{e}.op IN ('c', 'r', 'u') AND {e}.after IS NOT NULL"
        moved = f"{upserts} AND {self._moved(table)}"
        done = (
            f"CASE WHEN {e}.op = 't' THEN cast(raise_error({_truncated(table)}) AS string) "
            f"WHEN {upserts} THEN 'upsert' WHEN {e}.op = 'd' AND {e}.before IS NOT NULL THEN 'delete' "
            "ELSE 'malformed' END"
        )
        one = change(done, f"CASE WHEN {e}.op = 'd' THEN {e}.before ELSE {e}.after END")
        both = f"{change(literal('delete'), f'{e}.before')}, {change(literal('upsert'), f'{e}.after')}"
        empty = f"({WHOLE} IS NOT NULL AND {is_null('payload')})"
        nothing = f"{e}.op IS NULL AND ({blank(or_null=True)} OR {empty})"
        return f"CASE WHEN {nothing} THEN array() WHEN {moved} THEN array({both}) ELSE array({one}) END"

    def _moved(self, table: Subject) -> str:
        """True when the row had another key before; where the key before is not known, it has not moved."""
        before, after = (
            [f"cast({ENVELOPE}.{side}.{quoted(k)} AS string)" for k in table.key] for side in ("before", "after")
        )
        there = " AND ".join(f"{b} IS NOT NULL" for b in before)
        same = " AND ".join(f"{b} <=> {a}" for b, a in zip(before, after, strict=True))
        return f"{there} AND NOT ({same})"

    def order(self) -> tuple[str, ...]:
        s = f"{ENVELOPE}.source"
        # SQL Server: a snapshot's row has no change of its own, and stands after those of its commit
        commit = f"concat({s}.commit_lsn, '/', coalesce({s}.change_lsn, {s}.commit_lsn))"
        file = f"coalesce(nullif({s}.file, ''), {commit})"
        position = _number(f"coalesce({s}.lsn, {s}.scn, {s}.pos)")
        return (
            # the names of MySQL's files count up: a longer one is a later one
            f"length({file})",
            file,
            position,
            f"CASE WHEN {file} IS NULL AND {position} IS NULL THEN {MOMENT} END",
            _number(f"coalesce({s}.`row`, {s}.event_serial_no, {s}.ord)"),
        )

    def said(self) -> str:
        return f"try_multiply({MOMENT}, 1000L)"


def _number(text: str) -> str:
    return f"try_cast({text} AS bigint)"


MOMENT = _number(f"coalesce({ENVELOPE}.source.ts_ms, {ENVELOPE}.ts_ms)")


def _truncated(table: Subject) -> str:
    source = f"{ENVELOPE}.source"
    name = f"concat_ws('.', {source}.db, {source}.schema, {source}.`table`)"
    told = (
        f"concat({literal(table.told)}, ': the source table ', {name}, ' was truncated (op t), at ', "
        f"coalesce({PLACE}, 'an unknown place'), {literal(ADVICE)})"
    )
    return f"concat('{STOP}', to_json(struct({told} AS told)))"


ADVICE = (
    ": its messages do not say which rows went. Let the connector take a new snapshot, and start from it with a new "
    "checkpoint and new outputs."
)
