"""A cart is what its events add up to since the last check-out, in whatever order they come."""

from __future__ import annotations

import random

from penstock.jobs.cart import job


def event(name: str, kind: str, minute: int, item: str | None = None, pieces: int | None = None) -> dict[str, object]:
    return {"event": name, "cart": "c1", "kind": kind, "item": item, "pieces": pieces,
            "at": f"2026-03-13T10:{minute:02}:00Z"}  # fmt: skip


EVENTS = [
    event("e1", "added", 1, "tea", 2),
    event("e2", "added", 2, "milk", 1),
    event("e3", "removed", 3, "tea", 1),
    event("e4", "checked_out", 4),
    event("e5", "added", 5, "tea", 3),
    event("e6", "added", 6, "bread", 1),
    event("e7", "removed", 7, "bread", 1),
]


def carts(t) -> dict[str, int]:
    return {row["item"]: row["pieces"] for row in t.read("carts")}


def test_a_cart_follows_its_events(tester):
    t = tester(job)
    t.push("events", EVENTS[:3])
    assert carts(t) == {"tea": 1, "milk": 1}
    t.push("events", EVENTS[3])
    assert carts(t) == {}
    t.push("events", EVENTS[4:6])
    assert carts(t) == {"tea": 3, "bread": 1}
    t.push("events", EVENTS[6], EVENTS[4])  # one of them again
    assert carts(t) == {"tea": 3}
    t.push("events", event("late", "added", 3, "butter", 1))  # before the check-out
    assert carts(t) == {"tea": 3}
    assert [(r["cart"], r["check_outs"]) for r in t.read("check_outs")] == [("c1", 1)]


def test_the_order_of_arrival_does_not_matter(tester):
    for seed in (1, 2):
        mixed = random.Random(seed).sample(EVENTS, len(EVENTS))
        t = tester(job)
        for at in range(0, len(mixed), 2):
            t.push("events", mixed[at : at + 2])
        assert carts(t) == {"tea": 3}
