"""Maxwell's messages: a row of MySQL as it is now, and of an update what was changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from penstock.plan.expressions import literal, quoted
from penstock.sources.base import MESSAGE
from penstock.sources.cdc.changelog import ENVELOPE, READ, Changelog, Subject, blank, change
from penstock.sources.cdc.values import Values, kept_as, read, unframed

LAST = "9223372036854775807L"


@dataclass(frozen=True)
class Maxwell(Changelog):
    """Documents with ``type``, ``data`` and ``old``, in the order of ``ts``, ``xid`` and ``xoffset``."""

    name: ClassVar[str] = "maxwell"
    values: ClassVar[Values] = Values()

    def opened(self, columns: str, two_parts: bool) -> Mapping[str, str]:
        row = f"struct<{columns}>"
        place = "`ts`: bigint, `xid`: bigint, `xoffset`: bigint, `commit`: boolean"
        document = f"`type`: string, {place}, `data`: {row}, `old`: {row}"
        return {READ: read(MESSAGE, document), ENVELOPE: unframed(READ)}

    def changes(self, table: Subject) -> str:
        e = ENVELOPE
        done = (
            f"CASE WHEN {e}.type IN ('insert', 'update', 'bootstrap-insert') AND {e}.data IS NOT NULL THEN 'upsert' "
            f"WHEN {e}.type = 'delete' AND {e}.data IS NOT NULL THEN 'delete' "
            f"WHEN {e}.type IN ('bootstrap-start', 'bootstrap-complete') OR {e}.type RLIKE '^(table|database)-' "
            "THEN 'ignore' ELSE 'malformed' END"
        )
        one = change(done, f"{e}.data")
        both = f"{change(literal('delete'), self._before(table))}, {change(literal('upsert'), f'{e}.data')}"
        # as text: a value of JSON has no order
        changed = " OR ".join(
            f"cast({e}.old.{quoted(k)} AS string) != cast({e}.data.{quoted(k)} AS string)" for k in table.key
        )
        moved = f"{e}.type = 'update' AND ({changed})"
        nothing = f"{e}.type IS NULL AND {blank(or_null=True)}"
        return f"CASE WHEN {nothing} THEN array() WHEN {moved} THEN array({both}) ELSE array({one}) END"

    def _before(self, table: Subject) -> str:
        """The key that the row had: ``old`` has only what was changed of it."""
        told = (
            f"coalesce({ENVELOPE}.old.{quoted(f.name)}, {ENVELOPE}.data.{quoted(f.name)})"
            if f.name in table.key
            else f"cast(null AS {kept_as(f)})"
            for f in table.schema
        )
        columns = (f"{literal(c)}, {text}" for c, text in zip(table.schema.names, told, strict=True))
        return f"named_struct({', '.join(columns)})"

    def order(self) -> tuple[str, ...]:
        last = f"CASE WHEN {ENVELOPE}.commit THEN {LAST} END"
        return f"{ENVELOPE}.ts", f"{ENVELOPE}.xid", f"coalesce({ENVELOPE}.xoffset, {last})"

    def said(self) -> str:
        return f"try_multiply({ENVELOPE}.ts, 1000000L)"
