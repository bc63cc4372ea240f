"""A plan prints like itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from penstock import Job, sinks, sources
from penstock.windows import hopping, tumbling


def shop():
    job = Job("shop")
    views = job.stream(
        "views",
        sources.files("in/views", format="json", schema="url string, user string, at timestamp"),
        time="at",
        lateness="10 minutes",
        idle_after="1 minute",
    )
    paths = views.where("url is not null").with_columns(path="parse_url(url, 'PATH')").named("paths")
    hourly = paths.by("path").window(tumbling("1 hour"), late="capture").agg(n="count(*)")
    hourly.to(sinks.sqlite("out.db", "hourly"))
    hourly.late.to(sinks.memory("late"))
    hourly.window(hopping("1 day", "1 hour")).agg(busiest="max_by(path, n)", top="approx_top_k(path)").to(
        sinks.call(print), name="busiest"
    )
    job.dead_letters(sinks.sqlite("out.db", "dead"))
    return job


EXPLAINED = """\
job 'shop'
output 'hourly' to table hourly in out.db (append)
  window 'window_by_path' by path, tumbling 1 hour: n = count(*)
  | keeps partial aggregates per key and slice, until the watermark passes their last window; lag 0 seconds
    with path = parse_url(url, 'PATH') (named 'paths')
      where url is not null
        stream 'views' from json files in in/views: time at, lateness 10 minutes, idle after 1 minute
output 'late' to memory late (append)
  late rows of 'window_by_path'
    window 'window_by_path' by path, tumbling 1 hour: n = count(*)
      ... as above
output 'busiest' to function print (append; not transactional: rows may come again after a crash)
  window 'window', hopping 1 day every 1 hour: busiest = max_by(path, n), top = approx_top_k(path)
  | keeps the rows, until the watermark passes their last window; lag 0 seconds
    window 'window_by_path' by path, tumbling 1 hour: n = count(*)
      ... as above
dead letters to table dead in out.db
"""


def test_explain_shows_each_step_its_state_and_its_bound():
    assert shop().explain() == EXPLAINED


def test_the_graph_is_mermaid_with_every_step_once():
    lines = shop().graph().splitlines()
    assert lines[0] == "flowchart LR"
    assert sum("stream 'views'" in line for line in lines) == 1
    assert sum(" --> " in line for line in lines) == 8


def test_a_job_is_built_explained_and_drawn_without_spark_or_java():
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_text import shop
job = shop()
job.explain(), job.graph(), repr(job), job == shop()
assert not [m for m in sys.modules if m.split(".")[0] in ("pyspark", "py4j")]
"""
    subprocess.run([sys.executable, "-c", program], check=True, env={"PATH": "/nonexistent"})
