"""What is not as it was: two jobs side by side, and for each change what becomes of the state.

One rule for each part of a job. A change after which a number would be wrong, and nobody would see it, needs a
rebuild; what is not known here needs one too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from penstock.run import step_rules
from penstock.run.signature import TICKS

Verdict = Literal["harmless", "carried over", "needs a rebuild"]
Told = tuple[Verdict, str]
Signature = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """One change: whose it is, what was and is, what becomes of the state, and what that means.

    >>> print(Change("input 'views'", "max_ahead was 1 day and is 2 days", "carried over", "from batch 7 on"))
    input 'views': max_ahead was 1 day and is 2 days: carried over, from batch 7 on
    """

    of: str
    said: str
    verdict: Verdict
    means: str = ""

    def __str__(self) -> str:
        return f"{self.of}: {self.said}: {self.verdict}{', ' if self.means else ''}{self.means}"


def differences(before: Signature, now: Signature, batch: int) -> list[Change]:
    """What is not as it was; ``batch`` is the next one, with which the changed job begins."""
    return [
        *_of_the_job(before, now, batch),
        *_of_inputs(before.get("reads", {}), now["reads"], batch),
        *_of_steps(before, now, batch),
        *(_of_outputs(before, now, batch) if "outputs" in before else ()),
    ]


def told(value: Any) -> str:
    """A part of a job in words."""
    if isinstance(value, Mapping):
        return ", ".join(f"{k} = {v}" for k, v in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(told(v) for v in value) or "none"
    return "none" if value is None else str(value)


def was_and_is(part: str, was: Any, now: Any) -> str:
    """A part that changed, in words."""
    return f"{part} was {told(was)} and is {told(now)}"


def _of_the_job(before: Signature, now: Signature, batch: int) -> Iterator[Change]:
    if before["version"] != now["version"]:
        said = was_and_is("the layout of the state", f"version {before['version']}", f"version {now['version']}")
        yield Change("job", said, "needs a rebuild")
    for part, was in before.get("versions", {}).items():
        if was != now["versions"].get(part):
            yield Change("job", was_and_is(part, was, now["versions"].get(part)), "harmless")
    was, is_now = ([name for name in one["inputs"] if name != TICKS] for one in (before, now))
    if was != is_now:
        said = f"the inputs were {told(was)} and are {told(is_now)}"
        yield Change("job", said, "needs a rebuild", "Spark's log has the offsets of each, in their order")
    elif before["inputs"] != now["inputs"]:
        said = "wall time alone makes batches now" if TICKS in now["inputs"] else "wall time alone made batches"
        why = "idle_after, early panes, processing time and after_load ask for it, and it is an input in Spark's log"
        yield Change("job", said, "needs a rebuild", why)
    if before["buckets"] != now["buckets"]:
        means = f"the state of every step is split anew in batch {batch}"
        yield Change("job", was_and_is("buckets", before["buckets"], now["buckets"]), "carried over", means)


def _of_inputs(before: Signature, now: Signature, batch: int) -> Iterator[Change]:
    for name, is_now in now.items():
        was = before.get(name, is_now)
        for part in is_now:
            if was.get(part, is_now[part]) == is_now[part]:
                continue
            if part == "source" and was["place"] != is_now["place"]:
                continue  # the place tells it
            verdict, means = _input_rule(part, batch)
            shown = {"place": "source", "options": "how it is read"}.get(part, part)
            yield Change(f"input {name!r}", was_and_is(shown, was[part], is_now[part]), verdict, means)


def _input_rule(part: str, batch: int) -> tuple[Verdict, str]:
    if part == "place":
        return "needs a rebuild", "what Spark's log has read is of the other"
    if part == "lateness":
        return "carried over", f"rows may be so late from batch {batch} on; time never goes back, what is late stays so"
    if part == "idle_after":
        return "carried over", f"it holds time back for so long from batch {batch} on"
    if part == "max_ahead":
        return "carried over", f"rows further ahead are bad from batch {batch} on"
    if part in ("source", "options"):
        return "carried over", f"it is read so from batch {batch} on"
    if part == "columns":
        means = "a step that keeps a column of another type is refused when the job runs, before it writes"
        return "carried over", f"rows are read so from batch {batch} on; {means}"
    return "needs a rebuild", ""  # another kind, another time


def _of_steps(before: Signature, now: Signature, batch: int) -> Iterator[Change]:
    was, is_now = before["steps"], now["steps"]
    gone, new = (
        {name: parts for name, parts in one.items() if name not in other}
        for one, other in ((was, is_now), (is_now, was))
    )
    renamed = {old: name for old in gone for name in new if step_rules.same_but_for_the_name(gone[old], new[name])}
    for old, name in renamed.items():
        means = f"its state is called {old!r}: write .named({old!r}) and it goes on"
        yield Change(f"step {old!r}", f"it is called {name!r} now", "needs a rebuild", means)
    known = "reads" in before
    for name in gone:
        if name not in renamed:
            let_go = Change(f"step {name!r}", "it is gone", "carried over", "its state is let go")
            yield let_go if known else replace(let_go, verdict="needs a rebuild", means="")
    for name in new:
        if name not in renamed.values():
            verdict, means = step_rules.new(new[name], was, batch) if known else ("needs a rebuild", "")
            yield Change(f"step {name!r}", "it is new", verdict, means)
    for name, parts in is_now.items():
        if name in was:
            yield from _of_step(name, was[name], parts, was, is_now, renamed, batch)


def _of_step(
    name: str,
    was: Signature,
    now: Signature,
    all_were: Signature,
    all_are: Signature,
    renamed: Mapping[str, str],
    batch: int,
) -> Iterator[Change]:
    of = f"step {name!r}"
    for part in {**was, **now} if was["kind"] == now["kind"] else ("kind",):
        if part in step_rules.SINCE_THEN and part not in was:
            continue  # written by a Penstock that did not tell it
        if step_rules.same(part, was.get(part), now.get(part), renamed):
            continue
        verdict, means = step_rules.changed(part, was, now, batch)
        if verdict is not None:
            yield Change(of, _said(part, was.get(part), now.get(part)), verdict, means)
    for source in step_rules.tables_with_other_values(now, all_were, all_are):
        means = "what is taken back from its state would not be what was put there"
        yield Change(of, f"the values of the table of step {source!r} are others", "needs a rebuild", means)


def _said(part: str, was: Any, now: Any) -> str:
    if part == "rows":
        return was_and_is("what leads to it", was, now)
    if part == "columns":
        return was_and_is("the columns that it keeps", was, now)
    if part == "from":
        return was_and_is("what it reads", was, now)
    return was_and_is(part, was, now)


def _of_outputs(before: Signature, now: Signature, batch: int) -> Iterator[Change]:
    was, is_now = before["outputs"], now["outputs"]
    begins = f"it begins with batch {batch}, what came before is not in it"
    for name in was:
        if name not in is_now:
            yield Change(f"output {name!r}", "it is gone", "carried over", f"{was[name]['sink']} stays as it is")
    for name, parts in is_now.items():
        of = f"output {name!r}"
        if name not in was:
            yield Change(of, "it is new", "carried over", begins)
            continue
        # a place that is spelled as it was is meant to be the same, also from another working directory
        moved = was[name]["sink"] != parts["sink"] and was[name].get("place") != parts["place"]
        yield from _of_place(of, was[name]["sink"], parts["sink"], moved, begins)
        yield from _of_output(of, was[name], parts, moved, batch)
    dead = "dead letters"
    moved = before.get(f"{dead}' place") != now[f"{dead}' place"]
    yield from _of_place(dead, before[dead], now[dead], moved, f"they go there from batch {batch} on")


def _of_place(of: str, was: str | None, now: str | None, moved: bool, means: str) -> Iterator[Change]:
    if was != now:
        told: Told = ("carried over", means) if moved else ("harmless", "the same place, otherwise spelled")
        yield Change(of, was_and_is("the place", was, now), *told)


def _of_output(of: str, was: Signature, now: Signature, moved: bool, batch: int) -> Iterator[Change]:
    if was["from"] != now["from"] or was["mode"] != now["mode"]:
        means = "under another name, in a place of its own, it would begin anew"
        yield Change(of, was_and_is("what it is made of", was["from"], now["from"]), "needs a rebuild", means)
        return
    if was["key"] != now["key"] and not moved:
        yield Change(of, was_and_is("the key", was["key"], now["key"]), "needs a rebuild", "its rows go by the other")
    if was["rows"] != now["rows"]:
        verdict, means = step_rules.rows_of_an_output(was, now, moved, batch)
        yield Change(of, was_and_is("what leads to it", was["rows"], now["rows"]), verdict, means)
    fixed: Told = ("needs a rebuild", "or give it another place, and it begins anew there")
    free: Told = ("carried over", f"from batch {batch} on")
    other = fixed if now["transactional"] and not moved else free
    if was["columns"] != now["columns"]:
        reordered = sorted(was["columns"] or ()) == sorted(now["columns"] or ())
        told: Told = ("harmless", "rows are taken by name") if reordered else other
        yield Change(of, was_and_is("the columns", was["columns"], now["columns"]), *told)
    for name, kind in now["types"].items():
        before = was.get("types", {}).get(name)
        if None not in (before, kind) and before != kind:
            yield Change(of, was_and_is(f"the column {name!r}", before, kind), *other)
