"""What changed between a job and its state, and what becomes of it: a table of rules, each said before a run."""

from __future__ import annotations

import json
import os

import pytest

from penstock import CheckpointError, Job, PlanChangedError, PlanError, sinks, sources
from penstock.compile.layout import Layout
from penstock.run.difference import differences
from penstock.run.fit import DOCUMENT, JOB, compared, fit, signature
from penstock.state.checkpoint import Checkpoint
from penstock.state.manifest import Manifest
from penstock.windows import panes, session, tumbling

SCHEMA = "url string, user string, ms long, at timestamp"
TWO = {"n": "count(*)", "total": "sum(ms)"}


def shop(
    *, path="views", schema=SCHEMA, time="at", lateness="10 minutes", idle_after=None, max_ahead="1 day",
    rows=lambda s: s, key="url", window=None, emit="final", late="drop", aggregates=None, named=None,
    after=lambda s: s, sink=None, more=lambda job, views, hourly: None, dead=None,
):  # fmt: skip
    """The job that is changed, with everything that changes."""
    job = Job("shop")
    source = sources.files(path, "json", schema)
    views = job.stream("views", source, time=time, lateness=lateness, idle_after=idle_after, max_ahead=max_ahead)
    hourly = rows(views).by(key).window(window or tumbling("1 hour"), emit=emit, late=late).agg(**(aggregates or TWO))
    hourly = hourly if named is None else hourly.named(named)
    after(hourly).to(sink or sinks.memory("hourly"), name="hourly")
    more(job, views, hourly)
    if dead is not None:
        job.dead_letters(dead)
    return job


def changes(before: Job, now: Job, batch=7, buckets=(8, 8)):
    """As documents: what a checkpoint keeps of a job is JSON."""
    was, is_now = (
        json.loads(json.dumps(signature(Layout(job), n))) for job, n in zip((before, now), buckets, strict=True)
    )
    return differences(was, is_now, batch)


def swapped(names):
    return dict(reversed(names.items()))


def extra_window(job, views, hourly):
    views.by("user").window(session("5 minutes")).agg(n="count(*)").to(sinks.memory("sessions"))


def extra_output(job, views, hourly):
    hourly.where("n > 10").to(sinks.memory("busy"))


UPDATES = {"emit": "updates"}
REGISTERED = {"n": "approx_count_distinct(user)"}

#: What is changed, in the job as it was and as it is; the verdict; what is said of it.
RULES = {
    "nothing": ({}, {}, None, ""),
    "lateness": ({}, {"lateness": "1 hour"}, "carried over", "input 'views': lateness was 10 minutes and is 1 hour"),
    "max_ahead": ({}, {"max_ahead": "2 days"}, "carried over", "further ahead are bad from batch 7 on"),
    "idle_after": (
        {"idle_after": "1 minute"}, {"idle_after": "2 minutes"}, "carried over", "idle_after was 1 minute",
    ),
    "idle_after that was none": ({}, {"idle_after": "1 minute"}, "needs a rebuild", "wall time alone makes batches"),
    "another folder": ({}, {"path": "other"}, "needs a rebuild", "what Spark's log has read is of the other"),
    "the same folder in full": ({}, {"path": os.path.abspath("views")}, "carried over", "it is read so from batch 7"),
    "another time": (
        {"schema": SCHEMA + ", sent timestamp"}, {"schema": SCHEMA + ", sent timestamp", "time": "sent"},
        "needs a rebuild", "time was at and is sent",
    ),
    "a clock that is corrected": (
        {"schema": SCHEMA + ", sent timestamp, got timestamp"},
        {"schema": SCHEMA + ", sent timestamp, got timestamp", "rows": lambda s: s.correct_clock("sent", "got")},
        "needs a rebuild", "clock was none and is got - sent",
    ),
    "a column more": ({}, {"schema": SCHEMA + ", lang string"}, "carried over", "rows are read so from batch 7"),
    "a filter": ({}, {"rows": lambda s: s.where("ms > 0")}, "carried over", "rows before batch 7 came as it was"),
    "a projection": (
        {}, {"rows": lambda s: s.with_columns(ms="ms * 2")}, "carried over", "what leads to it was none and is with ms",
    ),
    "another key": ({"named": "w"}, {"named": "w", "key": "user"}, "needs a rebuild", "keys was url and is user"),
    "another key, and so another name": (
        {}, {"key": "user"}, "needs a rebuild", "made of was step 'window_by_url' and is step 'window_by_user'",
    ),
    "another window": ({}, {"window": tumbling("2 hours")}, "needs a rebuild", "window was tumbling 1 hour"),
    "another kind of window": ({}, {"window": session("1 hour")}, "needs a rebuild", "window was tumbling 1 hour"),
    "other results": ({}, UPDATES, "needs a rebuild", "emit was once, at its end and is each time it changes"),
    "early values": (
        {"emit": panes(early="1 minute")}, {"emit": panes(early="2 minutes")},
        "carried over", "early values come so from batch 7 on",
    ),
    "allowed lateness": (
        {"emit": panes(allowed_lateness="1 hour")}, {"emit": panes(allowed_lateness="2 hours")},
        "needs a rebuild", "corrected for 1 hour after",
    ),
    "late rows": ({}, {"late": "capture"}, "harmless", "late was drop and is capture"),
    "a name": ({}, {"named": "hourly"}, "needs a rebuild", r"write .named('window_by_url') and it goes on"),
    "aggregates in another order": (
        {}, {"aggregates": swapped(TWO)}, "carried over", "aggregates was n = count(*), total = sum(ms) and is total",
    ),
    "aggregates whose names were swapped": (
        {"aggregates": {"a": "sum(ms)", "b": "max(ms)"}}, {"aggregates": {"b": "sum(ms)", "a": "max(ms)"}},
        "carried over", "aggregates was a = sum(ms), b = max(ms) and is b = sum(ms), a = max(ms)",
    ),
    "aggregates whose texts were swapped": (
        {"aggregates": {"a": "sum(ms)", "b": "max(ms)"}}, {"aggregates": {"a": "max(ms)", "b": "sum(ms)"}},
        "carried over", "aggregates was a = sum(ms), b = max(ms) and is a = max(ms), b = sum(ms)",
    ),
    "an aggregate of what is kept": (
        {}, {"aggregates": {**TWO, "mean": "sum(ms) / count(*)"}, "after": lambda s: s.drop("mean")},
        "carried over", "results from batch 7 on have them",
    ),
    "an aggregate of which nothing is kept": (
        {}, {"aggregates": {**TWO, "top": "max(ms)"}, "after": lambda s: s.drop("top")},
        "needs a rebuild", "of max(ms) nothing is kept",
    ),
    "the same call where something else": (
        {"aggregates": {"n": "count(*)"}}, {"aggregates": {"n": "count(*) filter (where ms > 1)"}},
        "needs a rebuild", "of count(*) filter (where ms > 1) nothing is kept",
    ),
    "fewer aggregates": (
        {"after": lambda s: s.drop("total")}, {"aggregates": {"n": "count(*)"}}, "carried over", "and is n = count(*)",
    ),
    "Spark's own aggregates over the same columns": (
        {"aggregates": REGISTERED}, {"aggregates": {"n": "approx_top_k(user)"}}, "carried over", "results from batch 7",
    ),
    "Spark's own aggregates over other columns": (
        {"aggregates": REGISTERED}, {"aggregates": {"n": "approx_count_distinct(ms)"}},
        "needs a rebuild", "the rows that are kept have other columns",
    ),
    "Spark's own aggregate instead of ours": ({}, {"aggregates": REGISTERED}, "needs a rebuild", "nothing is kept"),
    "a new output": ({}, {"more": extra_output}, "carried over", "output 'busy': it is new: carried over, it begins"),
    "an output less": ({"more": extra_output}, {}, "carried over", "output 'busy': it is gone: carried over, memory b"),
    "a new step": ({}, {"more": extra_window}, "carried over", "windows that are open now hold only what comes"),
    "a step less": ({"more": extra_window}, {}, "carried over", "step 'window_by_user': it is gone: carried over, its"),
    "an output in another place": (
        {}, {"sink": sinks.memory("other")}, "carried over", "the place was memory hourly and is memory other",
    ),
    "an output with other columns": (
        {}, {"after": lambda s: s.drop("n")}, "needs a rebuild", "the columns was window_start, window_end, url, n, to",
    ),
    "an output with other columns, in a place that takes any": (
        {"sink": sinks.console()}, {"sink": sinks.console(), "after": lambda s: s.drop("n")}, "carried over", "columns",
    ),
    "a filter before an output": (
        {}, {"after": lambda s: s.where("n > 1")}, "carried over", "come so, those before stay as they are",
    ),
    "a filter before a table's output": (
        UPDATES, {**UPDATES, "after": lambda s: s.where("n > 1")}, "needs a rebuild", "no longer belong there",
    ),
    "a projection before a table's output": (
        UPDATES, {**UPDATES, "after": lambda s: s.with_columns(n="n + 1")}, "carried over", "rows that change from bat",
    ),
    "dead letters": ({}, {"dead": sinks.memory("dead")}, "carried over", "dead letters: the place was none and is mem"),
}  # fmt: skip


@pytest.mark.parametrize(("before", "now", "verdict", "said"), RULES.values(), ids=RULES)
def test_every_change_has_its_rule(before, now, verdict, said):
    found = changes(shop(**before), shop(**now))
    worst = [v for v in ("needs a rebuild", "carried over", "harmless") if v in {c.verdict for c in found}]
    assert (worst or [None])[0] == verdict, list(map(str, found))
    assert said in "\n".join(map(str, found))


def orders(rows=lambda t: t, history="1 hour", tombstones="1 day", tolerance=None, more=lambda job, orders: None):
    """A job with tables."""
    job = Job("orders")
    source = sources.files("orders", "json", "id long, sku string, n long, at timestamp, v long")
    table = job.table(
        "orders",
        source,
        key="id",
        sequence="v",
        time="at",
        lateness="0 seconds",
        history=history,
        tombstones=tombstones,
    )
    rows(table).by("sku").agg(n="sum(n)").to(sinks.memory("by_sku"))
    views = job.stream(
        "views", sources.files("v", "json", "id long, seen timestamp"), time="seen", lateness="0 seconds"
    )
    views.asof(table, on="id", tolerance=tolerance).to(sinks.memory("views"))
    more(job, table)
    return job


TABLES = {
    "a filter before a table's aggregates": ({"rows": lambda t: t.where("n > 0")}, "needs a rebuild", "table's rows"),
    "a longer history": ({"history": "2 hours"}, "needs a rebuild", "versions that it would need have been let go"),
    "a shorter history": ({"history": "1 minute"}, "carried over", "older versions are let go from batch 7 on"),
    "tombstones": ({"tombstones": "2 days"}, "carried over", "earlier ones are kept as long as was said then"),
    "tombstones for ever": ({"tombstones": None}, "needs a rebuild", "tombstones was for a time and is for ever"),
    "tolerance": ({"tolerance": "1 hour"}, "carried over", "events are answered so from batch 7 on"),
    "a new step over a table that has rows": (
        {"more": lambda job, t: t.by("n").agg(c="count(*)").to(sinks.memory("c"))},
        "needs a rebuild",
        "the rows that the table of step 'orders' has already would never come to it",
    ),
    "the changes of a table": (
        {"more": lambda job, t: t.changes().to(sinks.memory("c"))},
        "carried over",
        "it tells what changes from batch 7 on",
    ),
}


@pytest.mark.parametrize(("now", "verdict", "said"), TABLES.values(), ids=TABLES)
def test_every_change_of_tables_has_its_rule(now, verdict, said):
    found = changes(orders(), orders(**now))
    assert {c.verdict for c in found} - {"harmless"} >= {verdict}, list(map(str, found))
    assert ("needs a rebuild" in {c.verdict for c in found}) == (verdict == "needs a rebuild")
    assert said in "\n".join(map(str, found))


def test_a_table_whose_values_are_others_may_not_feed_a_step():
    def views_of(total):
        job = Job("shop")
        views = job.stream("views", sources.files("v", "json", SCHEMA), time="at", lateness="0 seconds")
        by_url = views.by("url").agg(total=total)
        by_url.with_columns(size="total div 10").by("size").agg(n="count(*)").to(sinks.memory("sizes"))
        return job

    found = changes(views_of("sum(ms)"), views_of("sum(ms) * 2"))
    assert "the values of the table of step 'agg_by_url' are others: needs a rebuild" in "\n".join(map(str, found))


def test_rows_that_are_kept_whole_must_keep_their_columns_and_their_order():
    def first(*columns):
        job = Job("shop")
        views = job.stream("views", sources.files("v", "json", SCHEMA), time="at", lateness="0 seconds")
        rows = views.select(*columns).by("url").window(tumbling("1 hour")).top(1, by="ms").select("ms")
        rows.to(sinks.console(), name="c")
        return job

    (found,) = (c for c in changes(first("url", "ms", "user"), first("url", "user", "ms")) if c.said.startswith("the "))
    assert found.verdict == "needs a rebuild"
    assert "the columns that it keeps was url, ms, user and is url, user, ms" in str(found)


def test_the_number_of_buckets_is_told():
    (found,) = changes(shop(), shop(), buckets=(8, 3))
    assert str(found) == ("job: buckets was 8 and is 3: carried over, the state of every step is split anew in batch 7")


def test_other_versions_are_harmless_and_another_layout_is_not():
    was, now = (signature(Layout(shop()), 8) for _ in range(2))
    was["versions"] = {"penstock": "0.0.1", "pyspark": "4.0.0"}
    assert {c.verdict for c in differences(was, now, 1)} == {"harmless"}
    was["version"] = 2
    told = list(map(str, differences(was, now, 1)))
    assert told[0] == "job: the layout of the state was version 2 and is version 3: needs a rebuild"


def test_inputs_in_another_order_are_refused():
    def two(*names):
        job = Job("shop")
        streams = [job.stream(n, sources.files(n, "json", SCHEMA), time="at", lateness="0 seconds") for n in names]
        by_name = dict(zip(names, streams, strict=True))
        by_name["a"].to(sinks.console(), name="a")
        by_name["b"].to(sinks.console(), name="b")
        return job

    (found,) = changes(two("a", "b"), two("b", "a"))
    assert "the inputs were a, b and are b, a: needs a rebuild" in str(found)


def old(job: Job) -> dict[str, object]:
    """A document as the first Penstock wrote it."""
    whole = signature(Layout(job), 8)
    steps = {step.name: {"kind": type(step).__name__, **step.state_depends_on()} for step in Layout(job).stages}
    return {**{k: whole[k] for k in ("version", "job", "buckets", "inputs")}, "steps": steps}


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({}, None),
        ({"lateness": "1 hour", "rows": lambda s: s.where("ms > 0")}, None),
        ({"aggregates": {"m": "count(*)", "s": "sum(ms)"}}, "carried over"),
        ({"aggregates": swapped(TWO)}, "run the job as it was once with this Penstock"),
        ({"more": extra_window}, "it is new: needs a rebuild"),
        ({"window": tumbling("2 hours")}, "needs a rebuild"),
    ],
    ids=["nothing", "what it did not tell", "names", "order", "a new step", "a window"],
)
def test_a_document_of_the_first_penstock_is_still_read(now, said):
    found = differences(old(shop()), signature(Layout(shop(**now)), 8), 7)
    assert [c for c in found if said is None] == []
    assert said is None or said in "\n".join(map(str, found))


@pytest.fixture
def place(tmp_path):
    """A checkpoint with a batch of the job as it was."""
    checkpoint = Checkpoint.open(tmp_path / "ck")
    fit(Layout(shop()), checkpoint, 8)
    job = signature(Layout(shop()), 8)
    checkpoint.commit(Manifest(0, checkpoint.take_epoch(), {"window_by_url": {}}, {JOB: job, "outputs": ["hourly"]}))
    return checkpoint


def test_a_job_that_needs_a_rebuild_is_refused_with_the_commands_and_nothing_is_written(place, tmp_path):
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(PlanChangedError) as caught:
        fit(Layout(shop(window=tumbling("2 hours"))), place, 8)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    lines = str(caught.value).splitlines()
    assert lines[1] == "  step 'window_by_url': window was tumbling 1 hour and is tumbling 2 hours: needs a rebuild"
    assert lines[3].startswith("  penstock run ")
    assert lines[3].endswith(f"test_fit.py --checkpoint {place.path}-2")
    assert lines[5].endswith("test_fit.py --from TIME --to-output NAME")


def test_what_is_carried_over_is_known_and_the_document_waits_for_the_first_batch(place):
    found = fit(Layout(shop(lateness="1 hour")), place, 4)
    assert (found.buckets, [c.of for c in found.carried]) == (8, ["input 'views'"])
    assert place.read_json(DOCUMENT) == signature(Layout(shop()), 8)
    assert compared(Layout(shop()), place, 4).changes == ()


def test_buckets_are_pinned_unless_somebody_asks(place):
    assert fit(Layout(shop()), place, 4).buckets == 8
    assert fit(Layout(shop()), place, 4, asked=5).buckets == 5
    with pytest.raises(PlanError, match=r"buckets=0: a number of buckets is a whole number from 1 on"):
        fit(Layout(shop()), place, 4, asked=0)


def test_the_newest_batch_says_what_its_state_is_of_whatever_the_document_says(place):
    other = signature(Layout(shop(window=tumbling("2 hours"))), 8)
    place.write_json(DOCUMENT, other)
    assert fit(Layout(shop()), place, 8).changes == ()


def test_a_checkpoint_that_lost_its_document_or_is_of_another_job_is_refused(place, tmp_path):
    other = Job("other")
    rows = other.stream("views", sources.files("views", "json", SCHEMA), time="at", lateness="1 day")
    rows.to(sinks.memory("o"))
    with pytest.raises(CheckpointError, match="belongs to the job 'shop', not to 'other'"):
        fit(Layout(other), place, 8)
    (tmp_path / "ck" / DOCUMENT).unlink()
    with pytest.raises(CheckpointError, match=r"has lost its job\.json"):
        fit(Layout(shop()), place, 8)


def test_no_secret_is_kept_in_the_document():
    job = shop(path="s3://ann:hush@bucket/in")
    assert "hush" not in json.dumps(signature(Layout(job), 8))
