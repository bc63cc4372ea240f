"""A job that makes no sense is refused on the line that wrote it, with what there is and the next move."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from penstock import Job, PenstockError, PlanError, UnknownColumnError, sinks, sources
from penstock.windows import hopping, tumbling

SCHEMA = "url string, user string, price double, tags array<string>, at timestamp"
VIEWS = sources.files(
    "in", format="json", schema="url string, user string, price double, tags array<string>, at timestamp"
)


def views(job=None, **options):
    return (job or Job("shop")).stream("views", VIEWS, **{"time": "at", "lateness": "10 minutes", **options})


CASES = {
    "by": (lambda: views().by("usr"), r"by\('usr'\): no such column; the input 'views' has url, .* mean 'user'\?"),
    "where": (lambda: views().where("prise > 1"), r"where\('prise > 1'\): no such column 'prise'.* mean 'price'"),
    "select": (lambda: views().select("url", "nix"), "no such column"),
    "select without a name": (lambda: views().select("upper(url)"), r"needs a name: 'upper\(url\) as \.\.\.'"),
    "select twice": (lambda: views().select("url", "user as url"), "'url' stands twice"),
    "nothing selected": (lambda: views().select(), "at least one column"),
    "not sql": (lambda: views().where("price >"), "is not Spark SQL"),
    "no text": (lambda: views().where(3), "Spark SQL text, not 3"),
    "two expressions": (lambda: views().where("price > 1; drop table x"), "is not Spark SQL"),
    "a query": (lambda: views().where("price > (select 1)"), "holds a query"),
    "over": (lambda: views().with_columns(n="sum(price) over (partition by url)"), "OVER"),
    "java": (lambda: views().with_columns(n="reflect('java.lang.System', 'exit', 1)"), "refused"),
    "an aggregate in a row step": (lambda: views().where("count(*) > 1"), "is an aggregate"),
    "time computed": (lambda: views().with_columns(at="at + interval 1 day"), "renamed but not computed anew"),
    "time computed by select": (lambda: views().select("current_timestamp() as at"), "renamed but not computed anew"),
    "drop unknown": (lambda: views().drop("nix"), "no such column"),
    "drop all": (lambda: views().drop("url", "user", "price", "tags", "at"), "no column would be left"),
    "rename onto another": (lambda: views().rename(url="user"), "'user' stands twice"),
    "explode onto another": (lambda: views().explode("tags", "url"), "column 'url' already"),
    "union of unequal columns": (lambda: two("url string, at timestamp", "path string, at timestamp"), "path, url"),
    "map_pandas without the time": (lambda: views().map_pandas(lambda f: f, "url string"), "time column 'at'"),
    "no keys": (lambda: views().by(), "at least one column"),
    "a key twice": (lambda: views().by("url", "url"), "'url' stands twice"),
    "no window": (lambda: views().window("5 minutes"), "is no window"),
    "late": (lambda: views().window(tumbling("1 hour"), late="keep"), "'drop', 'capture', 'dead_letter'"),
    "emit": (lambda: views().window(tumbling("1 hour"), emit="sometimes"), "emit='sometimes'"),
    "no aggregates": (lambda: views().window(tumbling("1 hour")).agg(), "at least one aggregate"),
    "no aggregate in it": (lambda: hourly(n="upper('x')"), "no aggregate in"),
    "neither key nor aggregate": (lambda: hourly(n="count(*) + price"), "'price' is neither a key nor inside"),
    "unknown in an aggregate": (lambda: hourly(n="sum(prise)"), "Did you mean 'price'"),
    "unknown in a filter": (lambda: hourly(n="count(*) filter (where prise > 1)"), "Did you mean 'price'"),
    "named like a key": (lambda: hourly(url="count(*)"), "'url' is a key"),
    "named like a window column": (lambda: hourly(window_end="count(*)"), "'window_end' is a window column"),
    "gaps": (lambda: hopping("5 minutes", "10 minutes"), "in no window"),
    "size of nothing": (lambda: tumbling("0 seconds"), "may not be zero"),
    "a month": (lambda: tumbling("1 month"), "no fixed length"),
    "no lateness": (lambda: Job("j").stream("v", VIEWS, time="at"), "lateness='10 minutes'"),
    "negative lateness": (lambda: views(lateness="-1 second"), "may not be negative"),
    "processing time is never late": (lambda: views(time=None), "never late"),
    "unknown time": (lambda: views(time="when"), "no such column; the input 'views'"),
    "a time that is none": (lambda: views(time="url"), "is string, not a timestamp"),
    "a source that is none": (lambda: Job("j").stream("v", "in", time="at", lateness="1 day"), "penstock.sources"),
    "a sink that is none": (lambda: views().to("out"), "one of penstock.sinks"),
    "a job's name": (lambda: Job("My Job"), "lower case"),
    "an input's name": (lambda: Job("j").stream("a b", VIEWS, time="at", lateness="1 day"), "letters, digits"),
    "captured from nothing": (lambda: views().late, "only a step that keeps state"),
    "captured without capture": (lambda: hourly(n="count(*)").late, "late='capture'"),
    "a key of a sink that only appends": (lambda: views().to(sinks.parquet("out"), key="url"), "can only append"),
    "a reserved name": (lambda: views().with_columns(__ps_time="1"), "Penstock's own"),
    "format": (lambda: sources.files("in", format="xml", schema="a int"), "json, csv, parquet"),
    "schema": (lambda: sources.files("in", format="json", schema="a"), "name and a type"),
    "schema with a hole": (lambda: sources.files("in", format="json", schema="a int, a string"), "'a' stands twice"),
    "schema of a strange type": (lambda: sources.files("in", format="json", schema="a geography"), "a"),
}  # fmt: skip


def two(left, right):
    job = Job("two")
    first = job.stream("l", sources.files("l", "json", left), time="at", lateness="1 day")
    return first.union(job.stream("r", sources.files("r", "json", right), time="at", lateness="1 day"))


def hourly(**aggregates):
    return views().by("url").window(tumbling("1 hour")).agg(**aggregates)


@pytest.mark.parametrize("case", CASES)
def test_nonsense_is_refused_where_it_is_written(case):
    build, message = CASES[case]
    with pytest.raises(PlanError, match=message) as caught:
        build()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, PenstockError)


def test_the_message_names_the_users_own_line():
    with pytest.raises(UnknownColumnError) as caught:
        views().by("usr")
    assert re.search(
        r"\((tests/plan/)?test_refusals\.py:\d+\)", str(caught.value).replace("tests/plan/", "tests/plan/")
    )
    assert caught.value.column == "usr"
    assert "user" in caught.value.columns


def test_two_of_one_name_are_refused():
    job = Job("shop")
    stream = views(job)
    with pytest.raises(PlanError, match="input of that name"):
        views(job)
    stream.to(sinks.memory("out"))
    with pytest.raises(PlanError, match="output of that name"):
        stream.where("price > 1").to(sinks.memory("out"))
    hourly_counts = stream.by("url").window(tumbling("1 hour")).agg(n="count(*)").to(sinks.memory("hourly"))
    daily = stream.by("url").window(tumbling("1 day")).agg(n="count(*)")
    with pytest.raises(PlanError, match=r"two steps are called 'window_by_url'.*named"):
        daily.to(sinks.memory("daily"))
    daily.named("daily").to(sinks.memory("daily"))
    hourly_counts.where("n > 1").to(sinks.memory("many"))  # the same step twice is one step


def test_jobs_compare_by_their_plan_wherever_they_were_written():
    def build(size="1 hour"):
        job = Job("shop")
        views(job).by("url").window(tumbling(size)).agg(n="count(*)").to(sinks.memory("hourly"))
        return job

    assert build() == build("60 minutes")
    assert build() != build("2 hours")
    assert build() != "shop"


def test_every_call_gives_a_new_value_and_leaves_the_old_one_alone():
    stream = views()
    stream.where("price > 1").drop("tags").rename(url="path")
    assert stream.columns == ("url", "user", "price", "tags", "at")
    assert stream.node == views().node


def test_a_row_keeps_its_time_when_the_column_is_dropped_and_follows_a_rename():
    assert views().drop("at").node.time is None
    assert views().drop("at").window(tumbling("1 hour")).agg(n="count(*)").node.timed
    assert views().rename(at="seen").node.time == "seen"
    assert views().select("at as seen", "url").node.time == "seen"
    assert views().select("url").node.time is None


def test_columns_of_a_source_without_schema_are_known_only_when_the_job_runs():
    job = Job("open")
    stream = job.stream("any", sources.spark(lambda spark: None), time="at", lateness="1 day")
    counted = stream.where("whatever > 1").by("key").window(tumbling(timedelta(hours=1))).agg(n="sum(value)")
    assert counted.columns == ("window_start", "window_end", "key", "n")
