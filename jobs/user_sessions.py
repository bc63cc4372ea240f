"""Visits of users: page events with at most half an hour between one and the next are one session.

The same sessions come out twice, because readers want two things. `sessions_live` shows a session while it
grows, a moment after each event: it is a table that changes, rows are replaced, and when an event arrives late
that lies between two sessions, both go and one takes their place. `sessions` has each session once, when no
event can come that changes it, and so it can be plain files that are only ever added to. A live session can
always still change; a final one never does. Waiting is the price: gap and lateness, here an hour and a half.
To run it over files of your own, whose lines are page events such as

    {"user": "ann", "page": "/cart", "at": "2026-03-13T20:00:00Z"}

    SESSIONS_IN=in SESSIONS_OUT=out penstock run jobs/user_sessions.py --once

`max_duration` is not about people. A script that asks for a page every minute never pauses, and without it
its session would never end: it would not come out at all, and its distinct pages would be kept for ever.
"""

from __future__ import annotations

import os

from penstock import Job, sinks, sources
from penstock.windows import session

SCHEMA = "user string not null, page string, at timestamp"

VISIT = session("30 minutes", max_duration="12 hours")

# `window_start` is the first event; `window_end`, half an hour after the last, is when the session is over
MEASURES = {
    "last_at": "max(at)",
    "pages": "count(*)",
    "distinct_pages": "count(distinct page)",
    "first_page": "first(page)",  # by event time, whatever the order of arrival
    "last_page": "last(page)",
    "seconds": "(unix_micros(max(at)) - unix_micros(min(at))) / 1000000",
}


def user_sessions(inbox: str, out: str) -> Job:
    """The job over the JSON files that appear in ``inbox``; its results lie in ``out``."""
    job = Job("user_sessions")
    database = f"{out}/results.db"

    job.dead_letters(sinks.sqlite(database, "dead_letters"))

    events = job.stream(
        "events",
        sources.files(inbox, format="json", schema=SCHEMA),
        time="at",
        lateness="1 hour",  # a phone in a tunnel, a browser that sends its last events when it is opened again
    )

    live = events.by("user").window(VISIT, emit="updates").agg(**MEASURES).named("live")
    live.to(sinks.sqlite(database, "sessions_live"))

    final = events.by("user").window(VISIT, late="capture").agg(**MEASURES).named("final")
    final.to(sinks.parquet(f"{out}/sessions"))
    final.late.to(sinks.sqlite(database, "late_events"))
    return job


job = user_sessions(
    os.environ.get("SESSIONS_IN", "data/page_events"),
    os.environ.get("SESSIONS_OUT", ".penstock/user_sessions"),
)

if __name__ == "__main__":
    job.run()
