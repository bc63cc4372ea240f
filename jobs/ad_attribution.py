"""Which click led to which purchase, and which clicks led to none.

A purchase is attributed to the last click of the same user in the seven days before it. Three questions, three
joins: the purchases with their clicks (inner, then the last click of each purchase), the clicks that led to
nothing (anti: they come out when the seven days are over), and the visitors who came back to a campaign within
a day (semi: the clicks joined with themselves). To run it over files of your own,

    CLICKS_IN=in/clicks PURCHASES_IN=in/purchases ADS_OUT=out penstock run jobs/ad_attribution.py --once

whose lines are

    {"click_id": "c1", "user": "ann", "campaign": "spring", "clicked_at": "2026-03-13T10:00:00Z"}
    {"purchase_id": "p1", "user": "ann", "amount": 49.90, "bought_at": "2026-03-15T18:00:00Z"}
"""

from __future__ import annotations

import os

from penstock import Job, sinks, sources
from penstock.windows import tumbling

CLICKS = "click_id string not null, user string, campaign string, clicked_at timestamp"
PURCHASES = "purchase_id string not null, user string, amount decimal(12,2), bought_at timestamp"

SEVEN_DAYS = ("0 seconds", "7 days")


def ad_attribution(clicks_in: str, purchases_in: str, out: str) -> Job:
    """The job over the JSON files that appear in two folders; its results are tables of ``out``/results.db."""
    job = Job("ad_attribution")
    database = f"{out}/results.db"
    job.dead_letters(sinks.sqlite(database, "dead_letters"))

    clicks = job.stream(
        "clicks",
        sources.files(clicks_in, format="json", schema=CLICKS),
        time="clicked_at",
        lateness="1 hour",
        idle_after="6 hours",  # between two campaigns nobody clicks, and people still buy
    )
    purchases = job.stream(
        "purchases",
        sources.files(purchases_in, format="json", schema=PURCHASES),
        time="bought_at",
        lateness="1 hour",
        idle_after="6 hours",
    )

    # all pairs of a purchase have its time, the later of the two: a window of one instant holds them
    last_click = (
        clicks.join(purchases, on="user", within=SEVEN_DAYS, name="clicked_and_bought")
        .by("purchase_id")
        .window(tumbling("1 microsecond"), late="capture")
        .agg(campaign="max_by(campaign, clicked_at)", amount="first(amount)", clicks="count(*)")
        .named("last_click")
    )
    last_click.drop("window_start", "window_end").to(sinks.sqlite(database, "attributed"))
    # a late purchase still meets the clicks that are held; its instant is over, and people want to know of it
    last_click.late.to(sinks.sqlite(database, "bought_too_late"))

    led_to_nothing = clicks.join(purchases, on="user", within=SEVEN_DAYS, how="anti", name="led_to_nothing")
    led_to_nothing.to(sinks.sqlite(database, "unattributed_clicks"))

    # from a microsecond on: a click does not come back to itself
    (
        clicks.join(clicks, on=("user", "campaign"), within=("1 microsecond", "1 day"), how="semi", name="came_back")
        .by("campaign")
        .window(tumbling("1 day"))
        .agg(visitors="count(distinct user)")
        .named("visitors_of_a_day")
        .to(sinks.sqlite(database, "repeat_visitors"))
    )
    return job


job = ad_attribution(
    os.environ.get("CLICKS_IN", "data/ad_clicks"),
    os.environ.get("PURCHASES_IN", "data/purchases"),
    os.environ.get("ADS_OUT", ".penstock/ad_attribution"),
)

if __name__ == "__main__":
    job.run()
