"""Delta needs a Spark that was started with its package: so the cases run in a process of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Job, sinks, sources
from penstock.plan.errors import PlanError

CASES = Path(__file__).with_name("cases.py")


def test_all_that_delta_promises_holds_on_a_real_table():
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES)],
        cwd=CASES.parent.parent.parent, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
    (passed,) = re.findall(r"(\d+) passed", ended.stdout)
    assert int(passed) == CASES.read_text().count("\ndef test_") + 1  # one has two cases


def test_a_job_says_that_it_needs_delta_and_where_it_writes():
    job = Job("shop")
    job.stream("ticks", sources.rate(), time="timestamp", lateness="0 seconds").to(sinks.delta("out/ticks"))
    (need,) = job.needs
    assert need.package == "io.delta:delta-spark_2.13:4.0.1"
    assert "output 'ticks' to delta table out/ticks (append)" in job.explain()


@pytest.mark.parametrize("path", ["", "/", "a\0b"])
def test_a_path_that_cannot_be_one_is_refused_where_it_is_written(path):
    with pytest.raises(PlanError, match=r"test_delta\.py"):
        sinks.delta(path)
