"""Page views of a web shop, counted by the time at which they happened, not the time at which they arrived.

Phones lose the network and deliver later, so rows come out of order and some come very late. The job says how
long it waits (``lateness``); what comes later still is kept in a table of its own and is not lost in silence.
`penstock demo` plays an hour through it. To run it over files of your own:

    PAGE_VIEWS_IN=in PAGE_VIEWS_OUT=out penstock run jobs/page_views.py
"""

from __future__ import annotations

import os

from penstock import Job, sinks, sources
from penstock.windows import tumbling

# `at` is the device's clock, `received` the server's
SCHEMA = "visitor string, device string, path string, load_ms int, at timestamp, received timestamp"


def page_views(inbox: str, out: str) -> Job:
    """The job over the JSON files that appear in ``inbox``; its results are tables of ``out``/results.db."""
    job = Job("page_views")
    # all outputs in one database change in one transaction: its tables always agree
    database = f"{out}/results.db"

    # a line that is no JSON, and a view from a clock more than a day ahead
    job.dead_letters(sinks.sqlite(database, "dead_letters"))

    views = job.stream(
        "views",
        sources.files(inbox, format="json", schema=SCHEMA),
        time="at",
        lateness="12 minutes",  # a network may be down for ten
        max_ahead="1 day",
    )

    by_path = (
        views.by("path")
        .window(tumbling("5 minutes"), late="capture")
        .agg(
            views="count(*)",
            visitors="count(distinct visitor)",
            p95_load_ms="percentile(load_ms, 0.95)",
        )
    )
    by_path.to(sinks.sqlite(database, "views_by_path"))
    by_path.late.to(sinks.sqlite(database, "late_views"))

    # the same rows once more, for a curve
    by_minute = views.window(tumbling("1 minute")).agg(views="count(*)").named("by_minute")
    by_minute.to(sinks.sqlite(database, "views_by_minute"))
    return job


job = page_views(
    os.environ.get("PAGE_VIEWS_IN", ".penstock/demo/in"),
    os.environ.get("PAGE_VIEWS_OUT", ".penstock/page_views"),
)

if __name__ == "__main__":
    job.run()
