"""Events of phones that are offline for hours, have wrong clocks, and send again what they have sent already.

Hourly counts that are there at once and right in the end: a first value a minute after the first event, one
that is complete but for the stragglers when the hour is ten minutes past, and corrections for two days. The
column `pane` says which of them a reader sees: `early`, `on_time` or `late`. To run it over files of your own:

    PHONES_IN=in PHONES_OUT=out penstock run jobs/phone_events.py --once

A phone says when an event happened (`at`) and when it sent it (`sent`), both by its own clock; the server
writes down when it came (`received`). The clock is off by received - sent, and `correct_clock` adds that to
`at`: a phone whose owner set the wrong year counts in the right hour. The journey through the network counts
as error of the clock, some tenths of a second that differ from one sending to the next. So an event that is
sent twice may have two times, and duplicates are found by `event_id` within an hour of each other.

Deduplicating row by row forgets with the watermark, and refuses what is behind it. Those stragglers are what
the corrections are made of: they go on into the window, which knows the ids that it has counted.
"""

from __future__ import annotations

import os

from penstock import Job, sinks, sources
from penstock.windows import panes, tumbling

SCHEMA = "event_id string not null, kind string, at timestamp, sent timestamp, received timestamp"


def phone_events(inbox: str, out: str) -> Job:
    """The job over the JSON files that appear in ``inbox``; its results are tables of ``out``/results.db."""
    job = Job("phone_events")
    database = f"{out}/results.db"

    # broken lines, and events without one of their three times
    job.dead_letters(sinks.sqlite(database, "dead_letters"))

    phones = job.stream(
        "phones",
        sources.files(inbox, format="json", schema=SCHEMA),
        time="at",
        lateness="10 minutes",  # most phones are online; the others are what panes are for
        max_ahead="1 hour",  # after the correction no event is later than its arrival
    ).correct_clock("sent", "received")

    once = phones.deduplicate("event_id", within="1 hour", late="capture", name="once")

    hourly = (
        once.union(once.late)
        .by("kind")
        .window(
            tumbling("1 hour"),
            emit=panes(early="1 minute", allowed_lateness="2 days"),
            late="capture",
        )
        .agg(events="count(distinct event_id)")
        .named("hourly")
    )
    hourly.to(sinks.sqlite(database, "events_per_hour"))
    # later than two days: kept, for whoever wants to count that hour by hand
    hourly.late.to(sinks.sqlite(database, "late_events"))
    return job


job = phone_events(
    os.environ.get("PHONES_IN", "data/phone_events"),
    os.environ.get("PHONES_OUT", ".penstock/phone_events"),
)

if __name__ == "__main__":
    job.run()
