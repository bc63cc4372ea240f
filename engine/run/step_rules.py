"""The rules for steps that keep state: what becomes of it when a part of the step is not as it was."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from penstock.plan.columns import Columns
from penstock.plan.durations import duration
from penstock.plan.expressions import names_in, parse
from penstock.windows.calls import Aggregate, Call, read_aggregate

Parts = Mapping[str, Any]
Told = tuple[Literal["harmless", "carried over", "needs a rebuild"], str]
Silent = tuple[None, str]

#: What the first documents did not tell of a step.
SINCE_THEN = frozenset(("late", "mode", "from", "rows", "tables", "columns", "tolerance", "history"))
SINCE_THEN |= {"tombstones are kept", "sequence", "deletes", "how the sequence is made"}
#: What some steps tell of the row steps before them themselves.
TABLE_ROWS = ("table's rows", "left rows", "right rows")
#: Noted of aggregates beside their document, by the run that knew their types: the rows are kept for Spark to finish.
KEEPS_ROWS = "keeps rows"
DROPS_ROWS = ("where ", "explode ", "map_pandas ", "gap ")
EARLY = re.compile(r"each [^,]+ before, ")


def same(part: str, was: Any, now: Any, renamed: Mapping[str, str]) -> bool:
    """True when a part is as it was; the order of aggregates counts, the name of a step that was renamed does not."""
    if part == KEEPS_ROWS:
        return True  # told with the aggregates
    if part == "aggregates" and was is not None and now is not None:
        return bool(list(was.items()) == list(now.items()))
    if part == "from" and was is not None:
        names = {f"step {old!r}": f"step {name!r}" for old, name in renamed.items()}
        names |= {f"late rows of {old!r}": f"late rows of {name!r}" for old, name in renamed.items()}
        return bool([[names.get(b, b) for b in edge] for edge in was] == now)
    if part == "columns" and was is not None:
        return len(was) == len(now) and all(a == b or None in (a, b) for a, b in zip(was, now, strict=True))
    return bool(was == now)


def same_but_for_the_name(was: Parts, now: Parts) -> bool:
    """True for a step under another name: a step that feeds it may have another name too."""
    inputs = [[b for edge in one.get("from", ()) for b in edge if b.startswith("input ")] for one in (was, now)]
    if "from" in was and inputs[0] != inputs[1]:
        return False
    told = was.keys() - {KEEPS_ROWS}
    return told <= now.keys() and all(was[part] == now[part] for part in told if part != "from")


def changed(part: str, was: Parts, now: Parts, batch: int) -> Told | Silent:
    """The rule of a part; what has none of its own needs a rebuild."""
    if part == "late":
        return "harmless", ""
    if part == "aggregates":
        return aggregates(was, now, batch)
    if part == "emit" and EARLY.sub("", str(was[part])) == EARLY.sub("", str(now[part])):
        return "carried over", f"early values come so from batch {batch} on"
    if part == "tolerance":
        return "carried over", f"events are answered so from batch {batch} on"
    if part == "tombstones are kept":
        return "carried over", f"for deletes from batch {batch} on; earlier ones are kept as long as was said then"
    if part == "history":
        if duration(now[part], part) < duration(was[part], part):
            return "carried over", f"older versions are let go from batch {batch} on"
        return "needs a rebuild", "versions that it would need have been let go"
    if part == "rows":
        if was.get("tables") != now.get("tables"):
            return None, ""  # another kind of input: told by what it reads
        return _rows(was, now, batch)
    if part in ("tables", "mode") and part in was:
        return None, ""  # told by emit, or by what it reads
    if part == "how the sequence is made":
        return "needs a rebuild", "rows of the one order would not replace rows of the other"
    if part == "columns":
        return "needs a rebuild", "rows are kept whole; a .select(...) before it gives the columns as they were"
    if part == "from":
        return "needs a rebuild", "its state is of other rows"
    return "needs a rebuild", ""


def _rows(was: Parts, now: Parts, batch: int) -> Told | Silent:
    edges = [edge for edge, (a, b) in enumerate(zip(was["rows"], now["rows"], strict=True)) if a != b]
    if any(now["tables"][edge] for edge in edges):
        if any(part in now for part in TABLE_ROWS):
            return None, ""  # told there
        return "needs a rebuild", "what was added by them must be taken back by them"
    return "carried over", f"rows before batch {batch} came as it was: what is held of them stays, the numbers mix"


def aggregates(was: Parts, now: Parts, batch: int) -> Told:
    """The rule of aggregates: what is kept of a call serves every expression of it, under any name."""
    before, after = _read(was["aggregates"]), _read(now["aggregates"])
    had, asked = _calls(before), _calls(after)
    ours = [all(a.ours for a in side) for side in (before, after)]
    if KEEPS_ROWS in was:
        # of one call at least it was Spark's type that had no kernel, and which one that was nobody noted
        ours = [False, ours[1] and not set(had) <= set(asked)]
    means = f"results from batch {batch} on have them, those before stay as they are"
    if ours == [False, False]:
        if _used(before) == _used(after):
            return "carried over", means
        return "needs a rebuild", "the rows that are kept have other columns"
    if had == asked and ours == [True, True]:
        return "carried over", means
    if "from" not in was:
        return "needs a rebuild", "run the job as it was once with this Penstock: then its state says what it is of"
    if "table's rows" in now:
        return "needs a rebuild", "what is kept of a table's rows is for the aggregates as they were"
    if not ours[0]:
        return "needs a rebuild", "its rows are kept whole, for Spark to finish"
    missing = [call.text for call in asked if call not in had]
    if missing or not ours[1]:
        return "needs a rebuild", f"of {', '.join(missing) or 'the rows'} nothing is kept"
    return "carried over", means


def _read(texts: Mapping[str, str]) -> list[Aggregate]:
    """The aggregates of a document; that they make sense was seen when their job was built."""
    everything = Columns((), open=True)
    return [read_aggregate(name, text, everything, tuple(_names(text)), "agg") for name, text in texts.items()]


def _calls(aggregates: Iterable[Aggregate]) -> list[Call]:
    return list(dict.fromkeys(call for a in aggregates for call in a.calls))


def _used(aggregates: Iterable[Aggregate]) -> set[str]:
    return {name.casefold() for a in aggregates for name in _names(a.text)}


def _names(text: str) -> list[str]:
    return list(names_in(parse(text, "agg")))


def new(parts: Parts, before: Mapping[str, Parts], batch: int) -> Told:
    """What becomes of a step that was not there."""
    if parts["kind"] == "Changes":
        return "carried over", f"it tells what changes from batch {batch} on"
    for begins, is_table in zip(parts["from"], parts["tables"], strict=True):
        read = [name for name in before if is_table and f"step {name!r}" in begins]
        if read:
            return "needs a rebuild", f"the rows that the table of step {read[0]!r} has already would never come to it"
    return "carried over", f"its state begins empty with batch {batch}: {_lacks(parts)}"


def _lacks(parts: Parts) -> str:
    if parts["kind"] == "Deduplicate":
        return "a repeat of a row that came before passes"
    if parts["kind"] == "Latest":
        return "rows that came before are not in the table until they come again"
    if "within" in parts:
        return "rows that came before meet nobody"
    if "on" in parts:
        return "it does not know the table's rows that came before"
    if parts.get("window") == "none":
        return "its values count from there"
    return "windows that are open now hold only what comes from then on"


def tables_with_other_values(now: Parts, all_were: Mapping[str, Parts], all_are: Mapping[str, Parts]) -> list[str]:
    """The steps whose table this step reads, and whose values are made in another way now."""
    begins = {b for begin, is_table in zip(now["from"], now["tables"], strict=True) if is_table for b in begin}
    return [
        name
        for name, parts in all_are.items()
        if f"step {name!r}" in begins and "aggregates" in parts and name in all_were
        if all_were[name].get("aggregates") != parts["aggregates"]
    ]


def rows_of_an_output(was: Parts, now: Parts, moved: bool, batch: int) -> Told:
    """The rule of the row steps before an output."""
    if now["mode"] == "append" or moved:
        return "carried over", f"rows from batch {batch} on come so, those before stay as they are"
    drops = [[step for step in one["rows"] if step.startswith(DROPS_ROWS)] for one in (was, now)]
    if drops[0] != drops[1]:
        return "needs a rebuild", "rows that stand there and no longer belong there would stay"
    return "carried over", f"rows that change from batch {batch} on come so, those that do not stay as they are"
