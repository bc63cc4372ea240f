"""The click-through rate of search results: of the pages that were shown, how many were clicked.

A search meets the clicks of its session in the hour after it. A search that nobody clicked counts too, so it is a
left join: its row comes out without a click once none can come. A pair has the time of its click, a search
without one its own; each is in one window, once. A search that is clicked twice is two pairs: who wants each
search once takes a semi join for the clicked ones and an anti join for the others, and puts them together.

That a search was not clicked is known an hour later. The window after the join waits for it: `explain()` shows
the lag. To run it over files of your own,

    SEARCHES_IN=in/searches CLICKS_IN=in/clicks CTR_OUT=out penstock run jobs/search_ctr.py --once

whose lines are

    {"session_id": "s1", "url": "/shoes", "at": "2026-03-13T10:00:00Z"}
    {"session_id": "s1", "click_id": "c1", "clicked_at": "2026-03-13T10:00:20Z"}

The same lines may be messages of Kafka's topics `searches` and `clicks`, and the results tables of PostgreSQL:

    CTR_KAFKA=localhost:9092 CTR_POSTGRES=env:SHOP_URL penstock run jobs/search_ctr.py
"""

from __future__ import annotations

import os
from collections.abc import Callable

from penstock import Job, sinks, sources
from penstock.sinks import Sink
from penstock.sources import Source
from penstock.windows import tumbling

SEARCHES = "session_id string, url string, at timestamp"
CLICKS = "session_id string, click_id string, clicked_at timestamp"


def search_ctr(read: Callable[[str, str], Source], keep: Callable[[str], Sink]) -> Job:
    """The job over what ``read`` gives by name and schema; ``keep`` says where each table goes."""
    job = Job("search_ctr")
    job.dead_letters(keep("dead_letters"))

    searches = job.stream("searches", read("searches", SEARCHES), time="at", lateness="10 minutes")
    clicks = job.stream(
        "clicks",
        read("clicks", CLICKS),
        time="clicked_at",
        lateness="10 minutes",
        idle_after="1 minute",  # at night nobody clicks, and the searches must come out all the same
    )

    (
        searches.join(clicks, on="session_id", within=("0 seconds", "1 hour"), how="left", name="shown_and_clicked")
        .by("url")
        .window(tumbling("5 minutes"))
        .agg(shown="count(*)", clicked="count(click_id)")
        .with_columns(rate="clicked / shown")
        .to(keep("ctr"), name="ctr")
    )
    return job


def from_outside(name: str, schema: str) -> Source:
    """The topic of that name, or the JSON files that appear in a folder."""
    servers = os.environ.get("CTR_KAFKA")
    if servers is not None:
        return sources.kafka(name, servers, format="json", schema=schema)
    return sources.files(os.environ.get(f"{name.upper()}_IN", f"data/{name}"), format="json", schema=schema)


def to_outside(table: str) -> Sink:
    """A table of PostgreSQL, or of a file of SQLite."""
    url = os.environ.get("CTR_POSTGRES")
    if url is not None:
        return sinks.postgres(table, url=url)
    return sinks.sqlite(f"{os.environ.get('CTR_OUT', '.penstock/search_ctr')}/results.db", table)


job = search_ctr(from_outside, to_outside)

if __name__ == "__main__":
    job.run()
