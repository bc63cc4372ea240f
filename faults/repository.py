"""The jobs of this repository and rows for them: slices of input that no cut into batches makes late."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from random import Random
from typing import Any

BEGIN = datetime(2026, 3, 13, 10, tzinfo=timezone.utc)
END = "~end"  # who closes the windows; what is of it depends on the wall clock, and is not compared
Rows = Mapping[str, list[dict[str, Any]]]
Make = Callable[[Random, int, Callable[[], str]], Rows]


@dataclass(frozen=True)
class RepositoryJob:
    """A job, the variables that say where it reads and writes, and how a slice of its input is made.

    A slice covers ``span`` of event time, a third of the lateness or less: whatever falls idle or is cut elsewhere,
    no row is late. ``close`` is how long after the last slice everything is over; None where there is no time.
    """

    name: str
    inputs: Mapping[str, str]
    out: str
    make: Make
    span: timedelta = timedelta(minutes=1)
    close: timedelta | None = None

    def slices(self, random: Random, count: int) -> list[dict[str, list[str]]]:
        """The lines of each slice by input; the last slice closes what is open."""
        made = []
        for number in range(count + (self.close is not None)):
            last = number == count
            begin = BEGIN + self.span * number + (self.close or timedelta(0)) * last

            def moment(begin: datetime = begin) -> str:
                return (begin + self.span * random.random()).isoformat(timespec="milliseconds")

            rows = self.make(random, -1 if last else number, moment)
            made.append({name: [json.dumps(row) for row in here] for name, here in rows.items()})
        return made


def views(random: Random, number: int, at: Callable[[], str]) -> Rows:
    """Page views."""
    if number < 0:
        return {"views": [{"visitor": END, "path": END, "load_ms": 1, "at": at()}]}
    rows = [
        {
            "visitor": f"v{random.randrange(40)}",
            "path": f"/{random.randrange(6)}",
            "load_ms": random.randrange(900),
            "at": at(),
        }
        for _ in range(150)
    ]
    return {"views": rows}


def requests(random: Random, number: int, at: Callable[[], str]) -> Rows:
    """Requests to services."""
    if number < 0:
        return {"requests": [{"service": END, "endpoint": END, "ms": 1.0, "status": 200, "at": at()}]}
    rows = [
        {
            "service": f"s{random.randrange(3)}",
            "endpoint": f"/{random.randrange(3)}",
            "ms": random.randrange(9000) / 8,
            "status": random.choice((200, 200, 200, 500)),
            "at": at(),
        }
        for _ in range(150)
    ]
    return {"requests": rows}


def pages(random: Random, number: int, at: Callable[[], str]) -> Rows:
    """Pages that users see."""
    if number < 0:
        return {"events": [{"user": END, "page": END, "at": at()}]}
    return {
        "events": [
            {"user": f"u{random.randrange(30)}", "page": f"/{random.randrange(9)}", "at": at()} for _ in range(60)
        ]
    }


def phones(random: Random, number: int, at: Callable[[], str]) -> Rows:
    """Events of phones with wrong clocks, some sent twice."""
    rows = []
    for i in range(1 if number < 0 else 60):
        happened, off = datetime.fromisoformat(at()), timedelta(seconds=random.randrange(-(10**6), 10**6))
        times = {"at": happened - off, "sent": happened - off, "received": happened}
        kind = END if number < 0 else f"k{random.randrange(4)}"
        row = {"event_id": f"e{number}-{i}", "kind": kind, **{n: t.isoformat() for n, t in times.items()}}
        rows += [row] * random.choice((1, 1, 2))
    return {"phones": rows}


def searches(random: Random, number: int, at: Callable[[], str]) -> Rows:
    """Searches and the clicks of their sessions."""
    if number < 0:
        return {
            "searches": [{"session_id": END, "url": END, "at": at()}],
            "clicks": [{"session_id": END, "click_id": END, "clicked_at": at()}],
        }
    sessions = [f"s{number}-{i}" for i in range(50)]
    return {
        "searches": [{"session_id": s, "url": f"/{random.randrange(5)}", "at": at()} for s in sessions],
        "clicks": [{"session_id": s, "click_id": f"c{s}", "clicked_at": at()} for s in random.sample(sessions, 20)],
    }


def ads(random: Random, number: int, at: Callable[[], str]) -> Rows:
    """Clicks on campaigns and purchases."""
    if number < 0:
        return {
            "clicks": [{"click_id": END, "user": END, "campaign": END, "clicked_at": at()}],
            "purchases": [{"purchase_id": END, "user": f"{END}too", "amount": 1.5, "bought_at": at()}],
        }
    return {
        "clicks": [
            {
                "click_id": f"c{number}-{i}",
                "user": f"u{random.randrange(40)}",
                "campaign": f"k{random.randrange(3)}",
                "clicked_at": at(),
            }
            for i in range(40)
        ],
        "purchases": [
            {
                "purchase_id": f"p{number}-{i}",
                "user": f"u{random.randrange(40)}",
                "amount": random.randrange(9999) / 100,
                "bought_at": at(),
            }
            for i in range(12)
        ],
    }


def orders(random: Random, number: int, at: Callable[[], str]) -> Rows:
    """Orders and rates of currencies."""
    if number < 0:
        return {
            "orders": [{"order_id": END, "currency": END, "amount": 1.5, "at": at()}],
            "rates": [{"currency": END, "euros": 1.5, "since": at()}],
        }
    return {
        "orders": [
            {
                "order_id": f"o{number}-{i}",
                "currency": f"C{random.randrange(6)}",
                "amount": random.randrange(9999) / 100,
                "at": at(),
            }
            for i in range(60)
        ],
        "rates": [
            {"currency": f"C{random.randrange(5)}", "euros": random.randrange(1, 999) / 100, "since": at()}
            for i in range(8)
        ],
    }


def carts(random: Random, number: int, at: Callable[[], str]) -> Rows:
    """What is done to carts."""
    kinds = ("added", "added", "added", "removed", "checked_out")
    return {
        "events": [
            {
                "event": f"e{number}-{i}",
                "cart": f"c{random.randrange(12)}",
                "kind": random.choice(kinds),
                "item": f"i{random.randrange(5)}",
                "pieces": random.randrange(1, 4),
                "at": at(),
            }
            for i in range(60)
        ]
    }


def posts(random: Random, number: int, at: Callable[[], str]) -> Rows:
    """Posts that are edited and deleted, and who follows whom."""
    return {
        "posts": [
            {
                "post": f"p{random.randrange(60)}",
                "author": f"a{random.randrange(8)}",
                "text": f"t{i}",
                "at": at(),
                "version": 1000 * number + i,
                "deleted": random.random() < 0.15,
            }
            for i in range(50)
        ],
        "follows": [
            {
                "reader": f"r{random.randrange(10)}",
                "follows": f"a{random.randrange(8)}",
                "version": 1000 * number + i,
                "ended": random.random() < 0.2,
            }
            for i in range(25)
        ],
    }


def log(random: Random, number: int, at: Callable[[], str]) -> Rows:
    """Messages of a database's log for three tables."""

    def message(i: int, kind: int, row: dict[str, Any]) -> dict[str, Any]:
        source = {"lsn": 100_000 * kind + 1000 * number + i, "ts_ms": 1_773_396_000_000 + 1000 * number + i}
        if random.random() < 0.15:
            return {"op": "d", "before": row, "source": source}
        return {"op": "u", "after": row, "source": source}

    return {
        "orders": [
            message(
                i,
                1,
                {
                    "id": random.randrange(30),
                    "customer_id": random.randrange(6),
                    "status": random.choice(("open", "cancelled")),
                },
            )
            for i in range(30)
        ],
        "customers": [message(i, 2, {"id": random.randrange(6), "name": f"n{i}", "city": "x"}) for i in range(6)],
        "items": [
            message(
                i,
                3,
                {
                    "id": random.randrange(80),
                    "order_id": random.randrange(30),
                    "product": f"p{random.randrange(9)}",
                    "pieces": random.randrange(1, 5),
                    "price": random.randrange(999) / 100,
                },
            )
            for i in range(60)
        ],
    }


JOBS = (
    RepositoryJob(
        "page_views", {"views": "PAGE_VIEWS_IN"}, "PAGE_VIEWS_OUT", views, timedelta(minutes=4), timedelta(hours=2)
    ),
    RepositoryJob(
        "latency_percentiles",
        {"requests": "LATENCY_IN"},
        "LATENCY_OUT",
        requests,
        timedelta(seconds=5),
        timedelta(minutes=10),
    ),
    RepositoryJob(
        "user_sessions", {"events": "SESSIONS_IN"}, "SESSIONS_OUT", pages, timedelta(minutes=20), timedelta(days=1)
    ),
    RepositoryJob(
        "phone_events", {"phones": "PHONES_IN"}, "PHONES_OUT", phones, timedelta(minutes=3), timedelta(days=1)
    ),
    RepositoryJob(
        "search_ctr",
        {"searches": "SEARCHES_IN", "clicks": "CLICKS_IN"},
        "CTR_OUT",
        searches,
        timedelta(minutes=3),
        timedelta(hours=3),
    ),
    RepositoryJob(
        "ad_attribution",
        {"clicks": "CLICKS_IN", "purchases": "PURCHASES_IN"},
        "ADS_OUT",
        ads,
        timedelta(minutes=15),
        timedelta(days=8),
    ),
    RepositoryJob(
        "currency",
        {"orders": "ORDERS_IN", "rates": "RATES_IN"},
        "CURRENCY_OUT",
        orders,
        timedelta(seconds=90),
        timedelta(hours=2),
    ),
    RepositoryJob("cart", {"events": "CART_EVENTS_IN"}, "CART_OUT", carts),
    RepositoryJob("timeline", {"posts": "POSTS_IN", "follows": "FOLLOWS_IN"}, "TIMELINE_OUT", posts),
    RepositoryJob(
        "orders_view", {"orders": "ORDERS_IN", "customers": "CUSTOMERS_IN", "items": "ITEMS_IN"}, "VIEW_OUT", log
    ),
)
