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
"""

from __future__ import annotations

import os

from penstock import Job, sinks, sources
from penstock.windows import tumbling

SEARCHES = "session_id string, url string, at timestamp"
CLICKS = "session_id string, click_id string, clicked_at timestamp"


def search_ctr(searches_in: str, clicks_in: str, out: str) -> Job:
    """The job over the JSON files that appear in two folders; its results are tables of ``out``/results.db."""
    job = Job("search_ctr")
    database = f"{out}/results.db"
    job.dead_letters(sinks.sqlite(database, "dead_letters"))

    searches = job.stream(
        "searches",
        sources.files(searches_in, format="json", schema=SEARCHES),
        time="at",
        lateness="10 minutes",
    )
    clicks = job.stream(
        "clicks",
        sources.files(clicks_in, format="json", schema=CLICKS),
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
        .to(sinks.sqlite(database, "ctr"), name="ctr")
    )
    return job


job = search_ctr(
    os.environ.get("SEARCHES_IN", "data/searches"),
    os.environ.get("CLICKS_IN", "data/clicks"),
    os.environ.get("CTR_OUT", ".penstock/search_ctr"),
)

if __name__ == "__main__":
    job.run()
