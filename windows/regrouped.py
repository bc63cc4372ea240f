"""Partial aggregates in another order, or fewer of them: what is kept of a call follows the call and not its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from penstock.state.rewrite import Ready, Rewrite
from penstock.windows.partials import RESULT, STATE

Parts = Sequence[tuple[str, int]]  # each call, and how many columns its state has


class Regrouped(Rewrite):
    """The parts of windows, and the values that readers have been shown, for the calls that there are ``now``."""

    def __init__(self, before: Parts, now: Parts) -> None:
        calls = [call for call, _ in before]
        ends = [sum(count for _, count in before[: i + 1]) for i in range(len(before))]
        chosen = [calls.index(call) for call, _ in now]
        self._columns = {
            STATE: [place for i in chosen for place in range(ends[i] - before[i][1], ends[i])],
            RESULT: chosen,
        }

    def prepare(self, tables: Mapping[str, pa.Table]) -> Mapping[str, Ready]:
        return {name: Ready(self._regrouped(rows)) for name, rows in tables.items()}

    def _regrouped(self, rows: pa.Table) -> pa.Table:
        columns: dict[str, pa.ChunkedArray] = {}
        for name in rows.column_names:
            prefix = next((p for p in self._columns if name.startswith(p)), None)
            if prefix is None:
                columns[name] = rows[name]
            elif name == f"{prefix}0":  # they stand together: all of them where the first one stood
                places = enumerate(self._columns[prefix])
                columns |= {f"{prefix}{i}": rows[f"{prefix}{place}"] for i, place in places}
        return pa.table(columns)
