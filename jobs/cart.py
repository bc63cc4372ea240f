"""What lies in each cart now, from what was done to it: added, removed, checked out.

The events are the truth, and the cart is a view of them: no row is ever overwritten by a "current state" that
somebody computed. Each event is a row of a table by its own id, so one that is delivered twice counts once. A
check-out empties the cart: an event counts when it is later than its cart's newest check-out. That is a join and
a filter, and it does not matter in which order events arrive. When a phone tells an hour later what was added
before the check-out, the cart stays empty.

The events of a cart are kept as long as the job runs. To run it over files of your own,

    CART_EVENTS_IN=in CART_OUT=out penstock run jobs/cart.py --once

whose lines are

    {"event": "e1", "cart": "c7", "kind": "added", "item": "tea", "pieces": 2, "at": "2026-03-13T10:00:00Z"}
    {"event": "e2", "cart": "c7", "kind": "removed", "item": "tea", "pieces": 1, "at": "2026-03-13T10:01:00Z"}
    {"event": "e3", "cart": "c7", "kind": "checked_out", "at": "2026-03-13T10:05:00Z"}
"""

from __future__ import annotations

import os

from penstock import Job, sinks, sources

EVENTS = "event string, cart string not null, kind string not null, item string, pieces long, at timestamp"


def cart(events_in: str, out: str) -> Job:
    """The job over the JSON files that appear in ``events_in``; its results are tables of ``out``/results.db."""
    job = Job("cart")
    database = f"{out}/results.db"
    job.dead_letters(sinks.sqlite(database, "dead_letters"))

    events = job.table("events", sources.files(events_in, format="json", schema=EVENTS), key="event")
    check_outs = events.where("kind = 'checked_out'").by("cart").agg(out_at="max(at)", check_outs="count(*)")
    moves = events.where("kind in ('added', 'removed')")

    (
        moves.join(check_outs, on="cart", how="left", name="since_check_out")
        .where("out_at is null or at > out_at")
        .with_columns(change="case kind when 'added' then pieces else -pieces end")
        .by("cart", "item")
        .agg(pieces="sum(change)", last_change="max(at)")
        .where("pieces > 0")
        .to(sinks.sqlite(database, "carts"))
    )
    check_outs.to(sinks.sqlite(database, "check_outs"))
    return job


job = cart(
    os.environ.get("CART_EVENTS_IN", "data/cart_events"),
    os.environ.get("CART_OUT", ".penstock/cart"),
)

if __name__ == "__main__":
    job.run()
