"""What changed between a job and its state, and what becomes of it: a table of rules, each said before a run."""

from __future__ import annotations

import json
import os

import pytest

from penstock import CheckpointError, Job, PlanChangedError, PlanError, sinks, sources
from penstock.check import held_against
from penstock.compile.layout import Layout
from penstock.run.begun import Begun, begin
from penstock.run.difference import differences
from penstock.run.fit import DOCUMENT, JOB, compared, fit, signature
from penstock.state.checkpoint import Checkpoint
from penstock.state.manifest import Manifest
from penstock.windows import panes, session, tumbling

SCHEMA = "url string, user string, ms long, at timestamp"
TWO = {"n": "count(*)", "total": "sum(ms)"}


def shop(
    *, path="views", schema=SCHEMA, time="at", lateness="10 minutes", idle_after=None, max_ahead="1 day", options=None,
    rows=lambda s: s, key="url", window=None, emit="final", late="drop", aggregates=None, named=None,
    after=lambda s: s, sink=None, more=lambda job, views, hourly: None, dead=None,
):  # fmt: skip
    """The job that is changed, with everything that changes."""
    job = Job("shop")
    source = sources.files(path, "json", schema, **(options or {}))
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


def every_view(job, views, hourly):
    views.to(sinks.sqlite("o.db", "all"))


def every_view_shown(job, views, hourly):
    views.to(sinks.console(), name="all")


def twice(frame):
    return frame


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
    "how an input is read": (
        {"options": {"timestampFormat": "dd/MM/yyyy"}}, {"options": {"timestampFormat": "MM/dd/yyyy"}},
        "carried over", "how it is read was timestampFormat = dd/MM/yyyy and is timestampFormat = MM/dd/yyyy",
    ),
    "how fast an input is read": (
        {"options": {"maxFilesPerTrigger": 1}}, {"options": {"maxbytespertrigger": "1g"}}, None, "",
    ),
    "what a function gives": (
        {"rows": lambda s: s.map_pandas(twice, SCHEMA)},
        {"rows": lambda s: s.map_pandas(twice, SCHEMA.replace("long", "double"))},
        "carried over", "map_pandas twice giving url string, user string, ms int64",
    ),
    "an output in the same place": (
        {"sink": sinks.sqlite("o.db", "t")}, {"sink": sinks.sqlite(os.path.abspath("o.db"), "t")},
        "harmless", "the same place, otherwise spelled",
    ),
    "a filter before a table's output in the same place": (
        {**UPDATES, "sink": sinks.sqlite("o.db", "t")},
        {**UPDATES, "sink": sinks.sqlite(os.path.abspath("o.db"), "t"), "after": lambda s: s.where("n > 1")},
        "needs a rebuild", "no longer belong there",
    ),
    "another table of one database": (
        {"sink": sinks.sqlite("o.db", "t")}, {"sink": sinks.sqlite("o.db", "u")},
        "carried over", "the place was table t in o.db and is table u in o.db",
    ),
    "dead letters in the same place": (
        {"dead": sinks.sqlite("o.db", "d")}, {"dead": sinks.sqlite(os.path.abspath("o.db"), "d")}, "harmless", "",
    ),
    "a column of another type in an output": (
        {"more": every_view}, {"more": every_view, "schema": SCHEMA.replace("long", "double")},
        "needs a rebuild", "output 'all': the column 'ms' was int64 and is double: needs a rebuild, or give it another",
    ),
    "a column of another type in an output that takes any": (
        {"more": every_view_shown}, {"more": every_view_shown, "schema": SCHEMA.replace("long", "double")},
        "carried over", "the column 'ms' was int64 and is double: carried over, from batch 7 on",
    ),
    "dead letters": ({}, {"dead": sinks.memory("dead")}, "carried over", "dead letters: the place was none and is mem"),
}  # fmt: skip


@pytest.mark.parametrize(("before", "now", "verdict", "said"), RULES.values(), ids=RULES)
def test_every_change_has_its_rule(before, now, verdict, said):
    found = changes(shop(**before), shop(**now))
    worst = [v for v in ("needs a rebuild", "carried over", "harmless") if v in {c.verdict for c in found}]
    assert (worst or [None])[0] == verdict, list(map(str, found))
    assert said in "\n".join(map(str, found))


def test_a_place_that_is_spelled_as_it_was_has_not_moved(tmp_path, monkeypatch):
    """Whoever runs the job in another folder is told by the sink that the output has gone."""
    was, now = shop(sink=sinks.sqlite("o.db", "t")), shop(sink=sinks.sqlite("o.db", "t"))
    before = json.loads(json.dumps(signature(Layout(was), 8)))
    monkeypatch.chdir(tmp_path)
    assert [c for c in differences(before, signature(Layout(now), 8), 7) if c.of == "output 'hourly'"] == []


def test_the_order_of_an_outputs_columns_is_harmless():
    """Sinks take rows by name."""
    found = changes(shop(), shop(after=lambda s: s.select("url", "n", "total", "window_start", "window_end")))
    (told,) = (c for c in found if c.said.startswith("the columns"))
    assert (told.verdict, told.of) == ("harmless", "output 'hourly'")


def both(build):
    job = Job("both")
    a, b = (job.stream(n, sources.files(n, "json", SCHEMA), time="at", lateness="1 minute") for n in "ab")
    build(a, b).deduplicate("url", within="1 hour").to(sinks.memory("both"))
    return job


def test_a_filter_on_the_other_side_of_a_union_is_told():
    found = changes(both(lambda a, b: a.where("ms > 0").union(b)), both(lambda a, b: a.union(b.where("ms > 0"))))
    assert "union of (input 'a', where ms > 0) and (input 'b')" in "\n".join(map(str, found))
    assert {c.verdict for c in found if c.of.startswith("step")} == {"carried over"}


def latest(rows=lambda v: v, sequence="s", schema="k string, s long, n long, at timestamp"):
    """A table whose order is what the rows say."""
    job = Job("latest")
    views = job.stream("v", sources.files("v", "json", schema), time="at", lateness="0 seconds")
    rows(views).to_table("k", sequence=sequence).to(sinks.memory("t"))
    return job


MADE = {
    "computed otherwise": (lambda v: v.with_columns(s="n * 1000"), lambda v: v.with_columns(s="n"), True),
    "no longer computed": (lambda v: v.with_columns(s="n * 1000"), lambda v: v, True),
    "of a column that is computed otherwise": (
        lambda v: v.with_columns(n="n * 2").with_columns(s="N + 1"),
        lambda v: v.with_columns(n="n * 3").with_columns(s="N + 1"),
        True,
    ),
    "before another step": (
        lambda v: v.with_columns(s="n * 1000").deduplicate("k", within="1 hour"),
        lambda v: v.with_columns(s="n").deduplicate("k", within="1 hour"),
        True,
    ),
    "an aggregate of the same calls": (
        lambda v: v.by("k").window(tumbling("1 hour")).agg(s="max(n) * 1000"),
        lambda v: v.by("k").window(tumbling("1 hour")).agg(s="max(n)"),
        True,
    ),
    "behind a function": (
        lambda v: v.with_columns(n="n * 2").map_pandas(twice, "k string, s long, at timestamp"),
        lambda v: v.with_columns(n="n * 3").map_pandas(twice, "k string, s long, at timestamp"),
        True,
    ),
    "on one side of a union": (
        lambda v: v.union(v.with_columns(s="n")), lambda v: v.union(v.with_columns(s="n + 1")), True,
    ),
    "another column": (lambda v: v.with_columns(x="n * 1000"), lambda v: v.with_columns(x="n"), False),
    "a filter": (lambda v: v, lambda v: v.where("n > 0"), False),
}  # fmt: skip


@pytest.mark.parametrize(("before", "now", "rebuild"), MADE.values(), ids=MADE)
def test_what_puts_a_table_in_order_may_not_be_made_otherwise(before, now, rebuild):
    found = changes(latest(before), latest(now))
    assert ("needs a rebuild" in {c.verdict for c in found}) == rebuild, list(map(str, found))
    assert found
    assert not rebuild or "would not replace" in "\n".join(map(str, found))


def priced(sequence="s", delete_when=None, columns="k string, x long, s long, gone boolean, since timestamp"):
    """A table that nobody reads but as it was."""
    job = Job("priced")
    views = job.stream("v", sources.files("v", "json", "k string, seen timestamp"), time="seen", lateness="1 minute")
    prices = sources.files("p", "json", columns)
    table = job.table(
        "p", prices, key="k", sequence=sequence, delete_when=delete_when, time="since", lateness="1 minute"
    )
    views.asof(table.select("k", "x"), on="k").to(sinks.memory("o"))
    return job


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"sequence": "x"}, "sequence was s and is x: needs a rebuild"),
        ({"sequence": ("s", "x")}, "sequence was s and is s, x: needs a rebuild"),
        ({"delete_when": "gone"}, "deletes was None and is gone: needs a rebuild"),
        ({"columns": "k string, x long, s string, gone boolean, since timestamp"}, "is p.s string: needs a rebuild"),
    ],
    ids=["another", "one more", "deletes", "of another type"],
)
def test_the_order_of_a_table_that_is_only_read_as_it_was_is_kept(now, said):
    assert said in "\n".join(map(str, changes(priced(), priced(**now))))


def test_what_puts_versions_in_order_is_said_by_their_own_table():
    """Not by one that the rows met before."""
    job = Job("own")
    rows = job.stream("v", sources.files("v", "json", "k string, at timestamp"), time="at", lateness="1 minute")
    names = job.table("n", sources.files("n", "json", "k string, s long"), key="k", sequence="s")
    table = rows.lookup(names.select("k")).to_table("k")
    own = rows.rename(at="seen").asof(table, on="k").node
    assert not own.chosen_sequence
    assert own.state_depends_on()["sequence"] == []


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


@pytest.fixture
def at_hand(place):
    """The same, and its next batch was begun."""
    begin(place, Begun(1, "", "", job=signature(Layout(shop()), 8)))
    return place


def test_a_batch_that_was_begun_is_ended_by_the_job_that_began_it(at_hand, tmp_path):
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(PlanChangedError) as caught:
        fit(Layout(shop(lateness="1 hour")), at_hand, 8)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    lines = str(caught.value).splitlines()
    assert (
        lines[0] == f"the job 'shop' is not as it was when it began batch 1, which outputs of {at_hand.path} may hold:"
    )
    assert lines[1] == "  input 'views': lateness was 10 minutes and is 1 hour"
    assert lines[2] == "Run it once as it was, which ends batch 1; then change it. Or compute all anew, " + (
        "with another place for each output:"
    )
    assert fit(Layout(shop()), at_hand, 8).changes == ()
    with pytest.raises(PlanChangedError, match="began batch 1"):
        held_against(shop(lateness="1 hour"), at_hand.path)
    assert "fits, the state in its 8 buckets after batch 0" in held_against(shop(), at_hand.path)


def test_what_is_harmless_and_other_buckets_do_not_touch_a_batch_that_was_begun(at_hand):
    assert fit(Layout(shop(late="capture")), at_hand, 8, asked=3).buckets == 3


def test_once_the_batch_is_done_the_job_may_change(at_hand):
    job = signature(Layout(shop()), 8)
    at_hand.commit(Manifest(1, at_hand.take_epoch(), {"window_by_url": {}}, {JOB: job, "outputs": ["hourly"]}))
    assert fit(Layout(shop(lateness="1 hour")), at_hand, 8).carried


def test_a_batch_that_an_older_penstock_began_does_not_say_by_which_job(place):
    begin(place, Begun(1, "", ""))
    assert fit(Layout(shop(lateness="1 hour")), place, 8).carried


def test_the_first_batch_pins_the_job_once_it_was_begun(tmp_path):
    checkpoint = Checkpoint.open(tmp_path / "ck")
    fit(Layout(shop()), checkpoint, 8)
    fit(Layout(shop(lateness="1 hour")), checkpoint, 8)  # nothing has been written anywhere
    begin(checkpoint, Begun(0, "", "", job=signature(Layout(shop(lateness="1 hour")), 8)))
    with pytest.raises(PlanChangedError, match="began batch 0"):
        fit(Layout(shop()), checkpoint, 8)
    assert "empty, no batch is done yet" in held_against(shop(lateness="1 hour"), checkpoint.path)


def test_a_first_plan_of_sparks_pins_the_places_that_it_reads(tmp_path):
    checkpoint = Checkpoint.open(tmp_path / "ck")
    fit(Layout(shop(path="test")), checkpoint, 8)
    (tmp_path / "ck/spark/offsets").mkdir(parents=True)
    (tmp_path / "ck/spark/offsets/0").touch()
    fit(Layout(shop(path="test", window=tumbling("2 hours"))), checkpoint, 8)
    with pytest.raises(PlanChangedError, match="what Spark's log has read is of the other"):
        fit(Layout(shop(path="real")), checkpoint, 8)


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
    """Neither of an address, nor of a client of Kafka, nor what a reference names."""
    job = shop(
        path="s3://ann:hush@bucket/in",
        options={"password": "hush"},
        sink=sinks.postgres("t", "postgresql://ann:hush@db/shop?sslpassword=hush"),
        dead=sinks.postgres("d", "env:NO_SUCH_VARIABLE"),
    )
    topic = sources.kafka("t", "b:9092", "csv", SCHEMA, sep=";", **{"kafka.sasl.jaas.config": "password='hush'"})
    job.stream("more", topic, time="at", lateness="1 day").to(
        sinks.kafka("o", "b:9092", **{"kafka.sasl.jaas.config": "password='hush'"})
    )
    said = json.dumps(signature(Layout(job), 8))
    assert "hush" not in said
    assert '"sep": ";"' in said
