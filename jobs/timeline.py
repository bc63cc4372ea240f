"""The newest posts of the people whom each reader follows.

Posts and follows are tables, and a timeline is their join: a post that is deleted leaves every timeline that has
it, a new follow brings the author's older posts along, and an unfollow takes them away. Nothing here says how to
do that. Each change of one table meets the rows of the other, and what comes out is the timelines' own changes.

`timelines` holds the ten newest posts of each reader: when one leaves, the eleventh moves up. An author's post
costs a row for each follower, so this is a view for people with thousands of followers; what the famous write is
better fetched when it is read. To run it over files of your own,

    POSTS_IN=in/posts FOLLOWS_IN=in/follows TIMELINE_OUT=out penstock run jobs/timeline.py --once

whose lines are

    {"post": "p1", "author": "ann", "text": "first", "at": "2026-03-13T10:00:00Z", "version": 1}
    {"post": "p1", "version": 2, "deleted": true}
    {"reader": "bob", "follows": "ann", "version": 1}
    {"reader": "bob", "follows": "ann", "version": 2, "ended": true}
"""

from __future__ import annotations

import os

from penstock import Job, sinks, sources

POSTS = "post string, author string, text string, at timestamp, version long, deleted boolean"
FOLLOWS = "reader string, follows string, version long, ended boolean"


def timeline(posts_in: str, follows_in: str, out: str) -> Job:
    """The job over the JSON files that appear in two folders; its results are tables of ``out``/results.db."""
    job = Job("timeline")
    database = f"{out}/results.db"
    job.dead_letters(sinks.sqlite(database, "dead_letters"))

    posts = job.table(
        "posts",
        sources.files(posts_in, format="json", schema=POSTS),
        key="post",
        sequence="version",  # an older version never replaces a newer one, in whatever order they come
        delete_when="deleted",
    ).drop("version", "deleted")
    follows = job.table(
        "follows",
        sources.files(follows_in, format="json", schema=FOLLOWS),
        key=("reader", "follows"),
        sequence="version",
        delete_when="ended",
    ).drop("version", "ended")

    # neither side's column is a key: a reader follows several, and an author writes several
    seen = follows.join(posts, on={"follows": "author"}, name="posts_of_followed")
    seen.by("reader").top(10, by="at desc, post").to(sinks.sqlite(database, "timelines"))
    follows.by("follows").agg(followers="count(*)").to(sinks.sqlite(database, "popular"))
    return job


job = timeline(
    os.environ.get("POSTS_IN", "data/posts"),
    os.environ.get("FOLLOWS_IN", "data/follows"),
    os.environ.get("TIMELINE_OUT", ".penstock/timeline"),
)

if __name__ == "__main__":
    job.run()
