"""Histories of a table as its connector may tell them: the messages always add up to the table.

The twin applies the changes one by one. A history is then told in any order that a connector, a restart and
several partitions may bring: shuffled, repeated, with a snapshot in front that overlaps the log.
"""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

SCHEMA, KEY = "id long, part string, v long", ("id", "part")

POSITIONS = {
    "postgres": lambda n: {"lsn": n * 24, "ts_ms": 5},
    # several events of one position, and files whose names grow longer
    "mysql": lambda n: {"file": f"binlog.{999 + n // 4}", "pos": 90 + n // 2 % 2 * 15, "row": n % 2, "ts_ms": 5},
    "oracle": lambda n: {"scn": str(n * 7), "ts_ms": 5},
    "sqlserver": lambda n: {"commit_lsn": f"2a:{n // 3:08x}:0003", "change_lsn": f"2a:{n // 3:08x}:000{n % 3}"},
    "times": lambda n: {"ts_ms": n},
}


def history(chance):
    """Changes one after the other: the row before and after, None where there is none."""
    table, log = {}, []
    for n in range(chance.randint(1, 12)):
        key, other = some_key(chance), some_key(chance)
        before = table.get(key)
        kind = chance.choice(["update", "delete", "move"])
        if before is None:
            log.append((None, (*key, n)))
        elif kind == "delete":
            log.append((before, None))
        elif kind == "move" and other not in table:
            log.append((before, (*other, n)))
        else:
            log.append((before, (*key, n)))
        apply(table, log[-1])
    return log


def some_key(chance):
    return chance.randint(1, 2), chance.choice("ab")


def apply(table, change):
    before, after = change
    if before is not None:
        table.pop(before[:2], None)
    if after is not None:
        table[after[:2]] = after


def table_of(log):
    table = {}
    for change in log:
        apply(table, change)
    return table


def as_row(values):
    return None if values is None else dict(zip(("id", "part", "v"), values, strict=True))


def debezium(log, flavour, since, snapshot_at):
    """The messages from one change on, after a snapshot of the table as it was at another."""
    place = POSITIONS[flavour]
    for values in table_of(log[: snapshot_at + 1]).values():
        yield {"op": "r", "before": None, "after": as_row(values), "source": place(snapshot_at)}
    for n, (before, after) in list(enumerate(log))[since:]:
        op = "c" if before is None else "d" if after is None else "u"
        yield {"op": op, "before": as_row(before), "after": as_row(after), "source": place(n)}


def maxwell(log, flavour, since, snapshot_at):
    """The same as Maxwell tells it: three changes a transaction, the last with the commit."""
    for values in table_of(log[: snapshot_at + 1]).values():
        yield {"type": "bootstrap-insert", "ts": snapshot_at // 3, "data": as_row(values)}
    for n, (before, after) in list(enumerate(log))[since:]:
        told = {"type": "insert" if before is None else "delete" if after is None else "update", "ts": n // 3}
        told |= {"xid": n // 3, "commit": True} if n % 3 == 2 else {"xid": n // 3, "xoffset": n % 3}
        now, was = as_row(after or before), as_row(before)
        if before is not None and after is not None:
            told["old"] = {c: was[c] for c in was if was[c] != now[c]}
        yield told | {"data": now}


def told(tell, seed):
    """A history's table, and its messages as they come."""
    chance = Random(seed)
    log = history(chance)
    flavour = chance.choice(sorted(POSITIONS))
    snapshot_at = chance.randint(-1, len(log) - 1)
    # the log begins at or before the next change that the snapshot does not have
    since = chance.randint(0, snapshot_at + 1)
    if tell is maxwell:
        # a bootstrap has the second and no more: what it overlaps of that second is told in full
        since = min(since, max(snapshot_at, 0) // 3 * 3)
    messages = list(tell(log, flavour, since, snapshot_at))
    messages += chance.choices(messages, k=chance.randint(0, 4)) if messages else []
    chance.shuffle(messages)
    return table_of(log), messages


def latest(rows):
    """The table that rows add up to: of a key the greatest sequence, null first, then what came later."""
    table = {}
    for row in sorted(rows, key=lambda r: r["n"]):
        names = sorted(c for c in row if c.startswith("seq_"))
        order = tuple((row[c] is not None, row[c]) if row[c] is not None else (False, 0) for c in names)
        key = row["id"], row["part"]
        if key not in table or order >= table[key][0]:
            table[key] = order, None if row["deleted"] else (*key, row["v"])
    return {key: values for key, (_, values) in table.items() if values is not None}


def check(parsed, name, tell, seeds):
    """All histories in one reading, each told apart by the numbers of its messages."""
    histories = [told(tell, seed) for seed in seeds]
    messages = [(owner, m) for owner, (_, messages) in enumerate(histories) for m in messages]
    rows = parsed(name, SCHEMA, KEY, [m for _, m in messages])
    assert not [r for r in rows if r["malformed"] is not None]
    of = {owner: [] for owner in range(len(histories))}
    for r in rows:
        of[messages[r["n"]][0]].append(r)
    for owner, (table, mine) in enumerate(histories):
        assert latest(of[owner]) == table, (seeds[owner], mine)


SEEDS = st.lists(st.integers(0, 2**32), min_size=150, max_size=150)


@settings(max_examples=3)
@given(SEEDS)
def test_debezium_messages_add_up_to_the_table_in_any_order_and_however_often(parsed, seeds):
    check(parsed, "debezium", debezium, seeds)


@settings(max_examples=3)
@given(SEEDS)
def test_maxwell_messages_add_up_to_the_table_in_any_order_and_however_often(parsed, seeds):
    check(parsed, "maxwell", maxwell, seeds)
