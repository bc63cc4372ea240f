"""The formats of changes, by name."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.sources.cdc.changelog import Changelog
from penstock.sources.cdc.debezium import Debezium
from penstock.sources.cdc.maxwell import Maxwell
from penstock.sources.cdc.upsert import Upsert

CHANGELOGS: Mapping[str, Changelog] = {c.name: c for c in (Debezium(), Maxwell(), Upsert())}
