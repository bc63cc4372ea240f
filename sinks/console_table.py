"""Show each batch's results in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.plan.errors import PlanError
from penstock.plan.written import written_at
from penstock.sinks import refusals
from penstock.sinks.base import Changes, Owner, Rows, Sink, Target, Writer

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


def console(rows: int = 20) -> ConsoleTable:
    """Print the first ``rows`` rows of each batch that has any; with a key also what each row does.

    At least once: a batch that is run again after a crash is printed again.

    >>> console().name
    'console'
    """
    if not isinstance(rows, int) or rows < 1:
        raise PlanError(f"sinks.console({rows!r}): rows must be a whole number from 1 up. ({written_at()})")
    return ConsoleTable(rows)


@dataclass(frozen=True)
class ConsoleTable(Sink):
    """The terminal."""

    rows: int = 20

    upserts: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "console"

    @property
    def place(self) -> str:
        return "console"

    def describe(self) -> str:
        return "the console"

    def writer(self, targets: Sequence[Target], owner: Owner) -> ConsoleWriter:
        return ConsoleWriter(targets)


class ConsoleWriter(Writer):
    """Prints; keeps no ledger."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self.targets = targets

    def write(self, batch: int, changes: Mapping[str, Changes]) -> bool:
        # imported late: a job is built and checked without it
        from rich.console import Console

        out = Console()
        for target in self.targets:
            shown = lines_of(target, batch, changes[target.output])
            if shown:
                with refusals.environment([target], "the console", "See where the output of this program goes."):
                    out.print(*shown, sep="\n")
            if target is self.targets[0]:
                self.worst_moment()
        return True


def lines_of(target: Target, batch: int, changes: Changes) -> list[Table | Text]:
    """A batch as what is printed of it; empty when nothing changed."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    assert isinstance(target.sink, ConsoleTable)
    limit = target.sink.rows
    names = changes.rows.schema.names
    lines = [("upsert", row) for row in first(changes.rows, limit + 1)]
    if changes.deletes is not None:
        lines += [("delete", row) for row in first(changes.deletes, limit + 1)]
    if not lines:
        return []
    table = Table(box=box.SIMPLE_HEAD)
    for name in ["op", *names] if target.key else names:
        table.add_column(Text(name), overflow="fold")
    for op, row in lines[:limit]:
        # Text, because rich reads markup in a str
        cells = [Text(shown(row[name])) if name in row else Text() for name in names]
        table.add_row(*([Text(op), *cells] if target.key else cells))
    more = f" (the first {limit} rows)" if len(lines) > limit else ""
    return [Text(f"{target.output}, batch {batch}{more}"), table]


def first(rows: Rows, limit: int) -> list[dict[str, Any]]:
    """The first rows; the rest is not fetched from Spark."""
    if rows.frame is not None:
        return list(rows.frame.limit(limit).toArrow().to_pylist())
    return list(rows.to_arrow().slice(0, limit).to_pylist())


def shown(value: Any) -> str:
    """A value as text; null as SQL writes it.

    >>> shown(None), shown(1.5)
    ('null', '1.5')
    """
    return "null" if value is None else str(value)
