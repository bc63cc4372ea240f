"""How fast and how sound each service has been over the last five minutes, said anew every ten seconds.

Averages hide the slow requests, so the job gives the median and the 99th percentile, both exact, with the
requests per second, the share of errors, and the three slowest endpoints of each service. To run it over
files of your own, whose lines are requests such as

    {"service": "cart", "endpoint": "/add", "ms": 12.5, "status": 200, "at": "2026-03-13T20:00:00Z"}

    LATENCY_IN=in LATENCY_OUT=out penstock run jobs/latency_percentiles.py --once

A hop and not a sliding window: a sliding window gives a result for each request, which at a thousand requests
a second is a thousand results that differ by one row. A hop gives one result every ten seconds, at times that
all services share, so that their curves can be laid over each other and their endpoints ranked. Nothing is
kept thirty times for that: rows are combined in slices of ten seconds, and a window is made of thirty of them.

A service without a request in five minutes has no row at all: an alarm on silence looks for the row that is
missing. In the first five minutes of the input the rate is too low, since its windows are not yet full.
"""

from __future__ import annotations

import os

from penstock import Job, sinks, sources
from penstock.windows import hopping, same

SCHEMA = "service string not null, endpoint string, ms double, status int, at timestamp"

LAST_FIVE_MINUTES = hopping("5 minutes", every="10 seconds")
SECONDS = 5 * 60


def latency_percentiles(inbox: str, out: str) -> Job:
    """The job over the JSON files that appear in ``inbox``; its results are tables of ``out``/results.db."""
    job = Job("latency_percentiles")
    database = f"{out}/results.db"

    # broken lines, wrong clocks, and requests that come when all thirty of their windows are final
    job.dead_letters(sinks.sqlite(database, "dead_letters"))

    requests = job.stream(
        "requests",
        sources.files(inbox, format="json", schema=SCHEMA),
        time="at",
        lateness="15 seconds",  # servers write their logs at once: who looks at an outage does not want to wait
    )

    by_service = (
        requests.by("service")
        .window(LAST_FIVE_MINUTES, late="dead_letter")
        .agg(
            p50_ms="percentile(ms, 0.5)",
            p99_ms="percentile(ms, 0.99)",
            per_second=f"count(*) / {SECONDS}",
            error_rate="count(*) filter (where status >= 500) / count(*)",
        )
    )
    by_service.to(sinks.sqlite(database, "latency"))

    # a percentile of few requests is chance: an endpoint is ranked from twenty on
    by_endpoint = (
        requests.by("service", "endpoint")
        .window(LAST_FIVE_MINUTES)
        .agg(requests="count(*)", p99_ms="percentile(ms, 0.99)")
        .where("requests >= 20")
    )
    slowest = by_endpoint.by("service").window(same()).top(3, by="p99_ms desc, endpoint")
    slowest.to(sinks.sqlite(database, "slowest_endpoints"))
    return job


job = latency_percentiles(
    os.environ.get("LATENCY_IN", "data/requests"),
    os.environ.get("LATENCY_OUT", ".penstock/latency_percentiles"),
)

if __name__ == "__main__":
    job.run()
