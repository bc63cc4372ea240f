"""The one rule above the rest: the result depends on the events, not on how they were cut, ordered, spread or crashed.

The oracle is plain Python over the events; each example is a script of pushes on a real engine and checkpoint.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock import Job, sinks, sources
from penstock.testing import JobCrashed, JobTester
from penstock.windows import calendar, cumulating, hopping, panes, session, sliding, tumbling

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
SCHEMA = "key string, value long, price decimal(10,2), at timestamp"
# a shrinking search would run for minutes here: each example is a Spark job or ten; the printed blob replays one
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
LATENESS = 20  # seconds; events are out of order by less than that
SECOND = timedelta(seconds=1)


def hops(size, every):
    """The windows of a key's rows, by their sorted times: each start, end and the rows in it."""

    def windows(rows):
        for start in range(-size, 61 * 60 + 1, every):
            low, high = START + start * SECOND, START + (start + size) * SECOND
            yield low, high, [r for r in rows if low <= r["at"] < high]

    return windows


def slides(size):
    def windows(rows):
        for end in {r["at"] for r in rows}:
            yield end - size * SECOND, end, [r for r in rows if end - size * SECOND <= r["at"] <= end]

    return windows


def sessions(gap, longest=10**6):
    def windows(rows):
        held = []
        for row in [*rows, None]:
            near = held and row and row["at"] - held[-1]["at"] <= gap * SECOND
            if held and not (near and row["at"] < held[0]["at"] + longest * SECOND):
                cut = held[0]["at"] + longest * SECOND
                yield held[0]["at"], min(held[-1]["at"] + gap * SECOND, cut), held
                held = []
            held = [*held, row]

    return windows


def grows(step, size):
    def windows(rows):
        for start in range(0, 61, size):
            for end in range(start + step, start + size + 1, step):
                low, high = START + start * SECOND, START + end * SECOND
                yield low, high, [r for r in rows if low <= r["at"] < high]

    return windows


SHAPES = {
    "tumbling": (tumbling("10 seconds"), hops(10, 10)),
    "hopping": (hopping("15 seconds", "5 seconds"), hops(15, 5)),
    "sliding": (sliding("7 seconds"), slides(7)),
    "session": (session("4 seconds"), sessions(4)),
    "cut session": (session("4 seconds", max_duration="9 seconds"), sessions(4, 9)),
    "cumulating": (cumulating("5 seconds", "20 seconds"), grows(5, 20)),
    "calendar": (
        calendar("day", "Asia/Tokyo"),
        lambda rows: [(START - 9 * 3600 * SECOND, START + 15 * 3600 * SECOND, rows)],
    ),
}
EMITS = {"final": "final", "updates": "updates", "panes": panes(early="1 second", allowed_lateness="1 minute")}
CASES = [(shape, "final") for shape in SHAPES] + [
    (shape, emit)
    for shape in ("tumbling", "hopping", "sliding", "session", "cut session")
    for emit in ("updates", "panes")
]
AGGREGATES = {
    "n": "count(*)",
    "total": "sum(value)",
    "paid": "sum(price) filter (where value > 0)",
    "mean": "avg(value)",
    "low": "min(key || value)",
    "different": "count(distinct value)",
    "first": "first(value)",
    "last": "last(value)",
    "all": "collect_list(value)",
    "middle": "percentile(value, 0.5)",
    "spread": "max(value) - min(value)",
}


def job_of(shape, aggregates, emit="final"):
    job = Job("invariant")
    events = job.stream("events", sources.files("in", "json", SCHEMA), time="at", lateness=f"{LATENESS} seconds")
    job.dead_letters(sinks.memory("dead"))
    kept = events.where("value is null or value > -4").by("key")
    kept.window(SHAPES[shape][0], emit=EMITS[emit]).agg(**aggregates).to(sinks.memory("out"))
    return job


def event(number, second, key, value):
    price = None if value is None else f"{value}.25"
    return {"key": key, "value": value, "price": price, "at": START + timedelta(seconds=second, microseconds=number)}


EVENTS = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from(["a", "b", "ü", None]), st.none() | st.integers(-5, 5)),
    min_size=1,
    max_size=14,
).map(lambda rows: [event(i, *row) for i, row in enumerate(rows)])


def frozen(rows):
    return Counter(repr(sorted(row.items())) for row in rows)


def run(job, spark, pushes, crashes=(), **options):
    """Push, crash where asked, restart, and close every window at the end."""
    with JobTester(job, spark=spark, **options) as t:
        for number, rows in enumerate(pushes):
            point = dict(crashes).get(number)
            if point is not None:
                t.crash(point)
            try:
                t.push("events", rows)
            except JobCrashed:
                t.restart()
            t.wall("600 milliseconds")
        t.advance("events", START + timedelta(days=1))
        assert t.late("window_by_key") == []
        return t.read("out"), t.dead_letters()


def expected(shape, events):
    """The same question in plain Python."""
    keys = defaultdict(list)
    for row in sorted(events, key=lambda r: r["at"]):
        if row["value"] is None or row["value"] > -4:
            keys[row["key"]].append(row)
    return [
        {"window_start": start, "window_end": end, "key": key, **answers([r["value"] for r in rows])}
        for key, own in keys.items()
        for start, end, rows in SHAPES[shape][1](own)
        if rows
    ]


def answers(values):
    present = [v for v in values if v is not None]
    middle = sorted(present)
    return {
        "n": len(values),
        "total": sum(present) if present else None,
        "mean": sum(present) / len(present) if present else None,
        "different": len(set(present)),
        "first": values[0],
        "last": values[-1],
        "all": present,
        "middle": (middle[(len(middle) - 1) // 2] + middle[len(middle) // 2]) / 2 if middle else None,
        "spread": max(present) - min(present) if present else None,
    }


@settings(max_examples=2, phases=PHASES)
@given(EVENTS, st.data())
@pytest.mark.parametrize(("shape", "emit"), CASES, ids=[f"{shape} {emit}" for shape, emit in CASES])
def test_cut_order_buckets_partitions_and_crashes_change_nothing(spark, shape, emit, events, data):
    job = job_of(shape, AGGREGATES, emit)
    calm, _ = run(job, spark, [events], buckets=1)
    asked = [{k: v for k, v in row.items() if k not in ("paid", "low", "pane")} for row in calm]
    assert frozen(asked) == frozen(expected(shape, events))
    ordered = sorted(events, key=lambda r: r["at"])
    # any order in which nothing comes later than the lateness: sort by a time that is off by less than that
    shift = data.draw(st.lists(st.integers(0, LATENESS - 1), min_size=len(events), max_size=len(events)))
    mixed = [e for _, _, e in sorted(
        (e["at"] + timedelta(seconds=s), i, e) for i, (e, s) in enumerate(zip(ordered, shift, strict=True))
    )]  # fmt: skip
    size = data.draw(st.integers(1, len(mixed)))
    pushes = [mixed[i : i + size] for i in range(0, len(mixed), size)]
    crashes = data.draw(
        st.dictionaries(
            st.integers(0, len(pushes) - 1), st.sampled_from(["before_sink", "during_sink", "after_sink"]), max_size=2
        )
    )
    stormy, _ = run(
        job,
        spark,
        pushes,
        crashes.items(),
        buckets=data.draw(st.integers(1, 7)),
        partitions=data.draw(st.integers(1, 3)),
    )
    assert frozen(stormy) == frozen(calm)


# one of each kernel and way of firing: a case is eight seconds of Spark
SPREAD = [
    ("hopping", "final"),
    ("sliding", "final"),
    ("cut session", "final"),
    ("session", "panes"),
    ("tumbling", "updates"),
]


@settings(max_examples=1, phases=PHASES)
@given(EVENTS)
@pytest.mark.parametrize(("shape", "emit"), SPREAD, ids=[f"{shape} {emit}" for shape, emit in SPREAD])
def test_driver_and_cluster_stages_and_run_batch_give_the_same(spark, shape, emit, events):
    job = job_of(shape, AGGREGATES, emit)
    events = sorted(events, key=lambda e: e["at"])
    half = len(events) // 2
    here, _ = run(job, spark, [events[:half], events[half:]])
    there, _ = run(job, spark, [events[:half], events[half:]], cluster=True, buckets=3)
    assert frozen(there) == frozen(here)
    frame = spark.createDataFrame(
        [(e["key"], e["value"], e["price"], e["at"]) for e in events],
        "key string, value long, price string, at timestamp",
    )
    bounded = job.run_batch({"events": frame}, spark)["out"].toArrow().to_pylist()
    assert frozen({k: utc(v) for k, v in row.items()} for row in bounded) == frozen(here)


def utc(value):
    return value.astimezone(timezone.utc) if isinstance(value, datetime) else value


def test_our_windows_are_those_of_batch_spark_sql(spark):
    """One larger set of events, every aggregate and type, against the same question asked of Spark itself."""
    rows = spark.range(3000).selectExpr(
        "case when id % 11 = 0 then null else concat('k', id % 7) end as key",
        "case when id % 13 = 0 then null else cast(hash(id) % 1000 as long) end as value",
        "cast(hash(id, 1) % 10000 / 100 as decimal(10,2)) as price",
        "timestamp_micros(1767225600000000 + abs(hash(id, 2)) % 600000000) as at",
    )
    texts = {
        "n": "count(*)", "present": "count(value)", "total": "sum(value)", "paid": "sum(price)", "mean": "avg(price)",
        "low": "min(price)", "high": "max(key)", "spread": "stddev(value)", "vary": "variance(value)",
        "all": "bool_and(value > -900)", "any": "bool_or(value > 900)", "different": "count(distinct value, price)",
        "p": "percentile(value, array(0.1, 0.9))", "m": "median(value)", "best": "max_by(price, at)",
        "ratio": "sum(value) filter (where price > 0) / count(*)", "approx": "count_if(value > 0)",
        "longest": "max(length(key)) + 1",
    }  # fmt: skip
    job = Job("oracle")
    events = job.stream("events", sources.files("in", "json", SCHEMA), time="at", lateness="1 minute")
    partial = {name: text for name, text in texts.items() if name != "approx"}
    events.by("key").window(hopping("1 minute", "20 seconds")).agg(**partial).to(sinks.memory("partial"))
    events.by("key").window(hopping("1 minute", "20 seconds")).agg(**texts).named("rows").to(sinks.memory("rows"))
    ours = job.run_batch({"events": rows}, spark)
    rows.createOrReplaceTempView("events_oracle")
    for output, asked in (("partial", partial), ("rows", texts)):
        listed = ", ".join(f"{text} as `{name}`" for name, text in asked.items())
        theirs = spark.sql(
            f"select window.start as window_start, window.end as window_end, key, {listed} "
            "from events_oracle group by key, window(at, '1 minute', '20 seconds')"
        )
        assert ours[output].dtypes == theirs.dtypes
        assert rounded(ours[output]) == rounded(theirs)


def rounded(frame):
    def value(v):
        return round(v, 6) if isinstance(v, float) else [round(x, 6) for x in v] if isinstance(v, list) else v

    return Counter(repr([value(v) for v in row]) for row in frame.collect())


def test_every_row_is_counted_once(spark):
    """input = emitted + late + pending + dead letters, to the row."""
    job = Job("ledger")
    events = job.stream("events", sources.files("in", "json", SCHEMA), time="at", lateness="5 seconds")
    job.dead_letters(sinks.memory("dead"))
    events.by("key").window(tumbling("10 seconds")).agg(n="count(*)").to(sinks.memory("out"))
    with JobTester(job, spark=spark, buckets=3) as t:
        pushed = 0
        for second in (30, 12, 40, 3, 35, 36, 80, 30):
            rows = [event(i, second + i, f"k{i % 3}", i) for i in range(5)] + ["{broken", {"key": "no time"}]
            pushed += len(rows)
            t.push("events", rows)
        emitted = sum(row["n"] for row in t.read("out"))
        late, dead = len(t.late("window_by_key")), len(t.dead_letters())
        t.advance("events", START + timedelta(days=1))
        pending = sum(row["n"] for row in t.read("out")) - emitted
        assert emitted
        assert late
        assert pending
        assert emitted + late + pending + dead == pushed
