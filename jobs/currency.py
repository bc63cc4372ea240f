"""Orders in euros, by the rate that held when each was placed.

Rates are a table with a history: every version says from when on it holds. `asof` gives each order the version
of its own time, and not whichever came last. An order waits until no rate of its time can come any more, so the
result is the same however orders and rates interleave, also when it is computed anew next year. A rate that is
withdrawn leaves a gap, and an order in the gap has no amount rather than a wrong one.

Rates are corrected. A correction within the lateness of the rates takes its place in the history, and the orders
that waited have it. One that comes later changes no order that is out; it is kept in `too_late`, for people to
look at. Waiting is the price: half an hour, and an hour when the rates are silent. To run it over files of your own,

    ORDERS_IN=in/orders RATES_IN=in/rates CURRENCY_OUT=out penstock run jobs/currency.py --once

whose lines are

    {"order_id": "o1", "currency": "USD", "amount": 33.33, "at": "2026-03-13T10:00:00Z"}
    {"currency": "USD", "euros": 0.92, "since": "2026-03-13T09:00:00Z"}
    {"currency": "USD", "withdrawn": true, "since": "2026-03-13T12:00:00Z"}
"""

from __future__ import annotations

import os

from penstock import Job, sinks, sources

ORDERS = "order_id string not null, currency string, amount decimal(12,2), at timestamp"
RATES = "currency string, euros decimal(12,6), withdrawn boolean, since timestamp"


def currency(orders_in: str, rates_in: str, out: str) -> Job:
    """The job over the JSON files that appear in two folders; its results are tables of ``out``/results.db."""
    job = Job("currency")
    database = f"{out}/results.db"
    job.dead_letters(sinks.sqlite(database, "dead_letters"))

    orders = job.stream(
        "orders",
        sources.files(orders_in, format="json", schema=ORDERS),
        time="at",
        lateness="5 minutes",
    )
    rates = job.table(
        "rates",
        sources.files(rates_in, format="json", schema=RATES),
        key="currency",
        time="since",
        lateness="30 minutes",  # how long a correction of a rate may take
        idle_after="1 hour",  # rates do not change at night
        delete_when="withdrawn",
        history="1 day",  # an order that is late by less than that still finds its rate
    ).drop("withdrawn")

    rated = orders.asof(rates, late="capture", name="rate_of_the_time")
    rated.with_columns(total="cast(amount * euros as decimal(14,2))").to(sinks.sqlite(database, "orders_in_euros"))
    # late orders and late rates: a row has the columns of its own side
    rated.late.to(sinks.sqlite(database, "too_late"))

    # the same table as it is now
    rates.to(sinks.sqlite(database, "current_rates"))
    return job


job = currency(
    os.environ.get("ORDERS_IN", "data/orders"),
    os.environ.get("RATES_IN", "data/rates"),
    os.environ.get("CURRENCY_OUT", ".penstock/currency"),
)

if __name__ == "__main__":
    job.run()
