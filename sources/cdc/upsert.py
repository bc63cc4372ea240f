"""Keys and values: the value is what holds of the key from now on, and null that nothing does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from penstock.plan.expressions import literal, quoted
from penstock.sources.base import MESSAGE
from penstock.sources.cdc.changelog import ENVELOPE, KEY, READ, Changelog, Subject, blank, change, is_null
from penstock.sources.cdc.values import Values, read, unframed

READ_KEY = "__ps_read_key"  # the message's key in its frame
GONE = "__ps_gone"  # true for a value of null
EMPTY = "__ps_empty"  # true for a line without a message; a value of its own may be empty


@dataclass(frozen=True)
class Upsert(Changelog):
    """A key and a value, in the two parts of a message or as ``{"key": ..., "value": ...}``, in order of arrival."""

    name: ClassVar[str] = "upsert"
    values: ClassVar[Values] = Values()

    def opened(self, columns: str, two_parts: bool) -> Mapping[str, str]:
        if not two_parts:
            # a value that is no object is read as none at all
            line = f"`key`: struct<{columns}>, `value`: struct<{columns}>"
            gone = f"CASE WHEN {ENVELOPE}.value IS NULL THEN {is_null('value')} ELSE false END"
            return {READ: read(MESSAGE, line), ENVELOPE: unframed(READ), GONE: gone, EMPTY: blank(or_null=False)}
        parts = f"struct({unframed(READ_KEY)} AS key, {unframed(READ)} AS value)"
        whole = {READ: read(MESSAGE, columns), READ_KEY: read(KEY, columns), ENVELOPE: parts}
        return {**whole, GONE: blank(or_null=True), EMPTY: "false"}

    def changes(self, table: Subject) -> str:
        e = ENVELOPE
        done = (
            f"CASE WHEN {e}.key IS NULL THEN 'malformed' WHEN {GONE} THEN 'delete' "
            f"WHEN {e}.value IS NOT NULL THEN 'upsert' ELSE 'malformed' END"
        )
        names = table.schema.names
        texts = (f"{literal(c)}, coalesce({e}.value.{quoted(c)}, {e}.key.{quoted(c)})" for c in names)
        one = change(done, f"named_struct({', '.join(texts)})")
        return f"CASE WHEN {EMPTY} THEN array() ELSE array({one}) END"

    def order(self) -> tuple[str, ...]:
        return ()

    def said(self) -> None:
        return None
