"""The names that a step's rows have, and the refusal of names that they have not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.plan.errors import PlanError, UnknownColumnError
from penstock.plan.written import written_at

RESERVED = "__ps_"

#: The columns of a window, which its rows begin with.
WINDOW_COLUMNS = ("window_start", "window_end")


@dataclass(frozen=True)
class Columns:
    """Column names in order; ``open`` when only the running job can know what others there are.

    >>> Columns(("url", "user")).require("usr", "by('usr')")
    Traceback (most recent call last):
    penstock.plan.errors.UnknownColumnError: by('usr'): no such column; there is url, user. Did you mean 'user'? ...
    """

    names: tuple[str, ...]
    open: bool = False
    owner: str = "there is"

    def __contains__(self, name: str) -> bool:
        return self.open or name in self.names

    def require(self, name: str, step: str, *, any_case: bool = False) -> None:
        """Refuse ``name`` when the rows do not have it; in SQL text case does not matter, as in Spark."""
        if self.open or name in self.names:
            return
        if any_case and name.casefold() in {n.casefold() for n in self.names}:
            return
        near = difflib.get_close_matches(name, self.names, 1, 0.6)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UnknownColumnError(
            f"{step}: no such column{'' if repr(name) in step else f' {name!r}'}; "
            f"{self.owner} {', '.join(self.names)}.{hint} ({written_at()})",
            name,
            self.names,
        )

    def refuse(self, name: str, step: str) -> None:
        """Refuse a new column ``name`` that the rows have already, or that is ours."""
        check_name(name, step)
        if name in self.names:
            raise PlanError(f"{step}: there is a column {name!r} already. ({written_at()})")


def check_name(name: str, step: str) -> str:
    """A column name that may be given."""
    if not isinstance(name, str) or not name:
        raise PlanError(f"{step}: a column name is text, not {name!r}. ({written_at()})")
    if name.startswith(RESERVED):
        raise PlanError(f"{step}: names that begin with {RESERVED!r} are Penstock's own. ({written_at()})")
    return name


def check_unique(names: Iterable[str], step: str) -> tuple[str, ...]:
    """The names as a tuple, refused when one stands twice."""
    seen: dict[str, str] = {}
    for name in names:
        if name.casefold() in seen:
            also = "" if seen[name.casefold()] == name else ", to Spark, which does not tell case"
            raise PlanError(f"{step}: the column {name!r} stands twice{also}. ({written_at()})")
        seen[name.casefold()] = name
    return tuple(seen.values())
